package relay

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/projections"
)

// forgetfulLog takes every append and keeps none of it: what an append costs before
// the engine and after it.
type forgetfulLog struct{ events.Log }

func (l forgetfulLog) Append(_ context.Context, a events.Append) (events.Appended, error) {
	first := l.Durable() + 1
	recs := make([]events.Record, len(a.Drafts))
	for i, d := range a.Drafts {
		recs[i].Header.Intent, recs[i].Salt, recs[i].Payload = d.Intent, d.Salt, d.Payload
		recs[i].Header.Position, recs[i].Header.Revision, recs[i].LeafHash = first+events.Position(i), events.Revision(i+1), d.Intent.Commitment
	}
	return events.Appended{First: first, Last: first + events.Position(len(recs)-1), Records: recs}, nil
}

// BenchmarkAppend is POST /v1/events without the network and the engine.
func BenchmarkAppend(b *testing.B) {
	state := projections.NewState()
	log, err := memlog.New(memlog.Options{Fleet: "default", Fold: state})
	if err != nil {
		b.Fatal(err)
	}
	founded, err := commands.New(log, state, randomness()).Found(b.Context(), "default")
	if err != nil {
		b.Fatal(err)
	}
	ledger := commands.New(forgetfulLog{log}, state, randomness())
	handler := New(map[string]*commands.Ledger{"default": ledger}, Config{}).Handler()

	text := strings.Repeat("what an agent noted of its work; ", 9)
	for _, n := range []int{1, 100} {
		b.Run(fmt.Sprintf("%d events", n), func(b *testing.B) {
			body, media := &bytes.Buffer{}, cloudEventType
			for i := range n {
				fmt.Fprintf(body, `,{"specversion":"1.0","id":"01939f5e-7a1b-7c3d-8e4f-%012x","source":"/bench","type":"ext.bench.appended","subject":"ext-bench-%d",`+
					`"time":"2026-01-01T00:00:00Z","datacontenttype":"application/json","data":{"client":%d,"text":"%s"}}`, i, i%7, i, text)
			}
			raw := body.Bytes()[1:]
			if n > 1 {
				raw, media = append(append([]byte("["), raw...), ']'), cloudEventBatchType
			}
			r := httptest.NewRequest(http.MethodPost, "/v1/events", nil)
			r.Header.Set("Authorization", "Bearer "+founded.Secret)
			r.Header.Set("Content-Type", media)
			r.ContentLength = int64(len(raw))
			sent, answer := bytes.NewReader(nil), &bytes.Buffer{}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			for b.Loop() {
				sent.Reset(raw)
				r.Body = io.NopCloser(sent)
				answer.Reset()
				w := httptest.NewRecorder()
				w.Body = answer
				handler.ServeHTTP(w, r)
				if w.Code != http.StatusCreated {
					b.Fatalf("%d: %s", w.Code, answer)
				}
			}
		})
	}
}
