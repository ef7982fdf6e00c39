package commands

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
	"fleetledger/events/secrets"
)

// noSecrets refuses a command that holds a secret: recorded, it could never be
// taken back from everybody who has read it. The answer says where it is and by
// which rule, and does not repeat it.
func noSecrets(c events.TaskCommand) error {
	var bad []events.Problem
	add := func(path, rule string) {
		p := problem(path, "SECRET", "holds what looks like a secret (%s)", rule)
		if !slices.Contains(bad, p) {
			bad = append(bad, p)
		}
	}
	text := func(path, words string) {
		for _, f := range secrets.Find(words) {
			add(path, f.Rule)
		}
	}
	argv := func(path string, argv []string) {
		for _, f := range secrets.FindInArgv(argv) {
			add(fmt.Sprintf("%s/%d", path, f.Word), f.Rule)
		}
	}
	argv("/argv", c.Argv)
	for i, part := range c.Parts {
		argv(fmt.Sprintf("/parts/%d", i), part)
	}
	for i, name := range slices.Sorted(maps.Keys(c.Env)) {
		path := string(jsontext.Pointer("/env").AppendToken(name))
		if found := secrets.Find(name); len(found) > 0 {
			// A path with this name would tell it.
			add(fmt.Sprintf("/env (name %d of %d)", i+1, len(c.Env)), found[0].Rule)
			continue
		}
		// The name tells what the value is.
		text(path, name+"="+c.Env[name])
		text(path, c.Env[name])
	}
	text("/cwd", c.Cwd)
	for i, name := range c.EnvFrom {
		text(fmt.Sprintf("/env_from/%d", i), name)
	}
	for i, tag := range c.Tags {
		text(fmt.Sprintf("/tags/%d", i), tag)
	}
	if len(bad) == 0 {
		return nil
	}
	return refuse(Impossible, "SECRET_IN_COMMAND",
		"the command holds what looks like a secret, and whatever is recorded stays: set it as a variable on the machine and name that in env_from; nothing was recorded").
		With("problems", bad)
}

// jsonSecrets are the secrets in a JSON value that lies at path in a command.
func jsonSecrets(path string, raw jsontext.Value) (bad []events.Problem) {
	for _, f := range secrets.FindInJSON(raw) {
		where := ""
		if f.InName {
			where = " in a name"
		}
		bad = append(bad, problem(path+string(f.Path), "SECRET", "holds what looks like a secret (%s)%s", f.Rule, where))
	}
	return bad
}

// noSecretsInQuestion refuses a "may I?" that holds a secret, in its command or as its
// action: it is recorded for whoever decides, and an approval is bound to all of it.
func noSecretsInQuestion(action string, command jsontext.Value) error {
	bad := jsonSecrets("/command", command)
	for _, f := range secrets.Find(action) {
		bad = append(bad, problem("/action", "SECRET", "holds what looks like a secret (%s)", f.Rule))
	}
	if bad == nil {
		return nil
	}
	return refuse(Impossible, "SECRET_IN_COMMAND",
		"the question holds what looks like a secret, and whatever is recorded stays: name where it is kept instead; nothing was recorded").
		With("problems", bad)
}

// noSecretsInExt refuses agents' own events that hold a secret. They are not masked:
// an event is recorded as it was sent, or not at all, so that it is still the one
// that its sender knows by its id.
func noSecretsInExt(list []ExtEvent) error {
	var bad []events.Problem
	for i := range list {
		for _, p := range extSecrets(&list[i]) {
			if len(list) > 1 {
				p.Path = fmt.Sprintf("/%d%s", i, p.Path)
			}
			bad = append(bad, p)
		}
	}
	if bad == nil {
		return nil
	}
	return refuse(Impossible, "SECRET_IN_EVENT",
		"the event holds what looks like a secret, and whatever is recorded stays: leave it out, or name where it is kept; nothing was recorded").
		With("problems", bad[:min(len(bad), events.MaxProblems)])
}

func extSecrets(e *ExtEvent) []events.Problem {
	bad := jsonSecrets("/data", e.Body.Data)
	if e.Body.DataBase64 != "" {
		// What does not decode was refused before.
		data, _ := base64.StdEncoding.DecodeString(e.Body.DataBase64)
		for _, f := range secrets.Find(string(data)) {
			bad = append(bad, problem("/data_base64", "SECRET", "holds what looks like a secret (%s)", f.Rule))
		}
	}
	attributes := []text{{"/id", e.ID}, {"/source", e.Body.Source}, {"/type", string(e.Type)}, {"/subject", string(e.Stream)}, {"/dataschema", e.Body.DataSchema},
		{"/datacontenttype", e.Body.DataContentType}, {"/correlationid", e.Correlation}, {"/causationid", e.Causation}}
	if len(e.Body.Extensions) > 0 {
		for _, name := range slices.Sorted(maps.Keys(e.Body.Extensions)) {
			attributes = append(attributes, text{"/" + name, name + "=" + string(e.Body.Extensions[name])})
		}
	}
	for _, a := range attributes {
		for _, f := range secrets.Find(a.text) {
			bad = append(bad, problem(a.path, "SECRET", "holds what looks like a secret (%s)", f.Rule))
		}
	}
	return bad
}

// text is a text of a command, and where in it.
type text struct{ path, text string }

// noSecretsInText refuses a text that holds a secret. It is not masked, as output
// is: what somebody wrote is kept as it was written, or not at all.
func noSecretsInText(what string, texts ...text) error {
	var bad []events.Problem
	for _, t := range texts {
		for _, found := range secrets.Find(t.text) {
			line := 1 + strings.Count(t.text[:found.Start], "\n")
			bad = append(bad, problem(t.path, "SECRET", "holds what looks like a secret (%s) in line %d", found.Rule, line))
		}
	}
	if bad == nil {
		return nil
	}
	return refuse(Impossible, "SECRET_IN_TEXT",
		"%s holds what looks like a secret, and whatever is recorded stays: say where it is kept instead; nothing was recorded", what).
		With("problems", bad)
}

// noSecretsInNames refuses an actor whose id or scopes are a secret: authority is not
// erasable.
func noSecretsInNames(id, path string, scopes []string) error {
	texts := []text{{"/id", id}}
	for _, s := range scopes {
		texts = append(texts, text{path, s})
	}
	return noSecretsInText("a name", texts...)
}
