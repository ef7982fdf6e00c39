package histories

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// w2mLine has the members of a W2M memory line whose names are known; the others,
// which were named one way and another, are looked for by w2mMember.
type w2mLine struct {
	Kind        maybe[string]   `json:"kind"`
	At          jsontext.Value  `json:"at"`
	TaskID      maybe[string]   `json:"task_id"`
	MachineID   maybe[string]   `json:"machine_id"`
	MachineName maybe[string]   `json:"machine_name"`
	Argv        maybe[[]string] `json:"argv"`
	ExitCode    maybe[int]      `json:"exit_code"`
	TimedOut    maybe[bool]     `json:"timed_out"`
	Transport   maybe[string]   `json:"transport"`
	Tags        maybe[[]string] `json:"tags"`
	Conclusion  maybe[string]   `json:"conclusion"`
	About       maybe[struct {
		Argv     maybe[[]string] `json:"argv"`
		ExitCode maybe[int]      `json:"exit_code"`
		At       jsontext.Value  `json:"at"`
	}] `json:"about"`
}

// readW2M reads memory.jsonl and the generations that were rotated out of it,
// oldest first, and then the collective documents. The order within is that of the
// lines.
func readW2M(r *reading, path string) error {
	files, err := r.find(path, func(p string) bool { return isW2M(p) || isFleetMemory(p) })
	if err != nil {
		return err
	}
	if len(files) == 1 && files[0].path == path && strings.EqualFold(filepath.Base(path), "memory.jsonl") {
		// The current file was named: its generations belong to it.
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			return err
		}
		files = nil
		for _, e := range entries {
			name := filepath.Join(filepath.Dir(path), e.Name())
			if info, err := os.Stat(name); err == nil && info.Mode().IsRegular() && isW2M(name) {
				files = append(files, history{name, info.Size()})
			}
		}
	}
	var documents []history
	files = slices.DeleteFunc(files, func(h history) bool {
		if isDocument(h.path) {
			documents = append(documents, h)
		}
		return isDocument(h.path)
	})
	slices.SortStableFunc(files, func(a, b history) int {
		return cmp.Or(cmp.Compare(filepath.Dir(a.path), filepath.Dir(b.path)), w2mGeneration(a.path, b.path))
	})
	r.plan(append(slices.Clone(files), documents...))
	if err := r.each(files, nil, r.w2m); err != nil {
		return err
	}
	return r.wholes(documents, r.w2mDocument)
}

// isW2M takes memory.jsonl, memory.jsonl.1, memory.old.jsonl and the like.
func isW2M(path string) bool { return w2mName.MatchString(strings.ToLower(filepath.Base(path))) }

var w2mName = regexp.MustCompile(`^memory` + rotated + `\.jsonl` + rotated + `$`)

// rotated is what a rotation puts into a name: a number, a date, or a word.
const rotated = `(?:[._-]?(?:[0-9][0-9tz:_-]*|old|prev|previous|bak|backup|rotated))*`

// isFleetMemory takes the collective document of a profile.
func isFleetMemory(path string) bool {
	return strings.EqualFold(filepath.Base(path), "fleet-memory.md")
}

// isDocument takes what is prose and no lines of JSON: fleet-memory.md, and what
// somebody named who knows what it is.
func isDocument(path string) bool { return strings.EqualFold(filepath.Ext(path), ".md") }

func (r *reading) w2mDocument(h history, text string) error {
	r.recognised = true
	return r.emit(Item{Kind: Document, File: h.base(), Line: 1, Text: text})
}

// w2mGeneration orders two generations in one folder, oldest first: a small number
// counts generations back, a large one is a date; the current one has none.
func w2mGeneration(a, b string) int {
	rank := func(path string) (class, n int) {
		digits := strings.Map(func(c rune) rune {
			if c >= '0' && c <= '9' {
				return c
			}
			return -1
		}, filepath.Base(path))
		n, err := strconv.Atoi(digits)
		switch {
		case strings.EqualFold(filepath.Base(path), "memory.jsonl"):
			return 2, 0
		case err == nil && len(digits) < 6:
			return 1, -n
		}
		return 0, n
	}
	classA, a1 := rank(a)
	classB, b1 := rank(b)
	return cmp.Or(cmp.Compare(classA, classB), cmp.Compare(a1, b1), cmp.Compare(a, b))
}

func (r *reading) w2m(h history, line int, raw jsontext.Value) error {
	var l w2mLine
	var members map[string]jsontext.Value
	if !decode(raw, &l) || !decode(raw, &members) {
		return nil
	}
	item := Item{File: h.base(), Line: line}
	if l.Kind.v == "conclusion" {
		r.recognised = true
		return r.w2mConclusion(item, &l)
	}
	if !l.Argv.ok || l.Kind.v != "" && l.Kind.v != "task" && l.Kind.v != "result" {
		return r.emit(Item{Kind: Unreadable, File: h.base(), Line: line, Reason: ReasonUnknown})
	}
	r.recognised = true
	at := instant(l.At)
	machine := MachineID(l.MachineID.v)
	if machine == "" {
		machine = l.MachineName.v
	}
	item.Session = l.MachineID.v
	item.Origin = strings.Join([]string{l.TaskID.v, at.UTC().Format(time.RFC3339Nano), events.SumHash(l.Argv.v...).String()}, " ")
	if !r.first(item.Session, item.Origin) {
		item.Kind = Repeated
		return r.emit(item)
	}
	item.Kind = NotARun
	switch {
	case len(l.Argv.v) == 0 || l.Argv.v[0] == "":
		item.Reason = ReasonNoCommand
	case at.IsZero():
		item.Reason = ReasonNoTime
	case !l.ExitCode.ok && !l.TimedOut.v:
		item.Reason = ReasonNoExitCode
	default:
		item.Kind = Ran
	}
	if item.Kind == NotARun {
		return r.emit(item)
	}
	record := events.MemoryRecord{}
	record.Outcome = events.TimedOut
	if l.ExitCode.ok && !l.TimedOut.v {
		exited(&record, l.ExitCode.v)
	}
	record.Argv, record.Tags = cleanAll(l.Argv.v), cleanAll(l.Tags.v)
	// "at" is when the task was finished.
	from := at
	if ms, ok := w2mMilliseconds(members); ok {
		from = at.Add(-ms)
	}
	span(&record, from, at)
	record.Cwd = clean(w2mText(members, "cwd"))
	record.Stdout, record.Stderr = r.w2mOutput(members, "stdout"), r.w2mOutput(members, "stderr")
	record.Machine, record.Transport, record.AgentVersion = r.machine(machine), clean(cmp.Or(l.Transport.v, string(W2M))), string(W2M)
	item.NotOK = !l.ExitCode.ok || l.ExitCode.v != 0
	item.Run = &Run{Record: record}
	item.TaskID = l.TaskID.v
	return r.emit(item)
}

func (r *reading) w2mConclusion(item Item, l *w2mLine) error {
	c := &Conclusion{Text: strings.TrimSpace(clean(l.Conclusion.v)), TaskID: l.TaskID.v}
	about := l.About.v
	code := "null"
	if about.ExitCode.ok {
		code = strconv.Itoa(about.ExitCode.v)
	}
	at := instant(about.At)
	if len(about.Argv.v) > 0 {
		c.Subject = &events.Subject{Argv: cleanAll(about.Argv.v), At: at}
		if about.ExitCode.ok {
			c.Subject.ExitCode = &about.ExitCode.v
		}
	}
	if c.Text == "" {
		item.Kind, item.Reason = Unreadable, ReasonNoText
		return r.emit(item)
	}
	item.Kind, item.Conclusion = Concluded, c
	item.Origin = events.SumHash(append([]string{c.TaskID, c.Text, code, at.UTC().Format(time.RFC3339Nano)}, about.Argv.v...)...).String()
	if !r.first("conclusion", item.Origin) {
		item.Kind, item.Conclusion = Repeated, nil
	}
	return r.emit(item)
}

// w2mNames are the members whose names contain part, in order.
func w2mNames(members map[string]jsontext.Value, part string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(members)), func(name string) bool { return !strings.Contains(strings.ToLower(name), part) })
}

// w2mMilliseconds is the duration: the first number whose name ends in "ms".
func w2mMilliseconds(members map[string]jsontext.Value) (time.Duration, bool) {
	for _, name := range w2mNames(members, "ms") {
		var ms float64
		if strings.HasSuffix(strings.ToLower(name), "ms") && decode(members[name], &ms) && ms >= 0 && ms < 1e12 {
			return time.Duration(ms * float64(time.Millisecond)), true
		}
	}
	return 0, false
}

// w2mText is the first text among the members whose names contain part.
func w2mText(members map[string]jsontext.Value, part string) string {
	for _, name := range w2mNames(members, part) {
		var s string
		if decode(members[name], &s) {
			return s
		}
	}
	return ""
}

// w2mOutput is the tail of a stream: a text, or an object that holds one. What
// the whole was is not known.
func (r *reading) w2mOutput(members map[string]jsontext.Value, stream string) events.Output {
	for _, name := range w2mNames(members, stream) {
		var s string
		if decode(members[name], &s) {
			return r.output(s, false, 0)
		}
		var o struct {
			Tail  maybe[string] `json:"tail"`
			Bytes maybe[int64]  `json:"bytes"`
		}
		if decode(members[name], &o) && o.Tail.ok {
			return r.output(o.Tail.v, false, o.Bytes.v)
		}
	}
	return notRecorded
}

func cleanAll(list []string) []string {
	var out []string
	for _, s := range list {
		out = append(out, clean(s))
	}
	return out
}
