package relay

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"net/http"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
	"fleetledger/projections/sqlview"
)

type sqlBody struct {
	Query  string           `json:"query" doc:"One statement that reads: SELECT, VALUES or WITH, in the language of SQLite. Its tables: SELECT name, sql FROM sqlite_schema."`
	Params []jsontext.Value `json:"params,omitzero" doc:"What the query's ? stand for, in their order, as many as there are: texts, numbers, booleans, null."`
	Limit  *int             `json:"limit,omitzero" minimum:"1" maximum:"10000" nullable:"true" doc:"At most so many rows; 1,000 if absent."`
	// IncludeForgotten is as the parameter of other paths.
	IncludeForgotten bool `json:"include_forgotten,omitzero" doc:"With true, runs and series also have what the caller, or everybody, has forgotten."`
}

type sqlReply struct {
	Columns     []string        `json:"columns"`
	Rows        [][]any         `json:"rows" doc:"Each a list in the order of columns. A blob is a text in base64."`
	TruncatedBy string          `json:"truncated_by,omitzero" enum:"rows,bytes" doc:"Absent if these are all rows."`
	Forgotten   string          `json:"forgotten,omitzero" enum:"left_out,included" doc:"Whether runs and series lack runs that were forgotten; absent if none were."`
	Position    events.Position `json:"position" doc:"Everything up to here was looked at."`
}

// sqlStatus is the status of each refusal of a query.
var sqlStatus = map[string]int{
	sqlview.SQLInvalid:      http.StatusBadRequest,
	sqlview.SQLOneStatement: http.StatusBadRequest,
	sqlview.SQLNotReadOnly:  http.StatusUnprocessableEntity,
	sqlview.SQLForbidden:    http.StatusUnprocessableEntity,
	sqlview.SQLTooSlow:      http.StatusUnprocessableEntity,
	sqlview.SQLTooBig:       http.StatusRequestEntityTooLarge,
	sqlview.SQLBusy:         http.StatusTooManyRequests,
}

func (c *call) sql(in sqlBody) (sqlReply, error) {
	limit := sqlview.AskDefaultRows
	if in.Limit != nil {
		limit = *in.Limit
	}
	if limit < 1 || limit > sqlview.AskRows {
		return sqlReply{}, malformed("LIMIT_OUT_OF_RANGE", "limit is %d: it is an integer from 1 to %d", limit, sqlview.AskRows).with("limit", sqlview.AskRows)
	}
	params, err := sqlParams(in.Params)
	if err != nil {
		return sqlReply{}, err
	}
	reader, forgotten := c.token.Actor, ""
	if in.IncludeForgotten {
		reader, forgotten = "", "included"
	}
	t, err := c.view().Ask(c.ctx(), in.Query, params, limit, reader)
	if q, ok := errors.AsType[*sqlview.QueryError](err); ok {
		p := &problem{status: sqlStatus[q.Code], code: q.Code, detail: q.Detail}
		switch q.Code {
		case sqlview.SQLBusy:
			p.with("retry_after_s", 1)
		case sqlview.SQLTooSlow:
			p.with("limit_ms", sqlview.AskTime.Milliseconds())
		}
		return sqlReply{}, p
	}
	if err != nil {
		return sqlReply{}, c.viewError(err)
	}
	if t.LeftOut {
		forgotten = "left_out"
	}
	out := sqlReply{Columns: t.Columns, Rows: t.Rows, TruncatedBy: t.Cut, Forgotten: forgotten, Position: c.folded}
	for _, row := range out.Rows {
		for i, v := range row {
			if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
				row[i] = nil // JSON has no such number
			}
		}
	}
	return out, nil
}

func sqlParams(raw []jsontext.Value) ([]any, error) {
	if len(raw) > sqlview.AskParams {
		return nil, malformed("INVALID_FIELDS", "%d params, at most %d are taken", len(raw), sqlview.AskParams).with("limit", sqlview.AskParams)
	}
	out := make([]any, len(raw))
	for i, v := range raw {
		var err error
		switch v.Kind() {
		case 'n':
		case 't', 'f':
			out[i] = v.Kind() == 't'
		case '"':
			var s string
			err = json.Unmarshal(v, &s)
			out[i] = s
		case '0':
			var n int64
			if json.Unmarshal(v, &n) == nil {
				out[i] = n
				break
			}
			if !bytes.ContainsAny(v, ".eE") {
				return nil, invalidFields(events.Problem{Path: fmt.Sprintf("/params/%d", i), Code: events.CodeOutOfRange, Detail: "the integer is beyond 64 bits; write it as a text, or with a fraction"})
			}
			var f float64
			err = json.Unmarshal(v, &f)
			out[i] = f
		default:
			err = errors.New("a list or an object is no value")
		}
		if err != nil {
			return nil, invalidFields(events.Problem{Path: fmt.Sprintf("/params/%d", i), Code: events.CodeWrongType, Detail: "it is a text, a number, a boolean or null"})
		}
	}
	return out, nil
}

// viewReply says how the view stands that answers memory, conclusions, tried and sql.
type viewReply struct {
	Position   events.Position `json:"position" doc:"Of the last event that the view has folded."`
	Head       events.Position `json:"head" doc:"Of the newest event."`
	BehindMS   int64           `json:"behind_ms" doc:"How long ago the last event folded was recorded; 0 if there is none to fold."`
	Fault      *string         `json:"fault" doc:"What keeps it from following, or from being made again; null if nothing does."`
	Rebuilding bool            `json:"rebuilding" doc:"Whether it is made again, beside the one that answers."`
	Rebuilt    events.Position `json:"rebuilt" doc:"How far that is."`
	Rebuilds   int             `json:"rebuilds" doc:"How often it was made since the relay started."`
	Parked     []parkedReply   `json:"parked" doc:"Events that could not be folded; the newest, at most 100."`
}

type parkedReply struct {
	Position events.Position `json:"position"`
	Type     events.Kind     `json:"type"`
	Stream   events.Stream   `json:"stream"`
	Error    string          `json:"error"`
}

func (c *call) getView() (viewReply, error) {
	if c.view() == nil {
		return viewReply{}, c.awaitView()
	}
	s := c.view().Status()
	out := viewReply{Position: s.Position, Head: s.Head, BehindMS: s.Behind.Milliseconds(), Fault: orNull(s.Fault),
		Rebuilding: s.Rebuilding, Rebuilt: s.Rebuilt, Rebuilds: s.Rebuilds, Parked: []parkedReply{}}
	if s.Parked == 0 {
		return out, nil
	}
	list, err := c.view().Parked(c.ctx(), 100)
	if err != nil {
		return out, c.viewError(err)
	}
	for _, p := range list {
		out.Parked = append(out.Parked, parkedReply(p))
	}
	return out, nil
}

func (c *call) rebuildView(none) (viewReply, error) {
	if c.view() == nil {
		return viewReply{}, c.awaitView()
	}
	c.view().Rebuild(c.token.Actor + " asks for it")
	return c.getView()
}
