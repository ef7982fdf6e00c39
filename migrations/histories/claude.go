package histories

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// claudeRecord is a line of a Claude Code transcript
// (~/.claude/projects/<slug>/<session>.jsonl, <session>/subagents/agent-*.jsonl).
type claudeRecord struct {
	Type            maybe[string]        `json:"type"`
	UUID            maybe[string]        `json:"uuid"`
	SessionID       maybe[string]        `json:"sessionId"`
	Timestamp       maybe[string]        `json:"timestamp"`
	Cwd             maybe[string]        `json:"cwd"`
	Version         maybe[string]        `json:"version"`
	Message         maybe[claudeMessage] `json:"message"`
	ToolUseResult   jsontext.Value       `json:"toolUseResult"`
	ParentToolUseID maybe[string]        `json:"parentToolUseID"`
	Data            maybe[claudeData]    `json:"data"`
}

type claudeMessage struct {
	Content maybe[[]maybe[claudeBlock]] `json:"content"`
}

type claudeBlock struct {
	Type  maybe[string] `json:"type"`
	ID    maybe[string] `json:"id"`
	Name  maybe[string] `json:"name"`
	Input maybe[struct {
		Command maybe[string] `json:"command"`
	}] `json:"input"`

	ToolUseID maybe[string]  `json:"tool_use_id"`
	Content   jsontext.Value `json:"content"`
	IsError   maybe[bool]    `json:"is_error"`
	Text      maybe[string]  `json:"text"`
}

type claudeData struct {
	Type    maybe[string]  `json:"type"`
	Seconds maybe[float64] `json:"elapsedTimeSeconds"`
}

// claudeResult is the toolUseResult of a call that did not fail.
type claudeResult struct {
	Stdout         maybe[string] `json:"stdout"`
	Stderr         maybe[string] `json:"stderr"`
	Interrupted    maybe[bool]   `json:"interrupted"`
	IsImage        maybe[bool]   `json:"isImage"`
	Interpretation maybe[string] `json:"returnCodeInterpretation"`
	BackgroundID   maybe[string] `json:"backgroundTaskId"`
	PersistedPath  maybe[string] `json:"persistedOutputPath"`
	PersistedSize  maybe[int64]  `json:"persistedOutputSize"`
}

// claudeCall is a call that waits for its result.
type claudeCall struct {
	item    Item
	seq     int
	command string
	cwd     string
	version string
	called  time.Time
	// began is when the command started, by its last word of progress; calls may
	// wait for a person before that.
	began time.Time
}

type claude struct {
	*reading
	// pending is kept from file to file: a session can lie in several.
	pending map[string]*claudeCall
	seq     int
}

func readClaude(r *reading, path string) error {
	files, err := r.find(path, isJSONLines)
	if err != nil {
		return err
	}
	c := &claude{reading: r, pending: map[string]*claudeCall{}}
	r.plan(files)
	if err := r.each(files, nil, c.take); err != nil {
		return err
	}
	left := make([]*claudeCall, 0, len(c.pending))
	for _, call := range c.pending {
		left = append(left, call)
	}
	slices.SortFunc(left, func(a, b *claudeCall) int { return cmp.Compare(a.seq, b.seq) })
	for _, call := range left {
		if err := c.not(call, ReasonNoResult, false); err != nil {
			return err
		}
	}
	return nil
}

func (c *claude) take(h history, line int, raw jsontext.Value) error {
	var rec claudeRecord
	if !decode(raw, &rec) || !rec.Type.ok {
		return nil
	}
	if rec.SessionID.ok || rec.UUID.ok {
		c.recognised = true
	}
	session := rec.SessionID.v
	if session == "" {
		session = strings.TrimSuffix(h.base(), ".jsonl")
	}
	switch rec.Type.v {
	case "assistant":
		for i, b := range rec.Message.v.Content.v {
			if b.v.Type.v == "tool_use" && b.v.Name.v == "Bash" {
				if err := c.call(h, line, session, &rec, &b.v, i); err != nil {
					return err
				}
			}
		}
	case "user":
		for _, b := range rec.Message.v.Content.v {
			if b.v.Type.v != "tool_result" {
				continue
			}
			if call := c.pending[session+"\x00"+b.v.ToolUseID.v]; call != nil {
				if err := c.result(call, &rec, &b.v); err != nil {
					return err
				}
			}
		}
	case "progress":
		call := c.pending[session+"\x00"+rec.ParentToolUseID.v]
		if call != nil && rec.Data.v.Type.v == "bash_progress" && rec.Data.v.Seconds.ok {
			if at := clock(rec.Timestamp.v); !at.IsZero() {
				call.began = at.Add(-time.Duration(rec.Data.v.Seconds.v * float64(time.Second)))
			}
		}
	}
	return nil
}

func (c *claude) call(h history, line int, session string, rec *claudeRecord, b *claudeBlock, i int) error {
	origin := b.ID.v
	if origin == "" {
		origin = rec.UUID.v + "/" + strconv.Itoa(i)
	}
	item := Item{File: h.base(), Line: line, Session: session, Origin: origin}
	if c.pending[session+"\x00"+origin] != nil || !c.first(session, origin) {
		item.Kind = Repeated
		return c.emit(item)
	}
	c.seq++
	call := &claudeCall{item: item, seq: c.seq, command: strings.TrimSpace(b.Input.v.Command.v), cwd: rec.Cwd.v, version: rec.Version.v, called: clock(rec.Timestamp.v)}
	if call.command == "" {
		return c.not(call, ReasonNoCommand, false)
	}
	c.pending[session+"\x00"+origin] = call
	return nil
}

func (c *claude) not(call *claudeCall, reason string, notOK bool) error {
	delete(c.pending, call.item.Session+"\x00"+call.item.Origin)
	it := call.item
	it.Kind, it.Reason, it.NotOK = NotARun, reason, notOK
	return c.emit(it)
}

var (
	claudeExit = regexp.MustCompile(`^(?:Error: )?Exit code (\d{1,9})(?:\r?\n|$)`)
	// claudeCut is what the tool puts in place of what it leaves out.
	claudeCut = regexp.MustCompile(`\.\.\. \[\d+ (?:lines|characters) truncated\] \.\.\.`)
	claudeKiB = regexp.MustCompile(`Output too large \(([\d.]+) ?(B|KB|MB|GB)\)`)
)

// claudeAnswers are the exit codes that the tool puts in words: a 1 that answers
// a question, as grep's does.
var claudeAnswers = map[string]int{
	"No matches found":                   1,
	"Files differ":                       1,
	"Condition is false":                 1,
	"Some directories were inaccessible": 1,
}

// result tells how a call ended. An object as the result means that it went well,
// a text that it did not.
func (c *claude) result(call *claudeCall, rec *claudeRecord, b *claudeBlock) error {
	content := blockText(b.Content)
	var failure string
	_ = decode(rec.ToolUseResult, &failure)
	if m := claudeExit.FindStringSubmatch(content); m != nil {
		return c.failed(call, rec, m[1], content[len(m[0]):])
	}
	if m := claudeExit.FindStringSubmatch(failure); m != nil {
		return c.failed(call, rec, m[1], failure[len(m[0]):])
	}
	var result claudeResult
	if failure == "" && decode(rec.ToolUseResult, &result) && !b.IsError.v && (result.Stdout.ok || result.Stderr.ok || result.Interrupted.ok) {
		return c.succeeded(call, rec, content, &result)
	}
	switch told := strings.TrimPrefix(strings.TrimPrefix(content, "<tool_use_error>"), "Error: "); {
	case failure == "User rejected tool use", strings.HasPrefix(told, "The user doesn't want to"):
		return c.not(call, ReasonRefused, true)
	case strings.HasPrefix(told, "Sibling tool call errored"), strings.HasPrefix(told, "Cancelled: parallel tool call"):
		return c.not(call, ReasonSibling, true)
	case strings.HasPrefix(told, "[Request interrupted by user"):
		return c.not(call, ReasonInterrupted, true)
	case b.IsError.v:
		return c.not(call, ReasonNotStarted, true)
	}
	return c.not(call, ReasonNoExitCode, false)
}

func (c *claude) failed(call *claudeCall, rec *claudeRecord, code, text string) error {
	n, _ := strconv.Atoi(code) // at most nine digits
	record := events.MemoryRecord{}
	exited(&record, n)
	if strings.HasPrefix(text, "Command timed out after ") {
		record.Outcome, record.ExitCode = events.TimedOut, nil
	}
	whole, size := claudeWhole(text, text)
	// The tool hands on both streams as one.
	record.Stdout, record.Stderr = c.output(text, whole, size), notRecorded
	return c.ran(call, rec, record, n != 0)
}

func (c *claude) succeeded(call *claudeCall, rec *claudeRecord, content string, result *claudeResult) error {
	record := events.MemoryRecord{}
	switch code, known := claudeAnswers[result.Interpretation.v]; {
	case result.BackgroundID.v != "":
		return c.not(call, ReasonBackground, false)
	case result.Interrupted.v:
		record.Outcome = events.CancelledAttempt
	case known:
		exited(&record, code)
	case result.Interpretation.v != "":
		return c.not(call, ReasonNoExitCode, false)
	default:
		exited(&record, 0)
	}
	text := result.Stdout.v
	whole, size := claudeWhole(text, content)
	if result.PersistedPath.v != "" {
		whole, size = false, max(size, result.PersistedSize.v)
	}
	if text == "" && !whole {
		text = content
	}
	record.Stdout = c.output(text, whole, size)
	if result.IsImage.v {
		record.Stdout.Tail, record.Stdout.Truncated = "", true
	}
	record.Stderr = c.output(result.Stderr.v, true, 0)
	return c.ran(call, rec, record, result.Interrupted.v)
}

func (c *claude) ran(call *claudeCall, rec *claudeRecord, record events.MemoryRecord, notOK bool) error {
	began := call.called
	if call.began.After(began) {
		began = call.began
	}
	span(&record, began, clock(rec.Timestamp.v))
	if record.EndedAt.IsZero() {
		return c.not(call, ReasonNoTime, notOK)
	}
	delete(c.pending, call.item.Session+"\x00"+call.item.Origin)
	record.Cwd, record.Machine, record.Transport = clean(call.cwd), c.machine(""), string(ClaudeCode)
	record.AgentVersion = strings.TrimSpace("claude-code " + clean(call.version))
	it := call.item
	it.Kind, it.NotOK, it.Run = Ran, notOK, &Run{Record: record, Line: clean(call.command)}
	return c.emit(it)
}

// claudeWhole reports whether text is all that the command wrote, and if not how
// much that was, 0 if it is not told. content is what the model saw of it: a stub
// with size and path where the output was too large, or one that says that it was
// cleared.
func claudeWhole(text, content string) (whole bool, size int64) {
	if strings.HasPrefix(content, "<persisted-output>") {
		if m := claudeKiB.FindStringSubmatch(content); m != nil {
			n, _ := strconv.ParseFloat(m[1], 64) // digits and points: 0 if malformed
			size = int64(n * map[string]float64{"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}[m[2]])
		}
		return false, size
	}
	if text == "" && strings.HasPrefix(content, "[Old tool result content cleared]") {
		return false, 0
	}
	return !claudeCut.MatchString(text), 0
}

// blockText is a content that is a text, or a list of blocks of which some are.
func blockText(raw jsontext.Value) string {
	var s string
	if decode(raw, &s) {
		return s
	}
	var blocks []maybe[claudeBlock]
	if !decode(raw, &blocks) {
		return ""
	}
	var texts []string
	for _, b := range blocks {
		if b.v.Text.ok {
			texts = append(texts, b.v.Text.v)
		}
	}
	return strings.Join(texts, "\n")
}
