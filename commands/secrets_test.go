package commands_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"fleetledger/commands"
	"fleetledger/events"
)

// leaked is put together here, so that no scanner takes this file for a leak.
const leaked = "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i"

func TestSecretInCommand(t *testing.T) {
	cmd := func(change func(*events.TaskCommand)) commands.SubmitTask {
		c := task([]string{"make"}, "m1")
		change(&c.TaskCommand)
		return c
	}
	for _, c := range []struct {
		name, path string
		cmd        commands.SubmitTask
	}{
		{"in argv", "/argv/2", task([]string{"gh", "--token", leaked}, "m1")},
		{"in a script", "/argv/2", task([]string{"sh", "-c", "T=" + leaked + " make"}, "m1")},
		{"in a part", "/parts/1/1", commands.SubmitTask{TaskCommand: events.TaskCommand{
			Mode: events.Split, Targets: []string{"m1", "m2"}, Parts: [][]string{{"make"}, {"make", leaked}}}}},
		{"in a variable", "/env/GH", cmd(func(c *events.TaskCommand) { c.Env = map[string]string{"A": "1", "GH": leaked} })},
		{"in a variable whose name tells it", "/env/DEPLOY_PASSWORD", cmd(func(c *events.TaskCommand) {
			c.Env = map[string]string{"DEPLOY_PASSWORD": "q7ZtR2mX" + "w9KbL4vN"}
		})},
		{"in the name of a variable", "/env (name 2 of 2)", cmd(func(c *events.TaskCommand) { c.Env = map[string]string{"A": "1", leaked: "x"} })},
		{"in env_from", "/env_from/1", cmd(func(c *events.TaskCommand) { c.EnvFrom = []string{"A", leaked} })},
		{"in the directory", "/cwd", cmd(func(c *events.TaskCommand) { c.Cwd = "/srv/" + leaked })},
		{"in a tag", "/tags/0", cmd(func(c *events.TaskCommand) { c.Tags = []string{leaked} })},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.people()
			w.register("root", "m2", events.Machine, 10)
			r := w.refused("SECRET_IN_COMMAND", func() (commands.Result, error) {
				return w.SubmitTask(w.ctx(), keyed("ana", "k", "b"), c.cmd)
			})
			problems := r.Facts["problems"].([]events.Problem)
			if len(problems) != 1 || problems[0].Path != c.path {
				t.Errorf("problems %+v, want one at %s", problems, c.path)
			}
			said, err := json.Marshal(r)
			if err != nil || strings.Contains(string(said), leaked[4:]) || strings.Contains(r.Error(), leaked[4:]) {
				t.Errorf("the refusal tells the secret (%v): %s", err, said)
			}
			if !strings.Contains(r.Detail, "env_from") || r.Class != commands.Impossible {
				t.Errorf("refusal %+v", r)
			}
			// The key is not bound: the command without the secret may be sent with it.
			w.ok(w.SubmitTask(w.ctx(), keyed("ana", "k", "b"), cmd(func(c *events.TaskCommand) { c.EnvFrom = []string{"GH_TOKEN"} })))
		})
	}
}

// A value that was given with its name by mistake is not repeated either.
func TestInvalidVariableIsShownMasked(t *testing.T) {
	w := newWorld(t)
	w.people()
	c := task([]string{"make"}, "m1")
	c.EnvFrom = []string{"GH=" + leaked}
	r := w.refused("INVALID", func() (commands.Result, error) { return w.SubmitTask(w.ctx(), as("ana"), c) })
	if got := r.Error(); strings.Contains(got, leaked[4:]) || !strings.Contains(got, "GH=[secret:github-pat]") {
		t.Errorf("refused with %s", got)
	}
}

// What an agent did not mask is masked here. The same report again is the same,
// whether its agent masks or not.
func TestReportIsMasked(t *testing.T) {
	w := newWorld(t)
	w.people()
	tk := w.taskOf(w.submit("ana", "make"))
	attempt := w.claim(tk, "m1")
	raw := w.envelope("m1", 0, "token "+leaked+"\n")
	raw.Stderr = events.Output{Bytes: int64(len(leaked)), SHA256: events.SumHash(leaked), Tail: leaked}
	w.ok(w.report(tk, "m1", attempt, raw))
	e := *w.reload(tk).Legs[0].Attempts[0].Envelope
	if e.Stdout.Tail != "token [secret:github-pat]\n" || e.Stderr.Tail != "[secret:github-pat]" {
		t.Errorf("tails %q, %q", e.Stdout.Tail, e.Stderr.Tail)
	}
	if e.Stdout.SHA256 != raw.Stdout.SHA256 || e.Stdout.Bytes != raw.Stdout.Bytes {
		t.Errorf("the output is another: %+v", e.Stdout)
	}
	for name, again := range map[string]events.Envelope{"unmasked": raw, "masked": e} {
		if r := w.ok(w.report(tk, "m1", attempt, again)); !r.Duplicate {
			t.Errorf("%s again: %+v", name, r)
		}
	}
	other := raw
	other.Stdout.Tail = "another " + leaked
	w.refused("ALREADY_REPORTED", func() (commands.Result, error) { return w.report(tk, "m1", attempt, other) })
	w.holdsNo(leaked)
}

func TestMemoryIsMasked(t *testing.T) {
	w := newWorld(t)
	w.people()
	argv := []string{"gh", "--token", leaked}
	rec := events.MemoryRecord{Envelope: w.envelope("m1", 0, leaked+"\n"), Argv: argv, Tags: []string{leaked}}
	rec.Cwd = "/srv/" + leaked
	r := first[events.MemoryRecorded](w, w.ok(w.RecordMemory(w.ctx(), as("m1"), commands.RecordMemory{Record: rec}))).Record
	const mark = "[secret:github-pat]"
	if !slices.Equal(r.Argv, []string{"gh", "--token", mark}) || r.Stdout.Tail != mark+"\n" || r.Cwd != "/srv/"+mark || !slices.Equal(r.Tags, []string{mark}) {
		t.Errorf("recorded %+v", r)
	}
	if argv[2] != leaked {
		t.Error("the caller's argv was changed")
	}
	w.holdsNo(leaked)
}

// holdsNo fails the test if any payload of the log holds the text.
func (w *world) holdsNo(text string) {
	w.t.Helper()
	n := 0
	for r, err := range w.Log().ReadAll(w.ctx(), 0) {
		if err != nil {
			w.t.Fatal(err)
		}
		if n++; strings.Contains(string(r.Payload), text) {
			w.t.Errorf("position %d holds it: %s", r.Header.Position, r.Payload)
		}
	}
	if n == 0 {
		w.t.Error("an empty log")
	}
}
