package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/events"
)

const (
	exitDone   = 0
	exitFailed = 1
	exitMisuse = 2
)

// misuse is a command line that cannot be meant.
type misuse struct{ detail string }

func (m *misuse) Error() string { return m.detail }

func misused(format string, args ...any) error {
	return &misuse{fmt.Sprintf(format, args...)}
}

// failure is an error with the command line to try next.
type failure struct {
	err error
	try string
}

func (f *failure) Error() string { return f.err.Error() }
func (f *failure) Unwrap() error { return f.err }

func tryNext(err error, try string) error { return &failure{err: err, try: try} }

// problemIn is the relay's problem in an error, nil if there is none.
func problemIn(err error) *agent.Problem {
	p, _ := errors.AsType[*agent.Problem](err)
	return p
}

// errQuiet ends a command with exit code 1 whose output has said why.
var errQuiet = errors.New("")

// fail tells err on stderr and returns the exit code.
func (a *app) fail(cmd *cobra.Command, err error) int {
	if errors.Is(err, errQuiet) {
		return exitFailed
	}
	if e, ok := errors.AsType[*exitStatus](err); ok {
		return e.code
	}
	// A request that was broken off here is no relay that does not answer.
	if _, ok := errors.AsType[*agent.UnreachableError](err); ok && cmd.Context().Err() != nil {
		err = tryNext(fmt.Errorf("broken off: %w; whether the relay did what it was asked is not known", context.Cause(cmd.Context())), "the same again")
	}
	// Cobra's suggestions are lines of their own.
	if text, names, ok := strings.Cut(err.Error(), "\n\nDid you mean this?\n"); ok && !a.started {
		err = misused("%s; did you mean %s?", text, strings.Join(strings.Fields(names), " or "))
	}
	code := exitFailed
	_, wrong := errors.AsType[*misuse](err)
	if wrong || !a.started { // cobra refuses flags, arguments and names before anything starts
		code = exitMisuse
	}
	problem, isProblem := errors.AsType[*agent.Problem](err)
	try := nextCommand(cmd, problem, code)
	if errors.Is(err, events.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) {
		try = "free some space on that disk, then the same again"
	}
	if f, ok := errors.AsType[*failure](err); ok {
		try = f.try
	}
	if a.json {
		a.failJSON(err, problem, try)
		return code
	}
	p := printer{a.err}
	if isProblem && problem.Status < 500 {
		p.f("%s: refused: %s\n", cmd.CommandPath(), err)
	} else {
		p.f("%s: %s\n", cmd.CommandPath(), err)
	}
	if try != "" {
		p.f("try: %s\n", try)
	}
	return code
}

// failJSON writes the relay's problem document as it came, or one of our own.
func (a *app) failJSON(err error, problem *agent.Problem, try string) {
	raw := []byte(nil)
	if problem != nil {
		raw = problem.Raw
	}
	if raw == nil {
		doc := struct {
			Status int    `json:"status,omitzero"`
			Code   string `json:"code"`
			Detail string `json:"detail"`
			Try    string `json:"try,omitzero"`
		}{Code: "FAILED", Detail: err.Error(), Try: try}
		_, unreachable := errors.AsType[*agent.UnreachableError](err)
		_, wrong := errors.AsType[*misuse](err)
		switch {
		case problem != nil:
			doc.Status, doc.Code = problem.Status, "NO_PROBLEM_DOCUMENT"
		case wrong || !a.started:
			doc.Code = "MISUSED"
		case unreachable:
			doc.Code = "UNREACHABLE"
		}
		var e error
		if raw, e = json.Marshal(doc); e != nil {
			raw = []byte(`{"code":"FAILED"}`) // the detail was no UTF-8
		}
	}
	_, _ = fmt.Fprintln(a.err, strings.TrimSpace(visibleJSON(raw)))
}

// nextCommand is what to try after a refusal.
func nextCommand(cmd *cobra.Command, p *agent.Problem, code int) string {
	help := cmd.CommandPath() + " --help"
	if code == exitMisuse || p == nil {
		return help
	}
	switch p.Code {
	case "APPROVAL_ENDED", "APPROVAL_NOT_FOUND", "APPROVER_NOT_ENTITLED", "APPROVAL_NOT_GRANTED", "APPROVALS_PENDING_LIMITED":
		return "fleetledger approvals list"
	case "TASK_NOT_FOUND":
		return "fleetledger task list"
	case "RECORD_NOT_FOUND":
		return "fleetledger memory list"
	case "MEMORY_NO_COLLECTIVE":
		return "fleetledger collective import FILE"
	case "SECTION_NOT_FOUND":
		return "fleetledger collective show"
	case "SECTION_CHANGED":
		return "fleetledger collective show " + visible(p.FactText("slug"))
	case "ACTOR_NOT_FOUND", "TOKEN_NOT_FOUND", "ACTOR_EXISTS", "LEVEL_NOT_ABOVE", "PARENT_NOT_YOURS", "SCOPE_NOT_HELD":
		return "fleetledger actors list"
	case "COMMAND_CHANGED", "APPROVAL_SPENT", "APPROVAL_EXPIRED", "NOT_REQUESTER":
		return "fleetledger approvals list --status granted"
	case "REVISION_CONFLICT", "EVENT_ID_MISMATCH", "STREAM_RESERVED", "KIND_RESERVED", "EVENT_NOT_FOUND":
		return "fleetledger events tail"
	case "TASK_NOT_OPEN", "ALREADY_CLAIMED", "NOT_YOUR_LEG", "ATTEMPT_NOT_FOUND":
		return "fleetledger task list"
	case "TASK_SETTLED", "ALREADY_REPORTED":
		return "fleetledger task list"
	case "DENIED":
		if id := p.FactText("task_id"); id != "" {
			return "fleetledger replay " + visible(id)
		}
		return "fleetledger rules list"
	case "READ_ONLY":
		if _, damaged := p.Facts["first_lost_position"]; damaged {
			return "fleetledger restore BACKUP --data DIR"
		}
		return "the operator starts it without --read-only"
	case "WITNESS_CONTRADICTS":
		return "the operator brings the newest copy back: fleetledger serve --help"
	case "NO_RULE", "RULE_NOT_FOUND", "RULES_CHANGED", "ABOVE_OWN_LEVEL", "LOCKOUT":
		return "fleetledger rules list"
	}
	switch {
	case p.Status == 401:
		return cmd.CommandPath() + " --token-file FILE"
	case p.Status == 403:
		return cmd.CommandPath() + " --token-file FILE, of somebody who may"
	case p.Status == 429 || p.Status == 503 || p.Status == 507:
		var seconds int
		if p.Fact("retry_after_s", &seconds) {
			return fmt.Sprintf("the same again in %d s", seconds)
		}
		return "the same again later"
	}
	return help
}
