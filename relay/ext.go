package relay

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
)

// cloudEvent is an agent's own event as it is sent: CloudEvents 1.0 in JSON.
type cloudEvent struct {
	SpecVersion     string         `json:"specversion" enum:"1.0"`
	ID              string         `json:"id" doc:"Unique in the fleet: the same event sent twice is recorded once."`
	Source          string         `json:"source" format:"uri-reference"`
	Type            string         `json:"type" doc:"Starts with ext."`
	Subject         string         `json:"subject" doc:"The stream: starts with ext-"`
	Time            string         `json:"time,omitzero" format:"date-time"`
	DataContentType string         `json:"datacontenttype,omitzero"`
	DataSchema      string         `json:"dataschema,omitzero" format:"uri"`
	Data            jsontext.Value `json:"data,omitzero"`
	DataBase64      string         `json:"data_base64,omitzero"`
	Expected        givenRevision  `json:"expectedrevision,omitzero" doc:"The revision that the stream must be at: 409 REVISION_CONFLICT otherwise."`
	CorrelationID   string         `json:"correlationid,omitzero"`
	CausationID     string         `json:"causationid,omitzero"`

	extensions map[string]jsontext.Value
	_          struct{} `additionalProperties:"true"`
}

// givenRevision is a revision that may be left out; null does not stand for that.
type givenRevision struct {
	given    bool
	revision events.Revision
}

func (g *givenRevision) UnmarshalJSON(b []byte) error {
	n, err := strconv.ParseUint(string(b), 10, 64)
	if err != nil {
		return fmt.Errorf("%s is not a revision: write an integer from 0 on, without fraction, exponent or quotes", b)
	}
	*g = givenRevision{true, events.Revision(n)}
	return nil
}

// Schema implements huma.SchemaProvider.
func (givenRevision) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeInteger, Format: "int64", Minimum: new(float64)}
}

// reservedAttributes are those that the ledger adds where events are read.
var reservedAttributes = []string{"position", "revision", "actor", "erased"}

// appendBody is one event or a batch of them.
type appendBody struct {
	batch bool
	list  []commands.ExtEvent
}

func (b *appendBody) decodeBody(media string, raw []byte) error {
	b.batch = media == cloudEventBatchType
	if media != cloudEventType && !b.batch {
		b.batch = bytes.HasPrefix(bytes.TrimLeft(raw, " \t\r\n"), []byte("["))
	}
	if !b.batch {
		e, err := decodeCloudEvent(raw)
		if err != nil {
			return err
		}
		b.list = []commands.ExtEvent{e.event()}
		if problems := e.problems(""); problems != nil {
			return invalidFields(problems...)
		}
		return nil
	}
	list, err := decodeBatch(raw)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return invalidFields(events.Problem{Code: events.CodeRequired, Detail: "the batch is empty: send at least one event"})
	}
	var bad []events.Problem
	b.list = make([]commands.ExtEvent, len(list))
	for i := range list {
		b.list[i] = list[i].event()
		bad = append(bad, list[i].problems(fmt.Sprintf("/%d", i))...)
	}
	if bad != nil {
		return invalidFields(bad[:min(len(bad), events.MaxProblems)]...)
	}
	return nil
}

// decodeBatch reads a batch. The error is a *StrictError.
func decodeBatch(raw []byte) ([]cloudEvent, error) {
	var list []cloudEvent
	err := events.DecodeStrict(raw, &list)
	if err == nil {
		return list, nil
	}
	// Only events with extension attributes of their own are left.
	var members []jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return nil, err
	}
	list = make([]cloudEvent, len(members))
	for i, m := range members {
		if list[i], err = decodeCloudEvent(m); err != nil {
			strict, ok := errors.AsType[*events.StrictError](err)
			if !ok {
				return nil, err
			}
			for j := range strict.Problems {
				strict.Problems[j].Path = fmt.Sprintf("/%d%s", i, strict.Problems[j].Path)
			}
			return nil, strict
		}
	}
	return list, nil
}

// decodeCloudEvent reads one event. The error is a *StrictError.
func decodeCloudEvent(raw []byte) (cloudEvent, error) {
	var e cloudEvent
	err := events.DecodeStrict(raw, &e)
	if err == nil {
		return e, nil
	}
	known, extensions, badForm := splitExtensions(raw)
	if badForm != nil {
		return e, badForm
	}
	if extensions == nil {
		return e, err
	}
	e = cloudEvent{extensions: extensions}
	return e, events.DecodeStrict(known, &e)
}

func (e *cloudEvent) event() commands.ExtEvent {
	out := commands.ExtEvent{
		ID: e.ID, Type: events.Kind(e.Type), Stream: events.Stream(e.Subject), Correlation: e.CorrelationID, Causation: e.CausationID,
		Body: events.Ext{
			Source: e.Source, Time: e.Time, DataContentType: e.DataContentType, DataSchema: e.DataSchema,
			Data: e.Data, DataBase64: e.DataBase64, Extensions: e.extensions,
		},
	}
	if e.Expected.given {
		out.Expected = &e.Expected.revision
	}
	return out
}

// knownAttributes are the members that cloudEvent has.
var knownAttributes = func() (names []string) {
	t := reflect.TypeFor[cloudEvent]()
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "" {
			names = append(names, name)
		}
	}
	return names
}()

// splitExtensions takes the extension attributes out of an event: what is named
// like one (CloudEvents 1.0: lower-case letters and digits, at most 20) and is
// none of the known ones. extensions is nil if it has none. The error is a
// *StrictError, for what is no JSON object.
func splitExtensions(raw []byte) (known []byte, extensions map[string]jsontext.Value, err error) {
	var members map[string]jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return nil, nil, err
	}
	for name, value := range members {
		if slices.Contains(knownAttributes, name) || !extensionName(name) {
			continue
		}
		if extensions == nil {
			extensions = map[string]jsontext.Value{}
		}
		extensions[name] = value
		delete(members, name)
	}
	known, err = json.Marshal(members, json.Deterministic(true))
	return known, extensions, err
}

func extensionName(s string) bool {
	return s != "" && len(s) <= 20 && !strings.ContainsFunc(s, func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') })
}

// problems are those that CloudEvents 1.0 finds with an event of the right form,
// which lies at path in the body.
func (e *cloudEvent) problems(path string) (list []events.Problem) {
	bad := func(name, code, format string, args ...any) {
		list = append(list, events.Problem{Path: path + "/" + name, Code: code, Detail: fmt.Sprintf(format, args...)})
	}
	if e.SpecVersion != "1.0" {
		bad("specversion", events.CodeInvalid, "is %+q: this relay reads \"1.0\"", e.SpecVersion)
	}
	for _, a := range []struct{ name, value string }{{"id", e.ID}, {"source", e.Source}, {"type", e.Type}, {"subject", e.Subject}} {
		if a.value == "" {
			bad(a.name, events.CodeRequired, "is empty")
		}
	}
	if !plainPath(e.Source) {
		if _, err := url.Parse(e.Source); err != nil {
			bad("source", events.CodeInvalid, "is no URI reference")
		}
	}
	if e.Time != "" {
		if _, err := time.Parse(time.RFC3339Nano, e.Time); err != nil {
			bad("time", events.CodeInvalid, "is no time in RFC 3339")
		}
	}
	if e.DataContentType != "" && e.DataContentType != "application/json" {
		if _, _, err := mime.ParseMediaType(e.DataContentType); err != nil {
			bad("datacontenttype", events.CodeInvalid, "is no media type")
		}
	}
	if e.DataSchema != "" {
		if u, err := url.Parse(e.DataSchema); err != nil || !u.IsAbs() {
			bad("dataschema", events.CodeInvalid, "is no URI")
		}
	}
	if e.DataBase64 != "" {
		if e.Data != nil {
			bad("data_base64", events.CodeInvalid, "stands beside data: an event has one of them")
		}
		if _, err := base64.StdEncoding.Strict().DecodeString(e.DataBase64); err != nil {
			bad("data_base64", events.CodeInvalid, "is no base 64")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(e.extensions)) {
		switch value := e.extensions[name]; {
		case slices.Contains(reservedAttributes, name):
			bad(name, "RESERVED", "is set by the ledger, where the event is read: leave it out")
		case value.Kind() == '"', value.Kind() == 't', value.Kind() == 'f':
		case value.Kind() == '0' && !bytes.ContainsAny(value, ".eE"):
		default:
			bad(name, events.CodeWrongType, "an extension attribute is a text, an integer, true or false")
		}
	}
	return list
}

// plainPath reports whether s is a path that needs no parsing to be a URI reference.
func plainPath(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '/', c == '-', c == '.', c == '_':
		default:
			return false
		}
	}
	return true
}

type appendReply struct {
	Receipt  *receipt  `json:"receipt,omitzero" doc:"For one event."`
	Receipts []receipt `json:"receipts,omitzero" doc:"For a batch, in its order."`
}

func (c *call) appendEvents(in appendBody) (appendReply, error) {
	if n, limit := len(in.list), c.ledger.State().Settings().BatchEvents; n > limit {
		return appendReply{}, &problem{status: http.StatusRequestEntityTooLarge, code: "BATCH_TOO_LARGE",
			detail: fmt.Sprintf("%d events, at most %d are taken at once; send them in parts", n, limit),
			facts:  facts{"limit": limit, "actual": n}}
	}
	res, err := c.ledger.AppendExt(c.ctx(), c.caller, in.list)
	if err != nil {
		return appendReply{}, withReceipt(res, err)
	}
	if err := waitingIn(res); err != nil {
		return appendReply{}, err
	}
	receipts := make([]receipt, len(in.list))
	for i := range receipts {
		receipts[i] = receiptOf(res.Records[i])
	}
	if in.batch {
		return appendReply{Receipts: receipts}, nil
	}
	return appendReply{Receipt: &receipts[0]}, nil
}
