package commands_test

import (
	"cmp"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

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

// What somebody writes is kept as it is written, or refused: the answer says where
// the secret is, and does not repeat it.
func TestSecretInWhatIsWritten(t *testing.T) {
	w := newWorld(t)
	w.people()
	w.rule("deploy", 50)
	w.rule("task.submit.m1", 50)
	asked := w.ok(w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "deploy", RequestApproval: true}))
	rec, _ := asked.Has("approval.requested")
	approval := rec.Header.ID
	w.submit("carl", "make")
	name := strings.ToLower(leaked) // as ids are written
	task := w.State().OpenTasks()[0].ID
	quoted, err := json.Marshal(leaked)
	if err != nil {
		t.Fatal(err)
	}
	escaped := strings.Replace(string(quoted), "g", `\u0067`, 1)
	ext := func(body events.Ext) func() (commands.Result, error) {
		body.Source = cmp.Or(body.Source, "/a")
		return func() (commands.Result, error) {
			return w.AppendExt(w.ctx(), as("ana"), []commands.ExtEvent{{ID: "x", Type: "ext.note", Stream: "ext-a", Body: body}})
		}
	}
	question := func(command string) func() (commands.Result, error) {
		return func() (commands.Result, error) {
			return w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "deploy", Command: jsontext.Value(command), RequestApproval: true})
		}
	}
	for _, c := range []struct {
		name, code, path string
		do               func() (commands.Result, error)
	}{
		{"a conclusion", "SECRET_IN_TEXT", "/text", func() (commands.Result, error) {
			return w.Conclude(w.ctx(), as("ana"), commands.Conclude{Text: "it needs\n" + leaked})
		}},
		{"a rule", "SECRET_IN_TEXT", "/why", func() (commands.Result, error) {
			return w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "a", MinLevel: level(1), Why: leaked}})
		}},
		{"a rule's action", "SECRET_IN_TEXT", "/action", func() (commands.Result, error) {
			return w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "a." + name, MinLevel: level(1)}})
		}},
		{"a rule's scope", "SECRET_IN_TEXT", "/scope", func() (commands.Result, error) {
			return w.WriteRule(w.ctx(), as("root"), commands.WriteRule{Rule: events.Rule{Action: "a", MinLevel: level(1), Scope: &name}})
		}},
		{"an actor", "SECRET_IN_TEXT", "/id", func() (commands.Result, error) {
			return w.RegisterActor(w.ctx(), as("root"), commands.RegisterActor{ID: name, Kind: events.Human, AuthorityLevel: level(1)})
		}},
		{"an actor's scope", "SECRET_IN_TEXT", "/scopes", func() (commands.Result, error) {
			return w.RegisterActor(w.ctx(), as("root"), commands.RegisterActor{ID: "eve", Kind: events.Human, AuthorityLevel: level(1), Scopes: []string{name}})
		}},
		{"a further scope", "SECRET_IN_TEXT", "/add_scopes", func() (commands.Result, error) {
			return w.ChangeActor(w.ctx(), as("root"), commands.ChangeActor{ID: "ana", AddScopes: []string{name}})
		}},
		{"a machine that is paired", "SECRET_IN_TEXT", "/id", func() (commands.Result, error) {
			return w.PairMachine(w.ctx(), as("root"), commands.PairMachine{ID: name})
		}},
		{"a machine of an imported run", "SECRET_IN_TEXT", "/record/machine", func() (commands.Result, error) {
			rec := events.MemoryRecord{Envelope: w.envelope(name, 0, "ok"), Argv: []string{"ls"}}
			return w.RecordMemory(w.ctx(), as("ana"), commands.RecordMemory{Record: rec, ImportedFrom: "atuin"})
		}},
		{"a question's action", "SECRET_IN_COMMAND", "/action", func() (commands.Result, error) {
			return w.AskGate(w.ctx(), as("ana"), commands.AskGate{Action: "deploy." + name})
		}},
		{"a grant", "SECRET_IN_TEXT", "/reason", func() (commands.Result, error) {
			return w.SettleApproval(w.ctx(), as("carl"), commands.SettleApproval{ApprovalID: approval, Outcome: events.Granted, Reason: leaked})
		}},
		{"a withdrawal", "SECRET_IN_TEXT", "/reason", func() (commands.Result, error) {
			return w.WithdrawApproval(w.ctx(), as("ana"), commands.WithdrawApproval{ApprovalID: approval, Reason: leaked})
		}},
		{"a cancellation", "SECRET_IN_TEXT", "/reason", func() (commands.Result, error) {
			return w.CancelTask(w.ctx(), as("carl"), commands.CancelTask{TaskID: task, Reason: leaked})
		}},
		{"a question", "SECRET_IN_COMMAND", "/command/env/1", question(`{"env":["A=1","GH=` + leaked + `"]}`)},
		{"a question with escapes", "SECRET_IN_COMMAND", "/command/args/t", question(`{"args":{"t":` + escaped + `}}`)},
		{"a question whose name tells it", "SECRET_IN_COMMAND", "/command/a/password", question(`{"a":{"password":"q7ZtR2mX` + `w9KbL4vN"}}`)},
		{"a question with it as a name", "SECRET_IN_COMMAND", "/command/a", question(`{"a":{"` + leaked + `":1}}`)},
		{"an event's data", "SECRET_IN_EVENT", "/data/list/0/deep", ext(events.Ext{Data: jsontext.Value(`{"list":[{"deep":"is ` + leaked + `"}]}`)})},
		{"an event's data, all of it", "SECRET_IN_EVENT", "/data", ext(events.Ext{Data: jsontext.Value(escaped)})},
		{"an event's bytes", "SECRET_IN_EVENT", "/data_base64", ext(events.Ext{DataBase64: base64.StdEncoding.EncodeToString([]byte("\xff " + leaked))})},
		{"an event's source", "SECRET_IN_EVENT", "/source", ext(events.Ext{Source: "/a?" + leaked})},
		{"an event's extension", "SECRET_IN_EVENT", "/ghtoken", ext(events.Ext{Extensions: map[string]jsontext.Value{"ghtoken": quoted}})},
		{"a batch", "SECRET_IN_EVENT", "/1/data", func() (commands.Result, error) {
			return w.AppendExt(w.ctx(), as("ana"), []commands.ExtEvent{
				{ID: "x1", Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/a"}},
				{ID: "x2", Type: "ext.note", Stream: "ext-a", Body: events.Ext{Source: "/a", Data: quoted}},
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := w.refused(c.code, c.do)
			if p := r.Facts["problems"].([]events.Problem); len(p) != 1 || p[0].Path != c.path {
				t.Errorf("problems %+v, want one at %s", p, c.path)
			}
			if said, err := json.Marshal(r); err != nil || strings.Contains(strings.ToLower(string(said)+r.Error()), name[4:]) {
				t.Errorf("the refusal tells the secret (%v): %s", err, said)
			}
		})
	}
	// What only looks a little like one is taken.
	w.ok(ext(events.Ext{Data: jsontext.Value(`{"idempotency_key":"0193b2c5-7d3e-7c11-9f2a-3b6c0e8d4a51","note":"a \"token\" of thanks\n","tokens":12345}`)})())
	w.ok(question(`{"to":"prod","commit":"0e227f1818a0a1f2b3c4d5e6f708192a3b4c5d6e"}`)())
	w.holdsNo(leaked[4:])
	w.holdsNo(name[4:])
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
