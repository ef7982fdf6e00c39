package relay

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/commands/evidence"
	"fleetledger/events"
	"fleetledger/events/memlog"
	"fleetledger/events/seal"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is a relay with the fleets "default" and "other", each founded, in front
// of logs in memory. Every answer is held to the OpenAPI document; when the test
// ends, each log is audited.
type fleet struct {
	t      *testing.T
	relay  *Relay
	server *httptest.Server
	ledger *commands.Ledger // of default
	logged *lockedText
	client *http.Client
	skew   *atomic.Int64 // ns by which the clock is ahead
	// tokens are those of default's actors, and of "other:root".
	tokens map[string]string
	api    *openAPI
}

type lockedText struct {
	mu sync.Mutex
	strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Builder.String()
}

func randomness() commands.Random {
	return commands.Random{
		ID:    func() string { return uuid.Must(uuid.NewV7()).String() },
		Bytes: func(b []byte) { _, _ = rand.Read(b) }, // never fails
	}
}

// newView is the view of a log in memory.
func newView(t *testing.T, log events.Log) *sqlview.View {
	t.Helper()
	v, err := sqlview.Open(log, "", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Close(); err != nil {
			t.Errorf("close the view: %v", err)
		}
	})
	return v
}

func newFleet(t *testing.T, configure ...func(*Config)) *fleet {
	t.Helper()
	f := &fleet{t: t, tokens: map[string]string{}, logged: &lockedText{}, skew: &atomic.Int64{}}
	ledgers, seals, views := map[string]*commands.Ledger{}, map[string]*seal.Sealer{}, map[string]*sqlview.View{}
	for _, name := range []string{"default", "other"} {
		state := projections.NewState()
		log, err := memlog.New(memlog.Options{Fleet: name, Fold: state, Now: func() time.Time { return time.Now().Add(time.Duration(f.skew.Load())) }})
		if err != nil {
			t.Fatal(err)
		}
		ledgers[name] = commands.New(log, state, randomness())
		res, err := ledgers[name].Found(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		seals[name] = newSealer(t, ledgers[name], log, name)
		views[name] = newView(t, log)
		if name == "default" {
			f.tokens["root"], f.ledger = res.Secret, ledgers[name]
		} else {
			f.tokens["other:root"] = res.Secret
		}
	}
	cfg := Config{Version: "test", Seals: seals, Views: views, Logger: slog.New(slog.NewTextHandler(f.logged, nil)), PositionPatience: 20 * time.Second}
	for _, c := range configure {
		c(&cfg)
	}
	f.relay = New(ledgers, cfg)
	f.server = httptest.NewUnstartedServer(nil)
	f.server.Config = NewServer(f.relay.Handler())
	f.server.Config.ErrorLog = slog.NewLogLogger(cfg.Logger.Handler(), slog.LevelError)
	f.server.Start()
	f.client = f.server.Client()
	f.api = &openAPI{t: t}
	f.api.load(f.do("root", "GET", "/openapi.json", "").body)
	t.Cleanup(func() {
		f.relay.Drain()
		f.server.Close()
		for name, l := range ledgers {
			report, err := audit.Run(context.Background(), events.ReadStored(context.Background(), l.Log(), 0), audit.Options{Live: l})
			if err != nil && !errors.Is(err, events.ErrClosed) { // a test may close it
				t.Errorf("audit: %v", err)
			}
			for _, x := range report.Findings {
				t.Errorf("audit of %s: position %d: %s: %s", name, x.Position, x.Kind, x.Detail)
			}
			if s := seals[name]; s != nil && report.OK {
				checkEvidence(t, l, s)
			}
		}
		if s := f.logged.String(); s != "" {
			t.Errorf("the relay logged: %s", s)
		}
	})
	return f
}

// checkEvidence verifies the evidence of a ledger's first tasks.
func checkEvidence(t *testing.T, l *commands.Ledger, s *seal.Sealer) {
	ctx := context.Background()
	tasks := 0
	for r, err := range l.Log().ReadAll(ctx, 0) {
		if err != nil {
			t.Errorf("evidence: %v", err)
			return
		}
		if r.Header.Type != (events.TaskSubmitted{}).Kind() {
			continue
		}
		file, err := evidence.Export(ctx, l.Log(), s, l.HeadsProver(), strings.TrimPrefix(string(r.Header.Stream), "task-"))
		if err != nil {
			t.Errorf("evidence of %s: %v", r.Header.Stream, err)
			return
		}
		report, err := evidence.Verify(file, nil, s.Verifiers()...)
		if err != nil || !report.OK {
			t.Errorf("evidence of %s: %v %+v", r.Header.Stream, err, report.Findings)
		}
		if tasks++; tasks == 10 {
			return
		}
	}
}

// newSealer makes a key for a ledger and records it.
func newSealer(t *testing.T, l *commands.Ledger, store seal.Store, fleet string) *seal.Sealer {
	t.Helper()
	origin, err := seal.Origin("relay.test", fleet)
	if err != nil {
		t.Fatal(err)
	}
	key, err := seal.NewKey(rand.Reader, origin)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.AddKey(t.Context(), key.Verifier()); err != nil {
		t.Fatal(err)
	}
	s, err := seal.NewSealer(l.Log(), store, seal.Files{Keys: []*seal.Key{key}, Keep: func([]byte) error { return nil }, KeepKeys: func([]*seal.Key) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// expectLogged takes note that the relay logs something with this text.
func (f *fleet) expectLogged(part string) {
	f.t.Helper()
	if !strings.Contains(f.logged.String(), part) {
		f.t.Errorf("the relay did not log %q, but: %s", part, f.logged.String())
	}
	f.logged.mu.Lock()
	f.logged.Reset()
	f.logged.mu.Unlock()
}

// answer is what a request was answered.
type answer struct {
	t      *testing.T
	what   string
	status int
	header http.Header
	body   []byte
}

var upperSnake = regexp.MustCompile(`^[A-Z][A-Z0-9_]*$`)

// do makes a request as an actor, with headers as pairs of name and value, and
// checks what holds for every answer.
func (f *fleet) do(as, method, path, body string, headers ...string) answer {
	f.t.Helper()
	req, err := http.NewRequestWithContext(f.t.Context(), method, f.server.URL+path, strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}
	if as != "" {
		token, ok := f.tokens[as]
		if !ok {
			f.t.Fatalf("no token of %s", as)
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Add(headers[i], headers[i+1])
	}
	before := f.ledger.Log().Durable()
	resp, err := f.client.Do(req)
	if err != nil {
		f.t.Fatal(err)
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatal(err)
	}
	a := answer{f.t, method + " " + path, resp.StatusCode, resp.Header, got}
	a.check(f.api, method, path)
	if (as == "root" || as != "" && !strings.Contains(as, ":")) && a.status != http.StatusUnauthorized {
		if at, err := strconv.ParseUint(resp.Header.Get("Ledger-Position"), 10, 64); err != nil || events.Position(at) < before {
			f.t.Errorf("%s: Ledger-Position is %q, the log was at %d before", a.what, resp.Header.Get("Ledger-Position"), before)
		}
	}
	return a
}

func (a answer) check(api *openAPI, method, path string) {
	a.t.Helper()
	contentType := a.header.Get("Content-Type")
	if method == "HEAD" || strings.HasPrefix(contentType, "text/") || contentType == "application/octet-stream" || contentType == evidenceType {
		return
	}
	if strings.HasPrefix(contentType, markdownType) {
		api.check(a, method, path)
		return
	}
	if !jsontext.Value(a.body).IsValid() {
		a.t.Fatalf("%s: the answer is no JSON: %s", a.what, a.body)
	}
	if (a.status >= 400) != (contentType == "application/problem+json") {
		a.t.Errorf("%s: status %d has content type %s", a.what, a.status, contentType)
	}
	if a.status >= 400 {
		if title, status, code := a.get("title"), a.get("status"), a.text("code"); title != http.StatusText(a.status) || status != float64(a.status) ||
			!upperSnake.MatchString(code) || a.text("detail") == "" || a.get("type") != "about:blank" {
			a.t.Errorf("%s: no proper problem document: %s", a.what, a.body)
		}
	}
	if a.status == 429 || a.status == 503 {
		if a.header.Get("Retry-After") == "" {
			a.t.Errorf("%s: status %d without Retry-After", a.what, a.status)
		}
	}
	if api != nil && path != "/openapi.json" {
		api.check(a, method, path)
	}
}

// want fails the test unless the answer has this status and, for a problem, code.
func (a answer) want(status int, code ...string) answer {
	a.t.Helper()
	if a.status != status {
		a.t.Fatalf("%s: status %d, not %d: %s", a.what, a.status, status, a.body)
	}
	if len(code) > 0 && a.text("code") != code[0] {
		a.t.Fatalf("%s: code %s, not %s: %s", a.what, a.text("code"), code[0], a.body)
	}
	return a
}

// get is the member at a path of names and indexes between dots; nil for null and
// for none.
func (a answer) get(path string) any {
	a.t.Helper()
	var v any
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.t.Fatalf("%s: %v", a.what, err)
	}
	return member(v, path)
}

func member(v any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch x := v.(type) {
		case map[string]any:
			v = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(x) {
				return nil
			}
			v = x[i]
		default:
			return nil
		}
	}
	return v
}

func (a answer) text(path string) string {
	s, _ := a.get(path).(string)
	return s
}

func (a answer) list(path string) []any {
	a.t.Helper()
	l, ok := a.get(path).([]any)
	if !ok {
		a.t.Fatalf("%s: %s is no list: %s", a.what, path, a.body)
	}
	return l
}

// has fails the test unless the members at the paths have these values, as Go
// prints them.
func (a answer) has(pairs ...string) answer {
	a.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := fmt.Sprint(a.get(pairs[i])); got != pairs[i+1] {
			a.t.Errorf("%s: %s is %s, not %s: %s", a.what, pairs[i], got, pairs[i+1], a.body)
		}
	}
	return a
}

// unchanged fails the test if f does anything to the log.
func (f *fleet) unchanged(do func() answer) answer {
	f.t.Helper()
	before := f.ledger.Log().Durable()
	a := do()
	if after := f.ledger.Log().Durable(); after != before {
		f.t.Errorf("%s: %d events were recorded by it: %s", a.what, after-before, a.body)
	}
	return a
}

// register adds an actor by body and keeps its token.
func (f *fleet) register(by, body string) answer {
	f.t.Helper()
	a := f.do(by, "POST", "/v1/actors", body).want(201)
	f.tokens[a.text("actor.id")] = a.text("token")
	return a
}

// people adds an ordinary ana and bo (level 10), a captain cy (60) and an admin
// di (80), the last two members of ops, an agent bot under ana, and the machines
// m1 and m2, the latter of scope ops.
func (f *fleet) people() *fleet {
	f.t.Helper()
	for _, b := range []string{
		`{"id":"ana","kind":"human","authority_level":10}`,
		`{"id":"bo","kind":"human","authority_level":10}`,
		`{"id":"cy","kind":"human","authority_level":60,"scopes":["ops"]}`,
		`{"id":"di","kind":"human","authority_level":80,"scopes":["ops"]}`,
		`{"id":"m1","kind":"machine","authority_level":10}`,
		`{"id":"m2","kind":"machine","authority_level":10,"scopes":["ops"]}`,
	} {
		f.register("root", b)
	}
	f.register("ana", `{"id":"bot","kind":"agent","parent":"ana"}`)
	return f
}

// submit submits a task of one word and returns its id.
func (f *fleet) submit(as, word string, targets ...string) string {
	f.t.Helper()
	b, err := json.Marshal(map[string]any{"argv": []string{word}, "targets": targets})
	if err != nil {
		f.t.Fatal(err)
	}
	a := f.do(as, "POST", "/v1/tasks", string(b))
	if a.status != 201 && a.status != 202 {
		f.t.Fatalf("submit: %d %s", a.status, a.body)
	}
	return a.text("task_id")
}

const envelope = `{"outcome":"exited","exit_code":0,"started_at":"2026-03-01T09:00:00Z","ended_at":"2026-03-01T11:00:01.5+02:00","elapsed_ms":1500,"machine":"m1","stdout":{"bytes":3,"tail":"ok\n"}}`

// ran claims and reports a task on m1.
func (f *fleet) ran(task string) answer {
	f.t.Helper()
	f.do("m1", "POST", "/v1/tasks/"+task+"/claim", `{"machine":"m1"}`).want(200)
	return f.do("m1", "POST", "/v1/tasks/"+task+"/attempts/1/report", `{"envelope":`+envelope+`}`).want(200)
}

func newKey() string { return uuid.NewString() }

// openAPI holds answers to the relay's own document.
type openAPI struct {
	t   *testing.T
	doc map[string]any
}

func (o *openAPI) load(raw []byte) {
	o.t.Helper()
	if err := json.Unmarshal(raw, &o.doc); err != nil {
		o.t.Fatal(err)
	}
}

// pattern finds the path of the document that a request is for.
func (o *openAPI) pattern(path string) (string, bool) {
	path, _, _ = strings.Cut(path, "?")
	paths := o.doc["paths"].(map[string]any)
	if paths[path] != nil {
		return path, true
	}
	parts := strings.Split(path, "/")
	for pattern := range paths {
		p := strings.Split(pattern, "/")
		if pattern == "/log/tile/{tile}" && strings.HasPrefix(path, "/log/tile/") {
			return pattern, true
		}
		same := len(p) == len(parts)
		for i := range min(len(p), len(parts)) {
			same = same && (p[i] == parts[i] || strings.HasPrefix(p[i], "{") && parts[i] != "")
		}
		if same {
			return pattern, true
		}
	}
	return "", false
}

func (o *openAPI) check(a answer, method, path string) {
	o.t.Helper()
	pattern, ok := o.pattern(path)
	if !ok {
		if a.status < 400 {
			o.t.Errorf("%s: answered %d, and not in the document", a.what, a.status)
		}
		return
	}
	op, ok := o.doc["paths"].(map[string]any)[pattern].(map[string]any)[strings.ToLower(method)].(map[string]any)
	if !ok {
		if a.status < 400 {
			o.t.Errorf("%s: answered %d, and not in the document", a.what, a.status)
		}
		return
	}
	responses := op["responses"].(map[string]any)
	response, ok := responses[strconv.Itoa(a.status)]
	if !ok {
		if a.status < 400 && !(a.status == 200 && pattern == "/v1/audit") {
			o.t.Errorf("%s: the document knows no answer %d", a.what, a.status)
		}
		response = responses["default"]
		if a.status < 400 {
			return
		}
	}
	media, _, _ := strings.Cut(a.header.Get("Content-Type"), ";")
	content, ok := response.(map[string]any)["content"].(map[string]any)[media].(map[string]any)
	if !ok {
		o.t.Errorf("%s: the document knows no %s for %d", a.what, media, a.status)
		return
	}
	schema, _ := content["schema"].(map[string]any)
	var v any
	if media == markdownType {
		v = string(a.body)
	} else if err := json.Unmarshal(a.body, &v); err != nil {
		o.t.Fatal(err)
	}
	if why := o.misfit(schema, v, ""); why != "" {
		o.t.Errorf("%s: the answer is not as the document says: %s\n%s", a.what, why, a.body)
	}
}

// misfit says how v is not what schema allows, empty if it is.
func (o *openAPI) misfit(schema map[string]any, v any, at string) string {
	if ref, ok := schema["$ref"].(string); ok {
		named, ok := member(o.doc, "components.schemas."+strings.TrimPrefix(ref, "#/components/schemas/")).(map[string]any)
		if !ok {
			return "no schema " + ref
		}
		return o.misfit(named, v, at)
	}
	for _, name := range []string{"anyOf", "oneOf"} {
		if of, ok := schema[name].([]any); ok {
			why := ""
			for _, s := range of {
				w := o.misfit(s.(map[string]any), v, at)
				if w == "" {
					return ""
				}
				why += w + "; "
			}
			return why
		}
	}
	var types []string
	switch x := schema["type"].(type) {
	case string:
		types = []string{x}
	case []any:
		for _, s := range x {
			types = append(types, s.(string))
		}
	default:
		return ""
	}
	is := "null"
	switch x := v.(type) {
	case bool:
		is = "boolean"
	case string:
		is = "string"
	case float64:
		is = "number"
		if x == float64(int64(x)) && slices.Contains(types, "integer") {
			is = "integer"
		}
	case []any:
		is = "array"
	case map[string]any:
		is = "object"
	}
	if !slices.Contains(types, is) {
		return fmt.Sprintf("%s is %v, a %s, not %v", at, v, is, types)
	}
	if enum, ok := schema["enum"].([]any); ok && !slices.Contains(enum, v) {
		return fmt.Sprintf("%s is %v, none of %v", at, v, enum)
	}
	switch x := v.(type) {
	case []any:
		for i, e := range x {
			if why := o.misfit(schema["items"].(map[string]any), e, fmt.Sprintf("%s/%d", at, i)); why != "" {
				return why
			}
		}
	case map[string]any:
		properties, _ := schema["properties"].(map[string]any)
		required, _ := schema["required"].([]any)
		for _, name := range required {
			if _, ok := x[name.(string)]; !ok {
				return fmt.Sprintf("%s/%s is missing", at, name)
			}
		}
		for name, e := range x {
			s, known := properties[name].(map[string]any)
			if !known {
				if s, known = schema["additionalProperties"].(map[string]any); !known && schema["additionalProperties"] != true {
					return fmt.Sprintf("%s/%s is not in the schema", at, name)
				}
			}
			if why := o.misfit(s, e, at+"/"+name); why != "" {
				return why
			}
		}
	}
	return ""
}
