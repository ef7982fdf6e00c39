package commands

import (
	"fmt"
	"strings"

	"fleetledger/events"
)

// Class sorts refusals by what the caller can do about them.
type Class int

const (
	// Malformed: the request is not one; mend it.
	Malformed Class = iota
	// Forbidden: a gate or the law of the domain says no to this caller.
	Forbidden
	// Unknown: what was shown to be known by is not in force.
	Unknown
	// NotFound: what the request names is not there.
	NotFound
	// Conflict: the request came too late or for another state.
	Conflict
	// TooLarge: over a stated limit.
	TooLarge
	// Impossible: well formed, but it cannot be.
	Impossible
	// TooMany: over a rate; try again later.
	TooMany
	// Unavailable: it cannot be taken now; nothing is wrong with it.
	Unavailable
)

// A Refusal is a command that was not carried out, and why. Unless it is a
// recorded denial, nothing in the log changed.
type Refusal struct {
	Class Class
	// Code is stable, in upper snake case.
	Code string
	// Detail is one sentence for a person.
	Detail string
	// Facts are what a program needs, by their JSON names. They stand beside the
	// members type, title, status, code and detail of a problem document
	// (RFC 9457), so none has such a name.
	Facts map[string]any
}

func (r *Refusal) Error() string {
	if problems, ok := r.Facts["problems"].([]events.Problem); ok && len(problems) > 0 {
		var list []string
		for _, p := range problems {
			list = append(list, strings.TrimSpace(p.Path+" "+p.Detail))
		}
		return r.Detail + ": " + strings.Join(list, "; ")
	}
	return r.Detail
}

// With adds a fact and returns r.
func (r *Refusal) With(name string, value any) *Refusal {
	if r.Facts == nil {
		r.Facts = map[string]any{}
	}
	r.Facts[name] = value
	return r
}

func refuse(c Class, code, format string, args ...any) *Refusal {
	return &Refusal{Class: c, Code: code, Detail: fmt.Sprintf(format, args...)}
}

// invalid refuses a well-formed command for its values, naming each problem.
func invalid(problems ...events.Problem) *Refusal {
	return refuse(Impossible, "INVALID", "the command has values that cannot be").With("problems", problems)
}

func problem(path, code, format string, args ...any) events.Problem {
	return events.Problem{Path: path, Code: code, Detail: fmt.Sprintf(format, args...)}
}
