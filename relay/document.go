package relay

import (
	"bytes"
	"html/template"
	"net/http"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// document is the OpenAPI 3.1 document, made by huma of the operations and of the
// Go types that their handlers take and give. Requests do not pass through huma:
// its own reading of bodies and parameters would answer otherwise than the
// contract has it.
type document struct {
	api  *huma.OpenAPI
	json []byte
	html func() ([]byte, error) // rendered when first asked for
}

func newDocument(version string) *document {
	schemas := huma.NewMapRegistry("#/components/schemas/", huma.DefaultSchemaNamer)
	schemas.RegisterTypeAlias(reflect.TypeFor[jsontext.Value](), reflect.TypeFor[any]())
	return &document{api: &huma.OpenAPI{
		OpenAPI: "3.1.0",
		Info: &huma.Info{Title: "fleetledger", Version: version,
			Description: "The append-only record of a fleet. Every answer carries the header Ledger-Position; every error is a problem document (RFC 9457) with a stable code."},
		Components: &huma.Components{
			Schemas: schemas,
			SecuritySchemes: map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer",
				Description: "Names fleet and actor."},
				"device": {Type: "http", Scheme: "DPoP", Description: signingGuide}},
		},
		Security: []map[string][]string{{"token": {}}, {"device": {}}},
		Tags: []*huma.Tag{{Name: "actors"}, {Name: "rules"}, {Name: "gates"}, {Name: "approvals"}, {Name: "tasks"}, {Name: "attempts"},
			{Name: "memory"}, {Name: "blocks"}, {Name: "events"}, {Name: "subscriptions"}, {Name: "proofs"}, {Name: "ledger"}, {Name: "relay"}},
	}}
}

var (
	pathVariable     = regexp.MustCompile(`\{(\w+)\}`)
	idempotencyParam = &huma.Param{Name: "Idempotency-Key", In: "header", Schema: &huma.Schema{Type: "string", Format: "uuid"},
		Description: "The same key and body is carried out once and answered the same for ever."}
	approvalParam = &huma.Param{Name: "Approval-Id", In: "header", Schema: &huma.Schema{Type: "string"},
		Description: "A granted approval of this very request, which it spends."}
	ifMatchParam = &huma.Param{Name: "If-Match", In: "header", Schema: &huma.Schema{Type: "string"},
		Description: "The revision that was seen, in quotes: if it is another by now, 409."}
	lastEventParam = &huma.Param{Name: "Last-Event-ID", In: "header", Schema: &huma.Schema{Type: "integer"},
		Description: "The position to go on after."}
	positionHeader = map[string]*huma.Param{"Ledger-Position": {Schema: &huma.Schema{Type: "integer", Format: "int64"},
		Description: "The newest position of the fleet."}}
)

// add tells of an operation.
func (d *document) add(op *operation) {
	path := op.path
	if op.rest != "" {
		path = strings.TrimSuffix(path, "*") + "{" + op.rest + "}"
	}
	o := &huma.Operation{
		OperationID: op.id, Method: op.method, Path: path, Summary: op.summary, Description: op.about, Tags: []string{op.tag},
		Responses: map[string]*huma.Response{},
	}
	if op.open {
		o.Security = []map[string][]string{{}}
	}
	for _, m := range pathVariable.FindAllStringSubmatch(path, -1) {
		o.Parameters = append(o.Parameters, &huma.Param{Name: m[1], In: "path", Required: true, Schema: &huma.Schema{Type: "string"}})
	}
	for _, p := range op.query {
		o.Parameters = append(o.Parameters, p.document())
	}
	stream := slices.Contains(op.media, "text/event-stream")
	if stream {
		o.Parameters = append(o.Parameters, lastEventParam)
	}
	if op.in != nil {
		o.Parameters = append(o.Parameters, idempotencyParam)
		if op.waits {
			o.Parameters = append(o.Parameters, approvalParam)
		}
		if op.conditional {
			o.Parameters = append(o.Parameters, ifMatchParam)
		}
		if op.in != reflect.TypeFor[none]() {
			o.RequestBody = &huma.RequestBody{Required: !op.bodyless, Content: d.body(op)}
		}
	}
	status := op.status
	if status == 0 {
		status = http.StatusOK
	}
	media := "application/json"
	if op.in == nil && len(op.media) > 0 {
		media = op.media[0]
	}
	success := &huma.MediaType{}
	if op.out != nil {
		success.Schema = d.schema(op.out)
	}
	o.Responses[strconv.Itoa(status)] = response(status, media, success)
	if op.text != "" {
		o.Responses[strconv.Itoa(status)].Content[op.text] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
	}
	switch op.out { // an agent's own event can be had as it was sent
	case reflect.TypeFor[eventReply]():
		if !stream {
			o.Responses["200"].Content[cloudEventType] = &huma.MediaType{Schema: d.schema(reflect.TypeFor[cloudEvent]())}
		}
	case reflect.TypeFor[list[eventReply]]():
		o.Responses["200"].Content[cloudEventBatchType] = &huma.MediaType{Schema: &huma.Schema{Type: "array", Items: d.schema(reflect.TypeFor[cloudEvent]())}}
	}
	if op.already {
		o.Responses["200"] = response(http.StatusOK, media, success)
	}
	if _, ok := reflect.Zero(typeOr(op.out)).Interface().(submitReply); ok {
		o.Responses["202"] = response(http.StatusAccepted, media, success)
	} else if op.waits {
		o.Responses["202"] = response(http.StatusAccepted, media, &huma.MediaType{Schema: d.schema(reflect.TypeFor[waitingReply]())})
	}
	o.Responses["default"] = &huma.Response{Description: "A problem: see its code.", Headers: positionHeader,
		Content: map[string]*huma.MediaType{"application/problem+json": {Schema: d.schema(reflect.TypeFor[problemReply]())}}}
	d.api.AddOperation(o)
}

func typeOr(t reflect.Type) reflect.Type {
	if t == nil {
		return reflect.TypeFor[none]()
	}
	return t
}

func response(status int, media string, content *huma.MediaType) *huma.Response {
	return &huma.Response{Description: http.StatusText(status), Headers: positionHeader, Content: map[string]*huma.MediaType{media: content}}
}

// body is the content of an operation's body, by media type.
func (d *document) body(op *operation) map[string]*huma.MediaType {
	if op.in != reflect.TypeFor[appendBody]() {
		return map[string]*huma.MediaType{"application/json": {Schema: d.schema(op.in)}}
	}
	one := d.schema(reflect.TypeFor[cloudEvent]())
	least, most := 1, events.MaxAppendEvents
	batch := &huma.Schema{Type: "array", Items: one, MinItems: &least, MaxItems: &most}
	return map[string]*huma.MediaType{
		cloudEventType:      {Schema: one},
		cloudEventBatchType: {Schema: batch},
		"application/json":  {Schema: &huma.Schema{OneOf: []*huma.Schema{one, batch}}},
	}
}

func (p param) document() *huma.Param {
	s := &huma.Schema{Type: "string"}
	if p.integer {
		least, most := float64(p.least), float64(p.most)
		s = &huma.Schema{Type: "integer", Format: "int64", Minimum: &least}
		if p.most > 0 {
			s.Maximum = &most
		}
	}
	for _, v := range p.values {
		s.Enum = append(s.Enum, v)
	}
	if p.repeated {
		s = &huma.Schema{Type: "array", Items: s}
	}
	return &huma.Param{Name: p.name, In: "query", Description: p.about, Schema: s}
}

func (d *document) schema(t reflect.Type) *huma.Schema {
	return d.api.Components.Schemas.Schema(t, true, t.Name())
}

// finish writes the document, once every operation is told of.
func (d *document) finish() {
	schemas := d.api.Components.Schemas
	for name, s := range schemas.Map() {
		d.correct(schemas.TypeFromRef("#/components/schemas/"+name), s)
	}
	// Members that are not fields: the facts of a problem.
	schemas.Map()["ProblemReply"].AdditionalProperties = true
	raw, err := json.Marshal(d.api)
	if err == nil {
		v := jsontext.Value(raw)
		err = v.Canonicalize()
		d.json = append(v, '\n')
	}
	if err != nil {
		panic("bug: the OpenAPI document does not encode: " + err.Error())
	}
	d.html = sync.OnceValues(func() ([]byte, error) {
		var page bytes.Buffer
		err := docsPage.Execute(&page, d.api)
		return page.Bytes(), err
	})
}

// correct mends what huma takes to be null: lists are not, here and where they are
// taken, nor is what is left out instead; members that are pointers to objects, and
// always there, may be, and so may an enum that is.
func (d *document) correct(t reflect.Type, s *huma.Schema) {
	for _, p := range s.Properties {
		for ; p != nil && p.Type == huma.TypeArray; p = p.Items {
			p.Nullable = false
		}
	}
	for _, f := range reflect.VisibleFields(t) { // those of embedded structs too
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		p := s.Properties[name]
		if f.Type.Kind() != reflect.Pointer || p == nil {
			continue
		}
		switch {
		case strings.Contains(options, "omitzero"):
			p.Nullable = f.Tag.Get("nullable") == "true"
		case p.Ref != "":
			s.Properties[name] = &huma.Schema{Description: p.Description, AnyOf: []*huma.Schema{{Ref: p.Ref}, {Type: "null"}}}
		case p.Nullable && p.Enum != nil:
			p.Enum = append(p.Enum, nil)
		}
	}
}

func (c *call) openAPI() error {
	c.sendBytes(http.StatusOK, "application/json", c.doc.json)
	return nil
}

func (c *call) docs() error {
	page, err := c.doc.html()
	if err != nil {
		return err
	}
	c.w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	c.sendBytes(http.StatusOK, "text/html; charset=utf-8", page)
	return nil
}

// docsPage needs nothing from elsewhere: a relay may stand where there is no
// network.
var docsPage = template.Must(template.New("docs").Funcs(template.FuncMap{
	"operations": func(p *huma.PathItem) map[string]*huma.Operation {
		all := map[string]*huma.Operation{"GET": p.Get, "POST": p.Post, "PUT": p.Put, "PATCH": p.Patch, "DELETE": p.Delete}
		for method, op := range all {
			if op == nil {
				delete(all, method)
			}
		}
		return all
	},
	"schema": func(s *huma.Schema) (string, error) {
		b, err := json.Marshal(s)
		if err != nil {
			return "", err
		}
		v := jsontext.Value(b)
		err = v.Indent(jsontext.WithIndent("  "))
		return string(v), err
	},
	"schemas": func(r huma.Registry) map[string]*huma.Schema { return r.Map() },
	"refname": func(s *huma.Schema) string {
		if s == nil {
			return ""
		}
		return strings.TrimPrefix(s.Ref, "#/components/schemas/")
	},
}).Parse(`<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{.Info.Title}} {{.Info.Version}}</title>
<style>
body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1b1f24;background:#fff}
h2{margin-top:2.5rem;font-size:1.1rem}code,pre{font-family:ui-monospace,monospace;font-size:.9em}
pre{background:#f4f5f7;padding:.75rem;overflow:auto}table{border-collapse:collapse;width:100%}
td,th{text-align:left;vertical-align:top;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #dde1e6}
@media (prefers-color-scheme:dark){body{background:#14171a;color:#e3e6ea}pre{background:#1f2428}td,th{border-color:#343a40}a{color:#8ab4f8}}
</style>
<h1>{{.Info.Title}} {{.Info.Version}}</h1>
<p>{{.Info.Description}} The same as OpenAPI 3.1: <a href="openapi.json"><code>GET /openapi.json</code></a>.</p>
{{range $path, $item := .Paths}}{{range $method, $op := operations $item}}
<h2 id="{{$op.OperationID}}"><code>{{$method}} {{$path}}</code></h2>
<p>{{$op.Summary}}.{{with $op.Description}} {{.}}{{end}}</p>
{{with $op.Parameters}}<table><tr><th>parameter<th>in<th>
{{range .}}<tr><td><code>{{.Name}}</code><td>{{.In}}<td>{{.Description}}
{{end}}</table>{{end}}
{{with $op.RequestBody}}{{range $media, $content := .Content}}<p>Takes <code>{{$media}}</code>{{with refname $content.Schema}}: <a href="#schema-{{.}}">{{.}}</a>{{end}}</p>
{{end}}{{end}}
{{range $status, $response := $op.Responses}}<p>{{$status}}: {{$response.Description}}{{range $media, $content := $response.Content}}, <code>{{$media}}</code>{{with refname $content.Schema}} <a href="#schema-{{.}}">{{.}}</a>{{end}}{{end}}</p>
{{end}}{{end}}{{end}}
<h1>Shapes</h1>
{{range $name, $schema := schemas .Components.Schemas}}<h2 id="schema-{{$name}}">{{$name}}</h2>
<pre>{{schema $schema}}</pre>
{{end}}</html>
`))
