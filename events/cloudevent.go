package events

import "github.com/go-json-experiment/json/jsontext"

// CloudEvent is a record as other systems read it: CloudEvents 1.0, to be written
// in its JSON format. An agent's own event is what its CloudEvent said; of the
// ledger's kinds data is the payload, and the source is the fleet. Extensions are
// position, revision and actor, and correlationid and causationid where there are
// any. Once the payload was erased there is no data, and the extension erased.
func CloudEvent(r Record) (map[string]any, error) {
	h := r.Header
	out := map[string]any{
		"specversion": "1.0", "id": h.ID, "type": h.Type, "subject": h.Stream, "time": h.Time.Format(TimeLayout),
		"source": "/fleets/" + h.Fleet, "position": h.Position, "revision": h.Revision, "actor": h.Actor,
	}
	set := func(name, value string) {
		if value != "" {
			out[name] = value
		}
	}
	set("correlationid", h.Correlation)
	set("causationid", h.Causation)
	if r.Erased {
		out["erased"] = true
		return out, nil
	}
	if !h.Type.IsExt() {
		out["data"] = jsontext.Value(r.Payload)
		return out, nil
	}
	e, err := DecodeAs[Ext](r)
	if err != nil {
		return nil, err
	}
	for name, value := range e.Extensions {
		out[name] = value
	}
	set("source", e.Source)
	set("time", e.Time)
	set("datacontenttype", e.DataContentType)
	set("dataschema", e.DataSchema)
	set("data_base64", e.DataBase64)
	if e.Data != nil {
		out["data"] = e.Data
	}
	return out, nil
}
