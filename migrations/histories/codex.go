package histories

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// codexRecord is a line of a Codex rollout
// (~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl). The oldest have the item itself
// where later ones have it as the payload, and no times but the session's.
type codexRecord struct {
	Timestamp  maybe[string]  `json:"timestamp"`
	Type       maybe[string]  `json:"type"`
	RecordType maybe[string]  `json:"record_type"`
	ID         maybe[string]  `json:"id"`
	Payload    jsontext.Value `json:"payload"`
}

// codexPayload has the members of everything that is read here.
type codexPayload struct {
	Type    maybe[string] `json:"type"`
	ID      maybe[string] `json:"id"`
	CallID  maybe[string] `json:"call_id"`
	Cwd     maybe[string] `json:"cwd"`
	Version maybe[string] `json:"cli_version"`
	Git     maybe[struct {
		URL maybe[string] `json:"repository_url"`
	}] `json:"git"`

	// Of calls and their outputs.
	Name      maybe[string]       `json:"name"`
	Arguments maybe[string]       `json:"arguments"`
	Action    maybe[codexCommand] `json:"action"`
	Output    jsontext.Value      `json:"output"`

	// Of the reliable record of a command, an exec_command_end or an item
	// CommandExecution.
	Item       jsontext.Value `json:"item"`
	Command    jsontext.Value `json:"command"`
	Stdout     maybe[string]  `json:"stdout"`
	Stderr     maybe[string]  `json:"stderr"`
	Aggregated maybe[string]  `json:"aggregated_output"`
	ExitCode   maybe[int]     `json:"exit_code"`
	Status     maybe[string]  `json:"status"`
	Duration   jsontext.Value `json:"duration"`
	DurationMS maybe[float64] `json:"duration_ms"`
}

// codexCommand is what a call asks for, under the names of its time.
type codexCommand struct {
	Command    jsontext.Value `json:"command"`
	Cmd        jsontext.Value `json:"cmd"`
	Workdir    maybe[string]  `json:"workdir"`
	WorkingDir maybe[string]  `json:"working_directory"`
}

// codexOutput is the text of an output where that is JSON.
type codexOutput struct {
	Output   maybe[string] `json:"output"`
	Metadata maybe[struct {
		ExitCode maybe[int]     `json:"exit_code"`
		Seconds  maybe[float64] `json:"duration_seconds"`
	}] `json:"metadata"`
}

var codexShells = []string{"shell", "shell_command", "exec_command", "container.exec", "local_shell"}

type codexCall struct {
	item   Item
	seq    int
	argv   []string
	line   string
	cwd    string
	called time.Time
	// running is true once the tool said that it goes on in the background.
	running bool
	// Of its session.
	version, repo string
}

type codex struct {
	*reading
	pending map[string]*codexCall
	seq     int

	// Of the file being read.
	session, cwd, version, repo string
	started                     time.Time
	// told are the calls that were yielded from it.
	told map[string]struct{}
}

func readCodex(r *reading, at string) error {
	files, err := r.find(at, isJSONLines)
	if err != nil {
		return err
	}
	c := &codex{reading: r, pending: map[string]*codexCall{}}
	start := func(h history) {
		c.session, c.cwd, c.version, c.repo = "", "", "", ""
		c.started, c.told = time.Time{}, map[string]struct{}{}
	}
	r.plan(files)
	if err := r.each(files, start, c.take); err != nil {
		return err
	}
	left := make([]*codexCall, 0, len(c.pending))
	for _, call := range c.pending {
		left = append(left, call)
	}
	slices.SortFunc(left, func(a, b *codexCall) int { return cmp.Compare(a.seq, b.seq) })
	for _, call := range left {
		reason := ReasonNoResult
		if call.running {
			reason = ReasonBackground
		}
		if err := c.not(call, reason, false); err != nil {
			return err
		}
	}
	return nil
}

func (c *codex) take(h history, line int, raw jsontext.Value) error {
	var rec codexRecord
	if !decode(raw, &rec) {
		return nil
	}
	at := clock(rec.Timestamp.v)
	var p codexPayload
	kind := rec.Type.v
	switch {
	case rec.Payload != nil:
		if !decode(rec.Payload, &p) {
			return nil
		}
		c.recognised = c.recognised || slices.Contains([]string{"session_meta", "turn_context", "response_item", "event_msg", "compacted"}, kind)
	case kind == "" && rec.ID.ok && !at.IsZero(): // the oldest's first line
		kind, p.ID, c.recognised = "session_meta", rec.ID, true
	case rec.RecordType.ok:
		c.recognised = true
		return nil
	default:
		kind = "response_item"
		if !decode(raw, &p) {
			return nil
		}
	}
	switch kind {
	case "session_meta":
		// It can come again, with the ids of sessions that this one continues.
		if c.session == "" {
			c.session, c.started = p.ID.v, at
		}
		c.cwd, c.version, c.repo = cmp.Or(p.Cwd.v, c.cwd), cmp.Or(p.Version.v, c.version), cmp.Or(p.Git.v.URL.v, c.repo)
	case "turn_context":
		c.cwd = cmp.Or(p.Cwd.v, c.cwd)
	case "response_item":
		switch p.Type.v {
		case "function_call":
			if slices.Contains(codexShells, p.Name.v) {
				var asked codexCommand
				_ = decode([]byte(p.Arguments.v), &asked) // without it there is no command, which is told
				return c.call(h, line, at, p.CallID.v, asked)
			}
		case "local_shell_call":
			return c.call(h, line, at, cmp.Or(p.CallID.v, p.ID.v), p.Action.v)
		case "function_call_output", "local_shell_call_output":
			if call := c.pending[c.key(h, cmp.Or(p.CallID.v, p.ID.v))]; call != nil {
				return c.result(call, at, p.Output)
			}
		}
	case "event_msg":
		switch p.Type.v {
		case "exec_command_end":
			return c.end(h, line, at, p.CallID.v, &p)
		case "item_completed":
			var item codexPayload
			if decode(p.Item, &item) && slices.Contains([]string{"CommandExecution", "command_execution", "commandExecution"}, item.Type.v) {
				return c.end(h, line, at, item.ID.v, &item)
			}
		}
	}
	return nil
}

func (c *codex) sessionOf(h history) string {
	return cmp.Or(c.session, strings.TrimSuffix(h.base(), ".jsonl"))
}

func (c *codex) key(h history, id string) string { return c.sessionOf(h) + "\x00" + id }

// open makes a call that was not seen before, nil if it was.
func (c *codex) open(h history, line int, at time.Time, id string) *codexCall {
	item := Item{File: h.base(), Line: line, Session: c.sessionOf(h), Origin: id}
	if id == "" {
		item.Origin = h.base() + ":" + strconv.Itoa(line)
	}
	if at.IsZero() {
		at = c.started
	}
	c.told[item.Origin] = struct{}{}
	if !c.first(item.Session, item.Origin) {
		return nil
	}
	c.seq++
	return &codexCall{item: item, seq: c.seq, cwd: c.cwd, called: at, version: c.version, repo: c.repo}
}

func (c *codex) repeated(h history, line int, id string) error {
	return c.emit(Item{Kind: Repeated, File: h.base(), Line: line, Session: c.sessionOf(h), Origin: id})
}

func (c *codex) call(h history, line int, at time.Time, id string, asked codexCommand) error {
	call := c.open(h, line, at, id)
	if call == nil {
		return c.repeated(h, line, id)
	}
	call.argv, call.line = shellLine(asked.Command)
	if call.argv == nil && call.line == "" {
		call.argv, call.line = shellLine(asked.Cmd)
	}
	call.cwd = cmp.Or(asked.Workdir.v, asked.WorkingDir.v, call.cwd)
	c.pending[c.key(h, call.item.Origin)] = call
	return nil
}

var (
	codexExit = regexp.MustCompile(`(?m)^(?:Exit code: |Process exited with code )(-?\d{1,9})\r?$`)
	codexWall = regexp.MustCompile(`(?m)^Wall time: ([\d.]{1,12}) seconds\r?$`)
	// codexCut is what the tool puts in place of what it leaves out.
	codexCut = regexp.MustCompile(`(?m)^\[\.\.\. omitted \d+ of \d+ lines|^Total output lines: \d+$|…\d+ (?:tokens|chars) truncated…`)
)

// result tells how a call ended by what the model was told of it.
func (c *codex) result(call *codexCall, at time.Time, raw jsontext.Value) error {
	text := blockText(raw)
	var out codexOutput
	if !decode([]byte(text), &out) {
		_ = decode(raw, &out) // else it stays empty
	}
	if m := out.Metadata.v; m.ExitCode.ok {
		return c.ended(call, at, m.ExitCode.v, duration(m.Seconds), c.output(out.Output.v, !codexCut.MatchString(out.Output.v), 0), notRecorded)
	}
	if out.Output.ok {
		text = out.Output.v
	}
	head, body, found := strings.Cut(text, "\nOutput:\n")
	if !found {
		head, body = text, ""
	}
	if m := codexExit.FindStringSubmatch(head); m != nil {
		code, _ := strconv.Atoi(m[1]) // at most nine digits
		took := time.Duration(-1)
		if w := codexWall.FindStringSubmatch(head); w != nil {
			if s, err := strconv.ParseFloat(w[1], 64); err == nil {
				took = duration(maybe[float64]{s, true})
			}
		}
		return c.ended(call, at, code, took, c.output(body, found && !codexCut.MatchString(text), 0), notRecorded)
	}
	told := strings.ToLower(text)
	switch {
	case strings.Contains(told, "process running with session id"):
		call.running = true // how it ended may be told later
		return nil
	case strings.Contains(told, "rejected by user"), strings.Contains(told, "rejected by the user"), strings.Contains(told, "declined by user"):
		return c.not(call, ReasonRefused, true)
	case strings.Contains(told, "aborted by user"), strings.Contains(told, "interrupted by user"), told == "aborted":
		return c.not(call, ReasonInterrupted, true)
	case strings.Contains(told, "sandbox"):
		return c.not(call, ReasonSandbox, true)
	case text == "":
		return c.not(call, ReasonNoExitCode, false)
	}
	return c.not(call, ReasonNotStarted, true)
}

// end tells how a call ended by the tool's own record of the command. There may
// be no other record of the call.
func (c *codex) end(h history, line int, at time.Time, id string, p *codexPayload) error {
	call := c.pending[c.key(h, id)]
	if call == nil {
		if _, told := c.told[id]; told {
			return nil
		}
		if call = c.open(h, line, at, id); call == nil {
			return c.repeated(h, line, id)
		}
	}
	if call.argv == nil && call.line == "" {
		call.argv, call.line = shellLine(p.Command)
	}
	call.cwd = cmp.Or(p.Cwd.v, call.cwd)
	switch {
	case p.Status.v == "declined":
		return c.not(call, ReasonRefused, true)
	case !p.ExitCode.ok:
		return c.not(call, ReasonNoExitCode, false)
	}
	took := duration(maybe[float64]{p.DurationMS.v / 1e3, p.DurationMS.ok})
	if took < 0 {
		took = anyDuration(p.Duration)
	}
	stdout, stderr := notRecorded, notRecorded
	if p.Stdout.ok || p.Stderr.ok {
		stdout = c.output(p.Stdout.v, !codexCut.MatchString(p.Stdout.v), 0)
		stderr = c.output(p.Stderr.v, !codexCut.MatchString(p.Stderr.v), 0)
	} else if p.Aggregated.ok {
		stdout = c.output(p.Aggregated.v, !codexCut.MatchString(p.Aggregated.v), 0)
	}
	return c.ended(call, at, p.ExitCode.v, took, stdout, stderr)
}

// ended yields a run. took is below zero if it is not known.
func (c *codex) ended(call *codexCall, at time.Time, code int, took time.Duration, stdout, stderr events.Output) error {
	if call.argv == nil && call.line == "" {
		return c.not(call, ReasonNoCommand, false)
	}
	record := events.MemoryRecord{Argv: call.argv}
	exited(&record, code)
	if code == 124 && strings.HasPrefix(stdout.Tail, "command timed out after ") {
		record.Outcome, record.ExitCode = events.TimedOut, nil
	}
	began := call.called
	switch {
	case took >= 0 && at.IsZero():
		at = began.Add(took)
	case took >= 0:
		began = at.Add(-took)
	}
	if began.Year() < 1970 && at.Year() < 1970 {
		return c.not(call, ReasonNoTime, code != 0)
	}
	span(&record, began, at)
	record.Stdout, record.Stderr = stdout, stderr
	record.Cwd, record.Repo, record.Machine, record.Transport = clean(call.cwd), clean(call.repo), c.machine(""), string(Codex)
	record.AgentVersion = strings.TrimSpace("codex " + clean(call.version))
	delete(c.pending, call.item.Session+"\x00"+call.item.Origin)
	it := call.item
	it.Kind, it.NotOK, it.Run = Ran, code != 0, &Run{Record: record, Line: call.line}
	return c.emit(it)
}

func (c *codex) not(call *codexCall, reason string, notOK bool) error {
	delete(c.pending, call.item.Session+"\x00"+call.item.Origin)
	if call.argv == nil && call.line == "" {
		reason = ReasonNoCommand
	}
	it := call.item
	it.Kind, it.Reason, it.NotOK = NotARun, reason, notOK
	return c.emit(it)
}

// shellLine reads a command that is a text, or a list of words. A list that only
// wraps a line (bash -lc LINE) is that line.
func shellLine(raw jsontext.Value) (argv []string, line string) {
	if decode(raw, &line) {
		return nil, strings.TrimSpace(clean(line))
	}
	var words []string
	if !decode(raw, &words) || len(words) == 0 || words[0] == "" {
		return nil, ""
	}
	if len(words) == 3 && (words[1] == "-c" || words[1] == "-lc") && strings.TrimSpace(words[2]) != "" {
		switch path.Base(strings.ReplaceAll(words[0], `\`, "/")) {
		case "sh", "bash", "zsh":
			return nil, strings.TrimSpace(clean(words[2]))
		}
	}
	for i, w := range words {
		words[i] = clean(w)
	}
	return words, ""
}

// duration is seconds as a duration, below zero if they are not known.
func duration(seconds maybe[float64]) time.Duration {
	if !seconds.ok || !(seconds.v >= 0 && seconds.v < 1e9) {
		return -1
	}
	return time.Duration(seconds.v * float64(time.Second))
}

// anyDuration reads {"secs", "nanos"}, a number of seconds, or a text such as 1.5s.
func anyDuration(raw jsontext.Value) time.Duration {
	var parts struct {
		Secs  maybe[float64] `json:"secs"`
		Nanos maybe[float64] `json:"nanos"`
	}
	var seconds float64
	var text string
	switch {
	case raw.Kind() == jsontext.KindNull:
	case decode(raw, &seconds):
		return duration(maybe[float64]{seconds, true})
	case decode(raw, &text):
		if d, err := time.ParseDuration(text); err == nil && d >= 0 {
			return d
		}
	case decode(raw, &parts) && parts.Secs.ok:
		return duration(maybe[float64]{parts.Secs.v + parts.Nanos.v/1e9, true})
	}
	return -1
}
