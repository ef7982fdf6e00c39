package relay

import (
	"strings"
	"testing"
)

// A secret in a command is refused and appears nowhere: not in the answer, not in
// the log, not in what the relay logs (which stays empty in this test).
func TestSecretsStayOut(t *testing.T) {
	f := newFleet(t).people()
	secret := "ghp_" + "q7ZtR2mXw9KbL4vNc8Yd" + "J3hFs6GpUa1TeQ5i"
	own := f.tokens["ana"]
	silent := func(a answer) answer {
		t.Helper()
		for _, s := range []string{secret, own[strings.LastIndex(own, "~"):]} {
			if strings.Contains(string(a.body), s) {
				t.Errorf("%s tells the secret: %s", a.what, a.body)
			}
		}
		return a
	}
	for _, c := range []struct{ body, path, rule string }{
		{`{"argv":["gh","--token","` + secret + `"],"targets":["m1"]}`, "/argv/2", "github-pat"},
		{`{"argv":["curl","-H","Authorization: Bearer ` + own + `","http://relay/v1/tasks"],"targets":["m1"]}`, "/argv/2", "fleetledger-token"},
		{`{"argv":["make"],"env":{"GH_TOKEN":"` + secret + `"},"targets":["m1"]}`, "/env/GH_TOKEN", "github-pat"},
		{`{"argv":["make"],"tags":["` + secret + `"],"targets":["m1","m2"]}`, "/tags/0", "github-pat"},
	} {
		a := f.unchanged(func() answer { return f.do("ana", "POST", "/v1/tasks", c.body) })
		silent(a.want(422, "SECRET_IN_COMMAND")).has("problems.0.path", c.path)
		if !strings.Contains(a.text("problems.0.detail"), c.rule) || !strings.Contains(a.text("detail"), "env_from") {
			t.Errorf("answered %s", a.body)
		}
	}

	for _, body := range []string{`{"heading":"A","text":"use ` + secret + `"}`, `{"heading":"A","text":"x","how":"` + own + `"}`} {
		a := f.unchanged(func() answer { return f.do("cy", "PUT", "/v1/collective/sections/a", body) })
		silent(a.want(422, "SECRET_IN_TEXT"))
	}

	silent(f.unchanged(func() answer {
		return f.do("ana", "POST", "/v1/blocks", `{"fields":{"focus":"x","issue":"use `+secret+`"}}`)
	}).want(422, "SECRET_IN_TEXT").has("problems.0.path", "/fields/issue"))

	printed := strings.Replace(envelope, `"ok\n"`, `"`+secret+` `+own+`\n"`, 1)
	task := f.submit("ana", "ls", "m1")
	f.do("m1", "POST", "/v1/tasks/"+task+"/claim", `{"machine":"m1"}`).want(200)
	for range 2 { // with a key each: the envelope itself is the same
		silent(f.do("m1", "POST", "/v1/tasks/"+task+"/attempts/1/report", `{"envelope":`+printed+`}`).want(200))
	}
	silent(f.do("m1", "POST", "/v1/memory", `{"record":{"argv":["gh","--token","`+secret+`"],`+printed[1:]+`}`).want(201))
	silent(f.do("bo", "GET", "/v1/tasks/"+task, "").want(200)).has("legs.0.attempts.0.envelope.stdout.tail", "[secret:github-pat] default~ana~[secret:fleetledger-token]\n")
	silent(f.do("bo", "GET", "/v1/memory?machine=m1", "").want(200)).has("items.0.argv", "[gh --token [secret:github-pat]]")
	silent(f.do("bo", "GET", "/v1/tried?q=gh", "").want(200))
	silent(f.do("root", "GET", "/v1/events?limit=1000", "").want(200))
}
