package relay

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"mime"
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

// decodeBatch reads a batch. The error is a *StrictError.
func decodeBatch(raw []byte) ([]cloudEvent, error) {
	const usual = 512 // bytes of an event: a guess that spares most of the growing
	list := make([]cloudEvent, 0, min(1+len(raw)/usual, events.MaxAppendEvents))
	if events.ScanStrict[[]cloudEvent](raw, func(i int, name []byte, value jsontext.Value) bool {
		if i == len(list) {
			list = append(list, cloudEvent{})
		}
		return list[i].set(name, value, &list[max(0, i-1)])
	}) {
		return list, nil
	}
	// Something is wrong: event by event, as each may have attributes of its own.
	var members []jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return nil, err
	}
	list = make([]cloudEvent, len(members))
	for i, m := range members {
		var err error
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
	if events.ScanStrict[cloudEvent](raw, func(_ int, name []byte, value jsontext.Value) bool {
		return e.set(name, value, &e)
	}) {
		return e, nil
	}
	return decodeByFields(raw)
}

// decodeByFields is decodeCloudEvent by reflection, which knows what is wrong.
func decodeByFields(raw []byte) (e cloudEvent, err error) {
	known, extensions, err := splitExtensions(raw)
	if err != nil {
		return e, err
	}
	if extensions == nil {
		known = raw
	}
	e.extensions = extensions
	return e, events.DecodeStrict(known, &e)
}

// set sets a member to value, which is right for its type and shared by the event.
// before is the event before it, which mostly has the same texts. It returns false for
// what is no member.
func (e *cloudEvent) set(name []byte, value jsontext.Value, before *cloudEvent) bool {
	switch text := e.text(name); {
	case text != nil:
		*text = textOf(value, *before.text(name))
	case string(name) == "data":
		e.Data = value
	case string(name) == "expectedrevision":
		return e.Expected.UnmarshalJSON(value) == nil
	case !extensionName(string(name)):
		return false
	default:
		if e.extensions == nil {
			e.extensions = map[string]jsontext.Value{}
		}
		e.extensions[string(name)] = value
	}
	return true
}

// text is the member of that name if it is a text, nil if it is not.
func (e *cloudEvent) text(name []byte) *string {
	switch string(name) {
	case "specversion":
		return &e.SpecVersion
	case "id":
		return &e.ID
	case "source":
		return &e.Source
	case "type":
		return &e.Type
	case "subject":
		return &e.Subject
	case "time":
		return &e.Time
	case "datacontenttype":
		return &e.DataContentType
	case "dataschema":
		return &e.DataSchema
	case "data_base64":
		return &e.DataBase64
	case "correlationid":
		return &e.CorrelationID
	case "causationid":
		return &e.CausationID
	}
	return nil
}

// textOf is what a JSON text says; the string same, if that is it.
func textOf(value jsontext.Value, same string) string {
	inner := value[1 : len(value)-1]
	if bytes.IndexByte(inner, '\\') >= 0 {
		unquoted, _ := jsontext.AppendUnquote(nil, value) // never fails: value is JSON
		return string(unquoted)
	}
	if string(inner) == same {
		return same
	}
	return string(inner)
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

// problems are those that CloudEvents 1.0 finds with an event of the right form.
func (e *cloudEvent) problems() (list []events.Problem) {
	bad := func(name, code, format string, args ...any) {
		list = append(list, events.Problem{Path: "/" + name, Code: code, Detail: fmt.Sprintf(format, args...)})
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
	if e.extensions == nil {
		return list
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
