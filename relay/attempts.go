package relay

import (
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

type claimBody struct {
	Machine string `json:"machine" doc:"The caller."`
}

type claimReply struct {
	Attempt        int                `json:"attempt"`
	LeaseExpiresAt time.Time          `json:"lease_expires_at"`
	Command        events.TaskCommand `json:"command" doc:"argv is what this machine runs."`
	Receipt        receipt            `json:"receipt"`
}

func (c *call) claimTask(in claimBody) (claimReply, error) {
	e, rec, err := recorded[events.TaskClaimed](c.ledger.ClaimTask(c.ctx(), c.caller, commands.ClaimTask{TaskID: c.path("id"), Machine: in.Machine}))
	if err != nil {
		return claimReply{}, err
	}
	t, err := c.ledger.TaskAfter(c.ctx(), rec)
	if err != nil {
		return claimReply{}, err
	}
	command := t.Command
	command.Argv = legArgv(t, e.Machine)
	return claimReply{e.Attempt, e.LeaseExpiresAt, command, receiptOf(rec)}, nil
}

type heartbeatReply struct {
	LeaseExpiresAt time.Time `json:"lease_expires_at"`
}

func (c *call) heartbeat(none) (heartbeatReply, error) {
	n, err := c.attempt()
	if err != nil {
		return heartbeatReply{}, err
	}
	until, err := c.ledger.Heartbeat(c.ctx(), c.caller, c.path("id"), n)
	return heartbeatReply{until}, err
}

// attempt is the number of the attempt that the path names.
func (c *call) attempt() (int, error) {
	n, err := digits(c.path("n"), 31)
	if err != nil || n == 0 {
		return 0, malformed("ATTEMPT_INVALID", "%+q is not the number of an attempt: they are 1, 2, 3, ...", c.path("n"))
	}
	return int(n), nil
}

type reportBody struct {
	Envelope envelopeBody `json:"envelope"`
}

// envelopeBody is an envelope as clients of every kind send it: few of its
// members must be there.
type envelopeBody struct {
	Outcome      events.Outcome   `json:"outcome" enum:"exited,timed_out,refused,not_started,cancelled"`
	ExitCode     *int             `json:"exit_code,omitzero" nullable:"true" doc:"Null unless the command exited."`
	StartedAt    time.Time        `json:"started_at"`
	EndedAt      time.Time        `json:"ended_at"`
	ElapsedMS    int64            `json:"elapsed_ms"`
	Machine      string           `json:"machine"`
	Cwd          string           `json:"cwd,omitzero"`
	Repo         string           `json:"repo,omitzero"`
	Commit       string           `json:"commit,omitzero"`
	Dirty        *bool            `json:"dirty,omitzero" nullable:"true"`
	Stdout       outputBody       `json:"stdout,omitzero"`
	Stderr       outputBody       `json:"stderr,omitzero"`
	Masked       bool             `json:"masked,omitzero"`
	Transport    string           `json:"transport,omitzero"`
	AgentVersion string           `json:"agent_version,omitzero"`
	Memory       memoryStatusBody `json:"memory,omitzero"`
	Reason       string           `json:"reason,omitzero" doc:"Why nothing was run."`
}

type outputBody struct {
	Bytes     int64       `json:"bytes,omitzero"`
	SHA256    events.Hash `json:"sha256,omitzero"`
	Tail      string      `json:"tail,omitzero" doc:"The end of it; at most 4 KiB."`
	Truncated bool        `json:"truncated,omitzero"`
}

type memoryStatusBody struct {
	Written    bool   `json:"written,omitzero"`
	File       string `json:"file,omitzero"`
	Rotated    bool   `json:"rotated,omitzero"`
	ReasonCode string `json:"reason_code,omitzero"`
}

// envelope is b as it is kept: times in UTC and whole microseconds. path leads to
// it, for problems.
func (b envelopeBody) envelope(path string) (events.Envelope, error) {
	e := events.Envelope{
		Outcome: b.Outcome, ExitCode: b.ExitCode, StartedAt: b.StartedAt.UTC().Truncate(time.Microsecond),
		EndedAt: b.EndedAt.UTC().Truncate(time.Microsecond), ElapsedMS: b.ElapsedMS, Cwd: b.Cwd, Repo: b.Repo, Commit: b.Commit,
		Dirty: b.Dirty, Stdout: events.Output(b.Stdout), Stderr: events.Output(b.Stderr), Masked: b.Masked, Transport: b.Transport,
		Machine: b.Machine, AgentVersion: b.AgentVersion, Memory: events.MemoryStatus(b.Memory), Reason: b.Reason,
	}
	var bad []events.Problem
	for _, t := range []struct {
		name string
		time time.Time
	}{{"started_at", e.StartedAt}, {"ended_at", e.EndedAt}} {
		// Outside RFC 3339 once it is in UTC, though within it where it was written.
		if y := t.time.Year(); y < 0 || y > 9999 {
			bad = append(bad, events.Problem{Path: path + "/" + t.name, Code: events.CodeOutOfRange, Detail: "the year in UTC is not from 0 to 9999"})
		}
	}
	if bad != nil {
		return e, invalidFields(bad...)
	}
	return e, nil
}

type reportReply struct {
	Receipt receipt            `json:"receipt"`
	Late    bool               `json:"late" doc:"It came after its lease lapsed, or after the task was settled."`
	Status  string             `json:"status" enum:"open,settled" doc:"Of the task, right after the report."`
	Verdict events.TaskVerdict `json:"verdict,omitzero" enum:"refused,cancelled,lost,succeeded,quorum,diverged,partial,timed_out,failed"`
}

func (c *call) reportAttempt(in reportBody) (reportReply, error) {
	n, err := c.attempt()
	if err != nil {
		return reportReply{}, err
	}
	envelope, err := in.Envelope.envelope("/envelope")
	if err != nil {
		return reportReply{}, err
	}
	res, err := c.ledger.ReportAttempt(c.ctx(), c.caller, commands.ReportAttempt{TaskID: c.path("id"), Attempt: n, Envelope: envelope})
	e, rec, err := recorded[events.TaskReported](res, err)
	if err != nil {
		return reportReply{}, err
	}
	out := reportReply{Receipt: receiptOf(rec), Late: e.Late, Status: projections.TaskSettled}
	if settled, ok := res.Has(events.TaskSettled{}.Kind()); ok {
		s, err := events.DecodeAs[events.TaskSettled](settled)
		out.Verdict = s.Verdict
		return out, err
	}
	t, err := c.ledger.TaskAfter(c.ctx(), rec)
	if err != nil {
		return reportReply{}, err
	}
	if _, a := t.Attempt(n); rec.Erased && a != nil {
		out.Late = a.Late
	}
	if out.Status = t.Status; t.Status == projections.TaskSettled {
		out.Verdict = t.Verdict
	}
	return out, nil
}
