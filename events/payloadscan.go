package events

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// Payloads of the kinds that logs are full of are read without a JSON decoder, several
// times faster: replay and audit decode every one. A scan takes only what Encode
// writes, and gives what the decoder gives; what it does not take, the decoder looks at.

// scanPayload reads b with scan, if that takes it.
func scanPayload[E Event](b []byte, scan func(*payloadScanner) E) (E, bool) {
	s := payloadScanners.Get().(*payloadScanner)
	s.headerScanner = headerScanner{rest: b, ok: true}
	e := scan(s)
	taken := s.ok && len(s.rest) == 0
	s.rest = nil
	payloadScanners.Put(s)
	return e, taken
}

func scanTaskSubmitted(s *payloadScanner) (e TaskSubmitted) {
	e.TaskID = s.text(`{"task_id":`)
	e.Command = s.taskCommand(`,"command":`)
	e.Gates = scanList(s, `,"gates":`, func() (g LegGate) {
		g.Machine = s.text(`{"machine":`)
		g.GateID = s.text(`,"gate_id":`)
		g.Decision = s.decision(`,"decision":`)
		s.literal(`}`)
		return g
	})
	s.literal(`}`)
	return e
}

func scanTaskOpened(s *payloadScanner) (e TaskOpened) {
	s.literal(`{`)
	e.ApprovalID = s.textIfAny(`"approval_id":`)
	s.literal(`}`)
	return e
}

func scanTaskClaimed(s *payloadScanner) (e TaskClaimed) {
	e.Machine = s.text(`{"machine":`)
	e.Attempt = s.int(`,"attempt":`)
	e.LeaseExpiresAt = s.time(`,"lease_expires_at":`)
	s.literal(`}`)
	return e
}

func scanTaskReported(s *payloadScanner) (e TaskReported) {
	e.Machine = s.text(`{"machine":`)
	e.Attempt = s.int(`,"attempt":`)
	s.literal(`,"envelope":{`)
	e.Envelope = s.envelope()
	s.literal(`}`)
	e.Late = s.boolIfAny(`,"late":`)
	s.literal(`}`)
	return e
}

func scanTaskSettled(s *payloadScanner) (e TaskSettled) {
	e.Verdict = TaskVerdict(s.text(`{"verdict":`))
	e.Reason = s.textIfAny(`,"reason":`)
	s.literal(`}`)
	return e
}

func scanMemoryRecorded(s *payloadScanner) (e MemoryRecorded) {
	r := &e.Record
	s.literal(`{"record":{`)
	r.Envelope = s.envelope()
	r.Argv = s.texts(`,"argv":`)
	r.Tags = s.textsIfAny(`,"tags":`)
	r.TaskID = s.textIfAny(`,"task_id":`)
	r.Gate = RunGate(s.textIfAny(`,"gate":`))
	r.GateID = s.textIfAny(`,"gate_id":`)
	s.literal(`,"conclusion":null}`)
	e.ImportedFrom = s.textIfAny(`,"imported_from":`)
	e.Permit = s.permit(`,"permit":`)
	s.literal(`}`)
	return e
}

func scanGateDecided(s *payloadScanner) (e GateDecided) {
	e.GateID = s.text(`{"gate_id":`)
	e.Decision = s.decision(`,"decision":`)
	e.Machine = s.textIfAny(`,"machine":`)
	e.Command = s.valueIfAny(`,"command":`)
	e.Asked = s.boolIfAny(`,"asked":`)
	s.literal(`}`)
	return e
}

func scanExt(s *payloadScanner) (e Ext) {
	e.Source = s.text(`{"source":`)
	e.Time = s.textIfAny(`,"time":`)
	e.DataContentType = s.textIfAny(`,"datacontenttype":`)
	e.DataSchema = s.textIfAny(`,"dataschema":`)
	e.Data = s.valueIfAny(`,"data":`)
	e.DataBase64 = s.textIfAny(`,"data_base64":`)
	e.Permit = s.permit(`,"permit":`) // extensions, if any, are left to the decoder
	s.literal(`}`)
	return e
}

func (s *payloadScanner) taskCommand(before string) (c TaskCommand) {
	s.literal(before)
	c.Argv = s.texts(`{"argv":`)
	c.Mode = TaskMode(s.text(`,"mode":`))
	c.Targets = s.texts(`,"targets":`)
	if s.next(`,"parts":`) {
		c.Parts = scanList(s, ``, func() []string { return s.texts(``) })
	}
	c.Quorum = s.intIfAny(`,"quorum":`)
	c.Cwd = s.textIfAny(`,"cwd":`)
	// What comes here if there is an environment is left to the decoder.
	c.EnvFrom = s.textsIfAny(`,"env_from":`)
	c.TimeoutSeconds = s.intIfAny(`,"timeout_s":`)
	c.Attempts = s.int(`,"attempts":`)
	c.Tags = s.textsIfAny(`,"tags":`)
	s.literal(`}`)
	return c
}

// envelope scans the members of an envelope.
func (s *payloadScanner) envelope() (e Envelope) {
	e.Outcome = Outcome(s.text(`"outcome":`))
	if !s.next(`,"exit_code":null`) {
		code := s.int(`,"exit_code":`)
		e.ExitCode = &code
	}
	e.StartedAt = s.time(`,"started_at":`)
	e.EndedAt = s.time(`,"ended_at":`)
	e.ElapsedMS = int64(s.int(`,"elapsed_ms":`))
	e.Cwd = s.text(`,"cwd":`)
	e.Repo = s.textIfAny(`,"repo":`)
	e.Commit = s.textIfAny(`,"commit":`)
	if s.next(`,"dirty":`) {
		dirty := s.bool(``)
		e.Dirty = &dirty
	}
	e.Stdout = s.output(`,"stdout":`)
	e.Stderr = s.output(`,"stderr":`)
	e.Masked = s.bool(`,"masked":`)
	e.Transport = s.text(`,"transport":`)
	e.Machine = s.text(`,"machine":`)
	e.AgentVersion = s.text(`,"agent_version":`)
	e.Memory.Written = s.bool(`,"memory":{"written":`)
	e.Memory.File = s.textIfAny(`,"file":`)
	e.Memory.Rotated = s.bool(`,"rotated":`)
	e.Memory.ReasonCode = s.textIfAny(`,"reason_code":`)
	s.literal(`}`)
	e.Reason = s.textIfAny(`,"reason":`)
	return e
}

func (s *payloadScanner) output(before string) (o Output) {
	s.literal(before)
	o.Bytes = int64(s.int(`{"bytes":`))
	o.SHA256 = s.hash(`,"sha256":"`)
	o.Tail = s.text(`","tail":`)
	o.Truncated = s.bool(`,"truncated":`)
	s.literal(`}`)
	return o
}

func (s *payloadScanner) permit(before string) (p Permit) {
	s.literal(before)
	p.Decision = s.decision(`{"decision":`)
	p.ApprovalID = s.textIfAny(`,"approval_id":`)
	s.literal(`}`)
	return p
}

func (s *payloadScanner) decision(before string) (d Decision) {
	s.literal(before)
	d.Verdict = Verdict(s.text(`{"verdict":`))
	d.Action = s.text(`,"action":`)
	d.Actor = s.text(`,"actor":`)
	level := s.uint(`,"level":`)
	d.Level = Level(level)
	s.ok = s.ok && level <= 100 // of others, Level makes Unusable
	d.Scopes = s.texts(`,"scopes":`)
	d.Evaluated = scanList(s, `,"evaluated":`, func() Evaluated { return s.evaluated() })
	if !s.next(`,"decisive":null`) {
		s.literal(`,"decisive":`)
		decisive := s.evaluated()
		d.Decisive = &decisive
	}
	d.AuthorityRevision = Revision(s.uint(`,"authority_revision":`))
	s.literal(`}`)
	return d
}

func (s *payloadScanner) evaluated() (e Evaluated) {
	if !s.next(`{"rule_id":null`) {
		id := s.text(`{"rule_id":`)
		e.RuleID = &id
	}
	e.Verdict = Verdict(s.text(`,"verdict":`))
	e.ReasonCode = ReasonCode(s.text(`,"reason_code":`))
	e.Reason = s.text(`,"reason":`)
	e.Exempt = s.bool(`,"exempt":`)
	s.literal(`}`)
	return e
}

// payloadScanner scans what a payload has more than a header. What scans return counts
// only if ok is true in the end.
type payloadScanner struct {
	headerScanner
	// made are short texts that were made a moment ago: payloads are full of the same
	// names, words and reasons.
	made [256]string
}

var (
	payloadScanners = sync.Pool{New: func() any { return new(payloadScanner) }}
	madeSeed        = maphash.MakeSeed()
)

// maxMadeText bounds them, in bytes.
const maxMadeText = 128

// shared is b as a text, one that was made already if there is such a one.
func (s *payloadScanner) shared(b []byte) string {
	if len(b) > maxMadeText {
		return string(b)
	}
	made := &s.made[maphash.Bytes(madeSeed, b)%uint64(len(s.made))]
	if *made != string(b) {
		*made = string(b)
	}
	return *made
}

// next scans want if that comes next.
func (s *payloadScanner) next(want string) bool {
	if len(s.rest) < len(want) || string(s.rest[:len(want)]) != want {
		return false
	}
	s.rest = s.rest[len(want):]
	return true
}

// string scans a JSON string. plain says that its bytes are its text.
func (s *payloadScanner) string() (quoted []byte, plain bool) {
	if len(s.rest) == 0 || s.rest[0] != '"' {
		s.ok = false
		return nil, false
	}
	plain = true
	for i := 1; i < len(s.rest); i++ {
		switch c := s.rest[i]; {
		case plainInString[c]:
		case c == '"':
			quoted, s.rest = s.rest[:i+1], s.rest[i+1:]
			return quoted, plain
		case c == '\\':
			plain = false
			i++
		default:
			plain = false
		}
	}
	s.ok = false
	return nil, false
}

func (s *payloadScanner) text(before string) string {
	s.literal(before)
	quoted, plain := s.string()
	switch {
	case !s.ok:
		return ""
	case plain:
		return s.shared(quoted[1 : len(quoted)-1])
	}
	text, err := jsontext.AppendUnquote(make([]byte, 0, len(quoted)), quoted)
	s.ok = err == nil
	return string(text)
}

func (s *payloadScanner) textIfAny(before string) string {
	if !s.next(before) {
		return ""
	}
	return s.text(``)
}

func (s *payloadScanner) texts(before string) []string {
	return scanList(s, before, func() string { return s.text(``) })
}

func (s *payloadScanner) textsIfAny(before string) []string {
	if !s.next(before) {
		return nil
	}
	return s.texts(``)
}

func scanList[T any](s *payloadScanner, before string, item func() T) []T {
	s.literal(before)
	s.literal(`[`)
	if s.next(`]`) {
		return []T{}
	}
	list := []T{item()}
	for s.ok && s.next(`,`) {
		list = append(list, item())
	}
	s.literal(`]`)
	return list
}

func (s *payloadScanner) int(before string) int {
	s.literal(before)
	if s.next(`-`) {
		n := s.headerScanner.int(``)
		s.ok = s.ok && n > 0 // of -0 the decoder makes what it likes
		return -n
	}
	return s.headerScanner.int(``)
}

func (s *payloadScanner) intIfAny(before string) int {
	if !s.next(before) {
		return 0
	}
	return s.int(``)
}

func (s *payloadScanner) bool(before string) bool {
	s.literal(before)
	if s.next(`true`) {
		return true
	}
	s.literal(`false`)
	return false
}

func (s *payloadScanner) boolIfAny(before string) bool { return s.next(before) && s.bool(``) }

// time scans a time in UTC, as RFC 3339 has it. UnmarshalText takes a little more.
func (s *payloadScanner) time(before string) (t time.Time) {
	s.literal(before)
	quoted, plain := s.string()
	if !s.ok || !plain || len(quoted) < len(`"2006-01-02T15:04:05Z"`) {
		s.ok = false
		return time.Time{}
	}
	text := quoted[1 : len(quoted)-1]
	end := len(text) - 1
	s.ok = text[13] == ':' && text[end] == 'Z' && (end == 19 || text[19] == '.') && t.UnmarshalText(text) == nil
	return t
}

// valueIfAny scans any JSON value.
func (s *payloadScanner) valueIfAny(before string) jsontext.Value {
	if !s.next(before) {
		return nil
	}
	all, depth := s.rest, 0
	for s.ok && len(s.rest) > 0 {
		switch c := s.rest[0]; {
		case c == '"':
			s.string()
			continue
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == '}' || c == ']'):
			// It may be no value at all, or more than one.
			v := jsontext.Value(all[:len(all)-len(s.rest)])
			s.ok = len(v) > 0 && v[0] > ' ' && v[len(v)-1] > ' ' && v.IsValid()
			return v.Clone()
		case c == '}' || c == ']':
			depth--
		}
		s.rest = s.rest[1:]
	}
	s.ok = false
	return nil
}
