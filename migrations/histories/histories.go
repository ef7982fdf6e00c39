// Package histories reads what other tools wrote down of the commands they ran:
// Claude Code transcripts, Codex rollouts, W2M memory files and atuin's database.
// It only reads; whoever ranges over Read decides what becomes of each Item.
//
// The formats drift, and the files are torn, repeated and cut by their own tools.
// So nothing in them is an error: what cannot be read, was never run, or does not
// tell how it ended is an Item too, with the reason. A value that is not known
// stays empty; none is made up.
//
//	for item, err := range histories.Read(ctx, histories.ClaudeCode, "~/.claude/projects", histories.Options{}) {
//		...
//		if item.Kind == histories.Ran { post(item.Key(), item.Run) }
//	}
//
// Files are read as streams: held are the calls still without a result, the longest
// line, and 16 bytes for each call that was seen.
package histories

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"fleetledger/events"
	"fleetledger/events/secrets"
)

// Tool is one whose history can be read.
type Tool string

const (
	ClaudeCode Tool = "claude-code"
	Codex      Tool = "codex"
	W2M        Tool = "w2m"
	Atuin      Tool = "atuin"
)

// Tools lists them all.
var Tools = []Tool{ClaudeCode, Codex, W2M, Atuin}

// Options say what the records themselves do not.
type Options struct {
	// Machine is that of every record, whatever the record says. Host is that of
	// records which name none. Both are ids, see events.ValidID.
	Machine, Host string
	// TailBytes is how much of an output's end is kept; 0 is 4 KiB.
	TailBytes int
	// Progress, unless nil, is told how far reading is, now and then.
	Progress func(Progress)
}

// Progress is how far reading is.
type Progress struct {
	File        string // base name
	Files, Done int
	// Bytes are those read of all Total; for a database both are rows.
	Bytes, Total int64
}

// Kind says what was found.
type Kind int

const (
	// Ran is a command that ran, and how it ended.
	Ran Kind = iota + 1
	// NotARun is a command that did not run, or of which the end is not known.
	NotARun
	// Repeated is a command that was found before: in a copy of its session, or
	// listed again after a compaction.
	Repeated
	// Concluded is what a reader said of a result.
	Concluded
	// Document is prose about the whole fleet, a file of it.
	Document
	// Unreadable is a line or a file that cannot be read.
	Unreadable
)

// Item is one thing that was found in a history.
type Item struct {
	Kind Kind
	Tool Tool
	// File is the base name of the file, Line the line or row in it, from 1.
	File string
	Line int
	// Session and Origin name the item within its tool, the same in every copy.
	Session, Origin string
	// NotOK is true where the tool itself reported that the call did not go well.
	NotOK bool
	// Reason says why it is a NotARun or Unreadable. There are few of them, so
	// that they can be counted.
	Reason string

	// TaskID is the task's of a W2M run, by which conclusions name it.
	TaskID     string
	Run        *Run
	Conclusion *Conclusion
	// Text is a Document's: Markdown, as it lies in the file.
	Text string
}

// Run is a command that ran.
type Run struct {
	// Record has an Argv if the tool wrote one down; Masked is not set.
	Record events.MemoryRecord
	// Line is the shell line that the tool wrote down in place of an argv.
	Line string
}

// Conclusion is what a reader said of a result. TaskID, or Subject where that is
// empty, says of which; both may be empty.
type Conclusion struct {
	Text    string
	TaskID  string
	Subject *events.Subject
}

// Key is the item's Idempotency-Key: a UUID (version 8) made of what names the
// item within its tool, so that the same item has the same key for ever.
func (it Item) Key() string {
	sum := events.SumHash("fleetledger import", string(it.Tool), it.kindName(), it.Session, it.Origin)
	u := sum[:16]
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	x := hex.EncodeToString(u)
	return x[:8] + "-" + x[8:12] + "-" + x[12:16] + "-" + x[16:20] + "-" + x[20:]
}

func (it Item) kindName() string {
	switch it.Kind {
	case Concluded:
		return "conclusion"
	case Document:
		return "document"
	}
	return "run"
}

// ImportedFrom says where the item came from, for people. A rotated W2M file goes
// by its first name: its lines must not look like others once they have moved.
func (it Item) ImportedFrom() string {
	file := it.File
	if it.Tool == W2M && isW2M(file) {
		file = "memory.jsonl"
	}
	s := string(it.Tool)
	if it.Session != "" {
		s += ", session " + clean(it.Session)
	}
	return s + ", " + file
}

// Recognised reports whether Read knows the tool.
func Recognised(tool string) bool {
	return slices.Contains(Tools, Tool(tool))
}

// ErrNothing means that a path holds no history of the tool.
var ErrNothing = errors.New("no history of that tool")

// Read yields what the history of tool at path holds: a file, or a folder with all
// below it. An error is about path as a whole and ends the reading; it wraps
// ErrNothing if there is nothing of the tool's at path.
func Read(ctx context.Context, tool Tool, path string, o Options) iter.Seq2[Item, error] {
	if o.TailBytes == 0 {
		o.TailBytes = 4 << 10
	}
	return func(yield func(Item, error) bool) {
		r := &reading{ctx: ctx, tool: tool, Options: o, yield: yield, seen: map[[16]byte]struct{}{}}
		var err error
		switch tool {
		case ClaudeCode:
			err = readClaude(r, path)
		case Codex:
			err = readCodex(r, path)
		case W2M:
			err = readW2M(r, path)
		case Atuin:
			err = readAtuin(r, path)
		default:
			err = fmt.Errorf("%q is none of the tools whose histories can be read: %v", tool, Tools)
		}
		if err == nil && !r.recognised && !r.stopped {
			err = fmt.Errorf("%s: %w: nothing in it is of the form that %s writes", path, ErrNothing, tool)
		}
		if err != nil && !r.stopped {
			yield(Item{}, err)
		}
	}
}

// errStop ends a reading whose consumer wants no more.
var errStop = errors.New("stopped")

// reading is one run of Read.
type reading struct {
	Options
	ctx   context.Context
	tool  Tool
	yield func(Item, error) bool
	// stopped is true once yield returned false: it is not called again.
	stopped bool
	// recognised is true once a record of the tool's was found.
	recognised bool
	// seen holds the calls that were yielded, as hashes of their names.
	seen     map[[16]byte]struct{}
	progress Progress
}

// emit yields one item, and returns errStop if that was the last one wanted.
func (r *reading) emit(it Item) error {
	it.Tool = r.tool
	if !r.yield(it, nil) {
		r.stopped = true
		return errStop
	}
	return nil
}

// first reports whether a call is yielded for the first time.
func (r *reading) first(session, origin string) bool {
	sum := events.SumHash(session, origin)
	key := [16]byte(sum[:16])
	if _, again := r.seen[key]; again {
		return false
	}
	r.seen[key] = struct{}{}
	return true
}

// machine is the machine of a record that names named.
func (r *reading) machine(named string) string {
	if r.Machine != "" {
		return r.Machine
	}
	if id := MachineID(named); id != "" {
		return id
	}
	return r.Host
}

// MachineID makes the id of a machine out of the name of a host: in lower case,
// without ".local", with "-" for what no id may hold. It is empty if nothing is
// left.
func MachineID(host string) string {
	host = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(host)), ".local")
	id := strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-' {
			return c
		}
		return '-'
	}, host)
	id = strings.TrimLeft(id, "._-")
	return strings.TrimRight(id[:min(64, len(id))], "._-")
}

// output is an output stream of which text is there: all of it if whole, else
// some, of size bytes if that is known. Secrets in its tail are masked.
func (r *reading) output(text string, whole bool, size int64) events.Output {
	text = clean(text)
	end, cut := secrets.MaskTail(text[max(0, len(text)-r.TailBytes-beforeTail):], r.TailBytes)
	o := events.Output{Bytes: max(size, int64(len(text))), Tail: end, Truncated: !whole || cut || len(text) > r.TailBytes}
	if whole {
		o.SHA256 = sha256.Sum256([]byte(text))
	}
	return o
}

// beforeTail is how much before a tail is looked at: a secret that the tail would
// cut is known by its beginning, or by the name before it.
const beforeTail = 512

// notRecorded is an output of which the tool kept nothing.
var notRecorded = events.Output{Truncated: true}

// clean is s as JSON can carry it.
func clean(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// span puts the times of a run in order. Clocks step, and some tools only know
// one of the two.
func span(r *events.MemoryRecord, from, to time.Time) {
	if from.IsZero() {
		from = to
	}
	if to.Before(from) {
		to = from
	}
	r.StartedAt, r.EndedAt = from.UTC().Truncate(time.Microsecond), to.UTC().Truncate(time.Microsecond)
	r.ElapsedMS = to.Sub(from).Milliseconds()
}

// exited says how a run ended.
func exited(r *events.MemoryRecord, code int) {
	r.Outcome, r.ExitCode = events.Exited, &code
}

// The reasons of a NotARun.
const (
	ReasonRefused     = "refused by the user"
	ReasonSibling     = "cancelled with a sibling call"
	ReasonInterrupted = "interrupted by the user"
	ReasonSandbox     = "refused by the sandbox"
	ReasonNoResult    = "no result in the history"
	ReasonBackground  = "went on in the background: its end is not in the history"
	ReasonNoExitCode  = "its exit code is not in the history"
	ReasonNotStarted  = "the tool did not start it"
	ReasonNoCommand   = "there is no command in the call"
	ReasonNoTime      = "there is no time in the record"
	ReasonDeleted     = "deleted from the history by its owner"
	ReasonRunning     = "had not ended yet"
)
