package gate

import (
	"errors"
	"fmt"
	"strconv"

	"fleetledger/events"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Problems lists everything that is wrong with a rule met in the log, in the
// order of its members; nil if it is well formed. A level that is missing and
// one that cannot be used read the same, since the log gives back the one for
// the other.
func Problems(r events.Rule) []events.Problem {
	var list []events.Problem
	if !ValidPattern(r.Action) {
		list = append(list, actionProblem(r.Action))
	}
	if r.MinLevel == nil || !r.MinLevel.Usable() {
		list = append(list, events.Problem{Path: "/min_level", Code: events.CodeInvalid,
			Detail: "its min_level is not an integer from 0 to 100"})
	}
	if r.MatchingExemptLevel != nil && !r.MatchingExemptLevel.Usable() {
		list = append(list, events.Problem{Path: "/matching_exempt_level", Code: events.CodeInvalid,
			Detail: "its matching_exempt_level is not an integer from 0 to 100"})
	}
	if r.Scope != nil && !events.ValidID(*r.Scope) {
		list = append(list, scopeProblem(*r.Scope))
	}
	return list
}

func actionProblem(action string) events.Problem {
	return events.Problem{Path: "/action", Code: events.CodeInvalid, Detail: fmt.Sprintf(
		`its action %s is neither a name like "deploy.prod" nor a prefix like "deploy.*": segments of a-z, 0-9, _ and - between single dots, at most %d bytes`,
		quote(action), events.MaxNameBytes)}
}

func scopeProblem(scope string) events.Problem {
	return events.Problem{Path: "/scope", Code: events.CodeInvalid, Detail: fmt.Sprintf(
		`its scope %s is not an id like "team-a": a-z, 0-9, ".", "_" and "-", beginning with a letter or digit, at most 64 bytes`, quote(scope))}
}

// quote shows the beginning of what somebody wrote, every character that could
// pass for another one escaped.
func quote(s string) string {
	const limit = 64
	if len(s) > limit {
		return strconv.QuoteToASCII(s[:limit]) + "..."
	}
	return strconv.QuoteToASCII(s)
}

// ParseRule reads a rule that a caller sends, an object as events.Rule has it.
// null stands for absence where a member may be absent. Otherwise it returns
// the zero Rule and every problem, in the order of the text as far as its
// form is concerned, then what is wrong with the action and the scope.
func ParseRule(raw jsontext.Value) (events.Rule, []events.Problem) {
	var form struct {
		Action              string        `json:"action"`
		MinLevel            events.Level  `json:"min_level"` // no pointer, so that null is refused
		MatchingExemptLevel *events.Level `json:"matching_exempt_level,omitzero"`
		Scope               *string       `json:"scope,omitzero"`
		Why                 *string       `json:"why,omitzero"`
	}
	if err := events.DecodeStrict(raw, &form); err != nil {
		var strict *events.StrictError
		if !errors.As(err, &strict) {
			panic(fmt.Sprintf("bug: DecodeStrict returned %T: %v", err, err))
		}
		return events.Rule{}, append(strict.Problems, nameProblems(raw)...)
	}
	r := events.Rule{
		Action:              form.Action,
		MinLevel:            &form.MinLevel,
		MatchingExemptLevel: form.MatchingExemptLevel,
		Scope:               form.Scope,
	}
	if form.Why != nil {
		r.Why = *form.Why
	}
	if problems := Problems(r); problems != nil {
		return events.Rule{}, problems
	}
	return r, nil
}

// nameProblems judges the action and the scope of a text whose form is wrong, as
// far as they can be read as texts, so that one answer names everything.
func nameProblems(raw jsontext.Value) []events.Problem {
	var loose struct {
		Action jsontext.Value `json:"action"`
		Scope  jsontext.Value `json:"scope"`
	}
	// DecodeStrict has named the error, if any; what came before it has been read.
	_ = json.Unmarshal(raw, &loose, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	var list []events.Problem
	if s, ok := unquote(loose.Action); ok && !ValidPattern(s) {
		list = append(list, actionProblem(s))
	}
	if s, ok := unquote(loose.Scope); ok && !events.ValidID(s) {
		list = append(list, scopeProblem(s))
	}
	return list
}

// unquote returns the text of v, if v is one and all of it is UTF-8.
func unquote(v jsontext.Value) (string, bool) {
	if v.Kind() != '"' {
		return "", false
	}
	s, err := jsontext.AppendUnquote(nil, v)
	return string(s), err == nil
}
