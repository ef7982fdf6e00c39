package events

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// extKind stands for every "ext." kind in the list of decoders.
const extKind Kind = "ext.*"

// Ext is an agent's own event: the members of its CloudEvent that the header
// does not carry (CloudEvents 1.0), and the gate's decision.
type Ext struct {
	Source          string         `json:"source"`
	Time            string         `json:"time,omitzero"`
	DataContentType string         `json:"datacontenttype,omitzero"`
	DataSchema      string         `json:"dataschema,omitzero"`
	Data            jsontext.Value `json:"data,omitzero"`
	DataBase64      string         `json:"data_base64,omitzero"`
	// Extensions are the CloudEvent's extension attributes that the ledger gives
	// no meaning to, each a text, an integer or a boolean.
	Extensions map[string]jsontext.Value `json:"extensions,omitzero"`
	Permit     Permit                    `json:"permit"`
}

// Kind is a stand-in: the header of an agent's event names its own.
func (Ext) Kind() Kind { return extKind }

// Encode is what the function Encode returns for x with the permit that is given
// encoded, several times faster: most of what is recorded comes through here.
func (x Ext) Encode(permit jsontext.Value) ([]byte, error) {
	e := extEncoder{b: make([]byte, 0, 160+len(x.Source)+len(x.Time)+len(x.DataContentType)+len(x.DataSchema)+len(x.Data)+len(x.DataBase64)+len(permit))}
	e.text(`{"source":`, x.Source)
	for _, m := range [...]struct{ name, value string }{
		{`,"time":`, x.Time}, {`,"datacontenttype":`, x.DataContentType}, {`,"dataschema":`, x.DataSchema},
	} {
		if m.value != "" {
			e.text(m.name, m.value)
		}
	}
	if x.Data != nil {
		e.value(`,"data":`, x.Data)
	}
	if x.DataBase64 != "" {
		e.text(`,"data_base64":`, x.DataBase64)
	}
	if x.Extensions != nil {
		extensions, err := json.Marshal(x.Extensions, json.Deterministic(true))
		e.fail(err)
		e.b = append(append(e.b, `,"extensions":`...), extensions...)
	}
	e.b = append(append(append(e.b, `,"permit":`...), permit...), '}')
	if e.err != nil {
		return nil, fmt.Errorf("encode an agent's event: %w", e.err)
	}
	return e.b, nil
}

// extEncoder appends members; err is the first that went wrong.
type extEncoder struct {
	b   []byte
	err error
}

func (e *extEncoder) fail(err error) {
	if e.err == nil {
		e.err = err
	}
}

func (e *extEncoder) text(name, value string) {
	var err error
	e.b, err = jsontext.AppendQuote(append(e.b, name...), value)
	e.fail(err)
}

func (e *extEncoder) value(name string, value jsontext.Value) {
	var err error
	e.b, err = jsontext.AppendFormat(append(e.b, name...), value)
	e.fail(err)
}
