package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/seal"
	"fleetledger/testing/smallfleet"
	"fleetledger/testing/witnessstub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const origin = smallfleet.Origin

// fleet is one whose log is signed.
type fleet struct {
	*smallfleet.Fleet
	sealer *seal.Sealer
	key    string
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f, key := smallfleet.New(t), smallfleet.NewKey(t, "key")
	if err := f.AddKey(t.Context(), key.Verifier()); err != nil {
		t.Fatal(err)
	}
	return &fleet{f, smallfleet.NewSealer(t, f.Memory(), nil, key), key.Verifier()}
}

// act records an event.
func (f *fleet) act(text string) error {
	_, err := f.Conclude(context.Background(), smallfleet.As("root"), commands.Conclude{Text: text})
	return err
}

func (f *fleet) grow(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := f.act(text); err != nil {
			t.Fatal(err)
		}
	}
}

func (f *fleet) head() events.Position { return f.Log().Durable() }

func (f *fleet) witness(t *testing.T, name string) *witnessstub.Witness {
	t.Helper()
	w := witnessstub.New(t, name)
	w.Trust(f.key)
	return w
}

func named(t *testing.T, w *witnessstub.Witness) Witness {
	t.Helper()
	parsed, err := Parse(w.Key() + "@" + w.URL)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// collector asks these witnesses, and the next checkpoint at once.
func (f *fleet) collector(t *testing.T, quorum int, witnesses ...*witnessstub.Witness) *Collector {
	t.Helper()
	cfg := Config{Quorum: quorum, Logger: slog.New(slog.DiscardHandler)}
	for _, w := range witnesses {
		cfg.Witnesses = append(cfg.Witnesses, named(t, w))
	}
	c := New(f.Ledger, f.sealer, cfg)
	t.Cleanup(c.Close)
	return c
}

// recorded returns who cosigned the newest checkpoint that is recorded, and over how
// many events.
func (f *fleet) recorded(t *testing.T, witnesses ...*witnessstub.Witness) (string, int64) {
	t.Helper()
	w := f.State().Witnessed()
	if w.Told == 0 {
		return "", 0
	}
	if _, err := seal.VerifyCheckpoint([]byte(w.Checkpoint), f.key); err != nil {
		t.Error(err)
	}
	var keys []seal.WitnessKey
	for _, w := range witnesses {
		k, err := seal.ParseWitnessKey(w.Key())
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, k)
	}
	list, err := seal.Cosignatures([]byte(w.Checkpoint), keys)
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, c := range list {
		names = append(names, c.Witness)
	}
	return strings.Join(names, " "), w.Size
}

// ready lets a witness that failed be asked again at once.
func (c *Collector) ready() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.members {
		m.notBefore = time.Time{}
	}
}

// down is a witness that nobody can reach.
func down(t *testing.T, name string) *witnessstub.Witness {
	w := witnessstub.Offline(name)
	s := httptest.NewServer(w)
	w.URL = s.URL
	s.Close()
	return w
}

func TestParse(t *testing.T) {
	key := witnessstub.Offline("w@x.test/1").Key()
	for text, want := range map[string]string{
		key + "@https://w.test":         "https://w.test",
		key + "@http://127.0.0.1:80/a/": "http://127.0.0.1:80/a",
		key + "@":                       "",
		key:                             "",
		key + "@ftp://w.test":           "",
		key + "@https://":               "",
		key + "@https://u:p@w.test":     "",
		key + "@https://w.test?x=1":     "",
		key[1:] + "@https://w.test":     "",
		"@https://w.test":               "",
		"a+b@https://w.test":            "",
		"":                              "",
	} {
		w, err := Parse(text)
		if got := w.URL; got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
}

// A checkpoint is recorded once enough witnesses have cosigned it, and none for the
// sake of the recording.
func TestQuorum(t *testing.T) {
	f := newFleet(t)
	a, b, c := f.witness(t, "a.test"), down(t, "b.test"), f.witness(t, "c.test")
	col := f.collector(t, 2, a, b, c)
	f.grow(t, "one", "two")
	size := f.head()
	col.Ask(t.Context())
	if by, n := f.recorded(t, a, b, c); by != "a.test c.test" || n != int64(size) || f.head() != size+1 {
		t.Fatalf("%q cosigned %d of %d", by, n, f.head())
	}
	for range 5 {
		col.ready()
		col.look(t.Context())
	}
	if f.head() != size+1 || a.Known(origin) != int64(size) {
		t.Errorf("%d events: something was recorded for its own sake", f.head())
	}
	if err := f.RootHeads(t.Context()); err != nil || f.head() != size+2 {
		t.Fatal(f.head(), err)
	}
	// The root is witnessed once, and that calls for no root.
	for range 5 {
		col.look(t.Context())
		if err := f.RootHeads(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if f.head() != size+3 || a.Known(origin) != int64(size+2) {
		t.Errorf("%d events, %d witnessed", f.head(), a.Known(origin))
	}
	states := func() string {
		var out []string
		for _, s := range col.Status() {
			out = append(out, fmt.Sprint(s.State, " ", s.Size, " ", s.Fault))
		}
		return strings.Join(out, "; ")
	}
	if got, want := states(), fmt.Sprintf("agrees %d ; silent 0 it cannot be reached; agrees %d ", size+2, size+2); got != want {
		t.Errorf("%s, not %s", got, want)
	}
	// Without a quorum nothing is, and those that answer are left in peace.
	c.Misbehave(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	f.grow(t, "three")
	head := f.head()
	for range 5 {
		col.look(t.Context())
	}
	if _, n := f.recorded(t); f.head() != head || n != int64(size+2) {
		t.Errorf("%d events, %d witnessed by one", f.head(), n)
	}
	asked := a.Asked()
	for range 5 {
		col.look(t.Context())
	}
	if a.Asked() != asked {
		t.Errorf("a witness was asked %d times for nothing", a.Asked()-asked)
	}
	c.Misbehave(nil)
	col.ready()
	col.look(t.Context())
	if by, n := f.recorded(t, a, b, c); by != "a.test c.test" || n != int64(head) {
		t.Errorf("%q cosigned %d of %d", by, n, f.head())
	}
	// The next one is due after a while only.
	col.cfg.Every = time.Hour
	f.grow(t, "four")
	col.look(t.Context())
	f.grow(t, "five")
	head = f.head()
	col.look(t.Context())
	if f.head() != head {
		t.Error("the next checkpoint was recorded too soon")
	}
}

// A process that is started again goes on from what is recorded, and finds out what a
// witness knows otherwise.
func TestSizes(t *testing.T) {
	f := newFleet(t)
	w := f.witness(t, "w.test")
	f.collector(t, 1, w).Ask(t.Context())
	asked := w.Asked()
	col := f.collector(t, 1, w)
	col.cfg.Every = time.Hour
	col.Ask(t.Context())
	if w.Asked() != asked+1 {
		t.Errorf("%d requests, though the log says what it knows", w.Asked()-asked)
	}
	// A start without anything new puts off nothing.
	f.grow(t, "one")
	head := f.head()
	col.look(t.Context())
	if _, n := f.recorded(t, w); n != int64(head) {
		t.Errorf("%d of %d are witnessed", n, head)
	}
	f.grow(t, "two")
	w.Forget(origin)
	f.collector(t, 1, w).Ask(t.Context())
	if _, n := f.recorded(t, w); n != w.Known(origin) || uint64(n)+1 != uint64(f.head()) {
		t.Errorf("%d recorded, %d known, of %d", n, w.Known(origin), f.head())
	}
}

// TestMisbehaviour has a witness answer what it must not. Nothing of it is recorded.
// Only what it says of the log's size or root stops appends; whatever it said, it is
// asked again, and is believed when it cosigns.
func TestMisbehaviour(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = w.Write([]byte(body))
		}
	}
	n := 0
	stranger := witnessstub.Offline("stranger.test")
	for what, c := range map[string]struct {
		answers func(honest *witnessstub.Witness) http.HandlerFunc
		state   string
		fault   string
	}{
		"a stranger's signature": {func(w *witnessstub.Witness) http.HandlerFunc {
			return answer(200, string(stranger.Cosign([]byte(origin+"\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n"))))
		}, Silent, "it answered without a cosignature by its key"},
		"its signature of something else": {func(w *witnessstub.Witness) http.HandlerFunc {
			return answer(200, string(w.Cosign([]byte(origin+"\n1\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n\n"))))
		}, Silent, "it answered without a cosignature by its key"},
		"nothing": {func(*witnessstub.Witness) http.HandlerFunc { return answer(200, "") }, Silent, "it answered without a cosignature by its key"},
		"no text": {func(*witnessstub.Witness) http.HandlerFunc { return answer(200, "\xff\xfe\x00\n") }, Silent, "it answered without a cosignature by its key"},
		"far too much": {func(*witnessstub.Witness) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				for range 1000 {
					if _, err := w.Write(bytes.Repeat([]byte("x"), 10_000)); err != nil {
						return
					}
				}
			}
		}, Silent, "it answered with more than 65536 bytes"},
		"a failure":   {func(*witnessstub.Witness) http.HandlerFunc { return answer(500, "oops") }, Silent, "it answered 500"},
		"busy":        {func(*witnessstub.Witness) http.HandlerFunc { return answer(503, "") }, Silent, "it answered 503"},
		"unknown log": {func(*witnessstub.Witness) http.HandlerFunc { return answer(404, "unknown log") }, Silent, "it does not know the log ledger.test/default: its operator is to add it"},
		"unknown key": {func(*witnessstub.Witness) http.HandlerFunc { return answer(403, "") }, Silent, "it does not know the key that signs the log ledger.test/default: its operator is to add it"},
		"another place": {func(w *witnessstub.Witness) http.HandlerFunc {
			return http.RedirectHandler(w.URL+"/add-checkpoint", http.StatusTemporaryRedirect).ServeHTTP
		}, Silent, "it answered 307"},
		"hangs up": {func(*witnessstub.Witness) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		}, Silent, "it cannot be reached"},
		"a conflict without a size": {func(*witnessstub.Witness) http.HandlerFunc { return answer(409, "no") }, Silent, "it answered 409 without a size that it knows"},
		"a negative size":           {func(*witnessstub.Witness) http.HandlerFunc { return answer(409, "-1\n") }, Silent, "it answered 409 without a size that it knows"},
		"no size at all":            {func(*witnessstub.Witness) http.HandlerFunc { return answer(409, "99999999999999999999\n") }, Silent, "it answered 409 without a size that it knows"},
		"the size it was asked from": {func(*witnessstub.Witness) http.HandlerFunc {
			return answer(409, "0\n")
		}, Silent, "it answered 409 without a size that it knows"},
		"another size each time": {func(*witnessstub.Witness) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) { n++; answer(409, fmt.Sprint(1+n%5, "\n"))(w, r) }
		}, Silent, "it says another size each time that it is asked"},
		"more than there is": {func(*witnessstub.Witness) http.HandlerFunc { return answer(409, "9000000000000000000\n") }, Contradicts, "has cosigned 9000000000000000000 events of this log"},
		"other events": {func(*witnessstub.Witness) http.HandlerFunc {
			return func(w http.ResponseWriter, r *http.Request) {
				if n++; n%2 == 0 {
					answer(409, "3\n")(w, r)
				} else {
					answer(422, "")(w, r)
				}
			}
		}, Contradicts, "has cosigned other events as the first 3 of this log"},
		"a bad proof of nothing": {func(*witnessstub.Witness) http.HandlerFunc { return answer(422, "") }, Silent, "it refused the proof, which is empty"},
	} {
		t.Run(what, func(t *testing.T) {
			f := newFleet(t)
			w := f.witness(t, "w.test")
			n = 1
			w.Misbehave(c.answers(w))
			col := f.collector(t, 1, w)
			head := f.head()
			col.Ask(t.Context())
			s := col.Status()[0]
			if f.head() != head || s.State != c.state || !strings.Contains(s.Fault, c.fault) || s.Size != 0 {
				t.Errorf("%d events were recorded; %+v", f.head()-head, s)
			}
			_, against := errors.AsType[*commands.ContradictedError](f.act("more"))
			if against != (c.state == Contradicts) {
				t.Errorf("an append is refused: %t", against)
			}
			asked := w.Asked()
			col.look(t.Context())
			if w.Asked() != asked {
				t.Error("it is asked again without a pause")
			}
			w.Misbehave(nil)
			col.ready()
			col.look(t.Context())
			if s := col.Status()[0]; s.State != Agrees || s.Fault != "" {
				t.Errorf("and then: %+v", s)
			}
			f.grow(t, "more")
		})
	}
}

// TestSlowWitness: one that never answers holds up neither appends nor the others, and
// is not asked again before it has answered.
func TestSlowWitness(t *testing.T) {
	f := newFleet(t)
	quick, slow := f.witness(t, "quick.test"), f.witness(t, "slow.test")
	gone := make(chan struct{})
	slow.Misbehave(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = http.MaxBytesReader(nil, r.Body, 1<<20).Read(make([]byte, 1<<16)) // so that its end is seen
		select {
		case <-r.Context().Done():
		case <-gone:
		}
	})
	t.Cleanup(func() { close(gone) })
	col := f.collector(t, 1, quick, slow)
	col.Ask(t.Context())
	if by, _ := f.recorded(t, quick, slow); by != "quick.test" {
		t.Errorf("%q cosigned", by)
	}
	for i := range 3 {
		f.grow(t, fmt.Sprint("more ", i))
		col.look(t.Context())
	}
	if by, n := f.recorded(t, quick, slow); by != "quick.test" || n+1 != int64(f.head()) || slow.Asked() != 1 {
		t.Errorf("%q cosigned %d of %d; the slow one was asked %d times", by, n, f.head(), slow.Asked())
	}
	// With nobody else, a start does not wait for ever.
	alone := f.collector(t, 1, slow)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	alone.Ask(ctx)
	f.grow(t, "served")
}

// TestRolledBack: a log that is older than what a witness has cosigned, or another,
// takes nothing; the right one does.
func TestRolledBack(t *testing.T) {
	texts := []string{"one", "two", "three", "four", "five", "six"}
	whole := newFleet(t)
	w := whole.witness(t, "w.test")
	whole.grow(t, texts...)
	col := whole.collector(t, 1, w)
	col.Ask(t.Context())
	known := uint64(w.Known(origin))

	older := newFleet(t)
	older.grow(t, texts[:3]...)
	size := uint64(older.head())
	// The second has gone on since, otherwise; the third to the same size.
	forked, same := newFleet(t), newFleet(t)
	forked.grow(t, append([]string{"another"}, texts...)...)
	forked.grow(t, "more", "and more")
	same.grow(t, append([]string{"another"}, texts[1:]...)...)
	for what, c := range map[string]struct {
		*fleet
		want commands.ContradictedError
	}{
		"an older copy":                {older, commands.ContradictedError{Witness: "w.test", Known: known, Size: size}},
		"another log":                  {forked, commands.ContradictedError{Witness: "w.test", Known: known, Size: uint64(forked.head())}},
		"another log of the same size": {same, commands.ContradictedError{Witness: "w.test", Known: known, Size: known}},
	} {
		t.Run(what, func(t *testing.T) {
			if what == "another log of the same size" && uint64(same.head()) != known {
				t.Fatalf("it has %d events, not %d", same.head(), known)
			}
			head := c.head()
			col := c.collector(t, 1, w)
			col.Ask(t.Context())
			e, ok := errors.AsType[*commands.ContradictedError](c.act("more"))
			if !ok || *e != c.want || c.head() != head {
				t.Errorf("%+v, not %+v", e, c.want)
			}
			if err := c.RootHeads(t.Context()); err == nil {
				t.Error("the relay records a root")
			}
			// Reads go on, and so do the questions.
			if _, err := c.Records(t.Context(), 1, head); err != nil {
				t.Error(err)
			}
			col.ready()
			col.look(t.Context())
			if s := col.Status()[0]; s.State != Contradicts || c.Degraded() == nil {
				t.Errorf("%+v", s)
			}
		})
	}
	if uint64(w.Known(origin)) != known {
		t.Errorf("the witness has cosigned %d events since", w.Known(origin))
	}
	// A copy that nobody serves yet is held to it as well.
	if err := Check(t.Context(), named(t, w), older.sealer); !errors.As(err, new(*commands.ContradictedError)) {
		t.Errorf("an older copy: %v", err)
	}
	if err := Check(t.Context(), named(t, w), whole.sealer); err != nil {
		t.Errorf("the newest copy: %v", err)
	}
	if err := Check(t.Context(), named(t, down(t, "down.test")), whole.sealer); err == nil || errors.As(err, new(*commands.ContradictedError)) {
		t.Errorf("nobody answers: %v", err)
	}
	whole.grow(t, "seven")
	col.look(t.Context())
	if _, n := whole.recorded(t, w); n != w.Known(origin) || uint64(n) <= known {
		t.Errorf("the right one: %d recorded, %d known", n, w.Known(origin))
	}
}
