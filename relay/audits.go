package relay

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"

	"github.com/google/uuid"
)

// audits are the audits that were asked of a relay. They are no part of the
// ledger: a restart forgets them.
type audits struct {
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu   sync.Mutex
	list []*auditRun // newest last; guarded by mu, with what they hold
}

// auditRun is one audit.
type auditRun struct {
	fleet string
	reply auditReply
}

// auditsKept is how many audits of a fleet are remembered.
const auditsKept = 16

type auditReply struct {
	AuditID   string        `json:"audit_id"`
	Status    string        `json:"status" enum:"running,done,failed"`
	Progress  auditProgress `json:"progress"`
	StartedBy string        `json:"started_by"`
	StartedAt time.Time     `json:"started_at"`
	EndedAt   *time.Time    `json:"ended_at,omitzero"`
	Report    *audit.Report `json:"report" doc:"Null until it is done."`
	Failure   string        `json:"failure,omitzero" doc:"Why it could not be finished."`

	status int
}

type auditProgress struct {
	Done events.Position `json:"done" doc:"The position up to which the log was audited."`
	Of   events.Position `json:"of"`
}

func (r auditReply) httpStatus() int { return r.status }

func (a *audits) start() { a.ctx, a.cancel = context.WithCancel(context.Background()) }

// stop ends the audits that run and waits for it.
func (a *audits) stop() {
	a.mu.Lock()
	a.cancel() // under the lock, so that none is started after it
	a.mu.Unlock()
	a.running.Wait()
}

// startAudit starts an audit of the caller's fleet. One runs at a time: whoever
// comes while it does is told of that one.
func (c *call) startAudit(none) (auditReply, error) {
	a := &c.audits
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ctx.Err() != nil {
		return auditReply{}, errDraining
	}
	for _, run := range a.list {
		if run.fleet == c.fleet && run.reply.Status == "running" {
			out := run.reply
			out.status = http.StatusOK
			return out, nil
		}
	}
	id, err := uuid.NewV7()
	if err != nil {
		return auditReply{}, err
	}
	run := &auditRun{fleet: c.fleet, reply: auditReply{
		AuditID: id.String(), Status: "running", StartedBy: c.token.Actor, StartedAt: c.ledger.Log().Now(),
		Progress: auditProgress{Of: c.ledger.Log().Durable()},
	}}
	a.forget(c.fleet)
	a.list = append(a.list, run)
	a.running.Go(func() { a.run(run, c.ledger, c.cfg.Seals[c.fleet]) })
	out := run.reply
	out.status = http.StatusCreated
	return out, nil
}

// forget makes room for one more audit of a fleet.
func (a *audits) forget(fleet string) {
	kept := 0
	for _, run := range a.list {
		if run.fleet == fleet {
			kept++
		}
	}
	if kept >= auditsKept {
		oldest := slices.IndexFunc(a.list, func(run *auditRun) bool { return run.fleet == fleet })
		a.list = slices.Delete(a.list, oldest, oldest+1)
	}
}

func (a *audits) run(run *auditRun, ledger *commands.Ledger, sealer *seal.Sealer) {
	report, err := a.report(run, ledger, sealer)
	now := ledger.Log().Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	run.reply.EndedAt = &now
	if err != nil {
		run.reply.Status, run.reply.Failure = "failed", err.Error()
		return
	}
	run.reply.Status, run.reply.Report = "done", &report
	run.reply.Progress.Done, run.reply.Progress.Of = report.To, report.To
}

// report audits the log, and the newest checkpoint over it.
func (a *audits) report(run *auditRun, ledger *commands.Ledger, sealer *seal.Sealer) (audit.Report, error) {
	var checkpoints [][]byte
	if sealer != nil {
		signed, err := sealer.Checkpoint()
		if err != nil {
			return audit.Report{}, err
		}
		checkpoints = append(checkpoints, signed)
	}
	report, err := audit.Run(a.ctx, events.ReadStored(a.ctx, ledger.Log(), 0), audit.Options{Live: ledger, Checkpoints: checkpoints, Progress: func(done events.Position) {
		a.mu.Lock()
		defer a.mu.Unlock()
		run.reply.Progress.Done = done
	}})
	if r, ok := errors.AsType[*events.ReadOnlyError](ledger.Degraded()); ok && r.Lost > 0 {
		// What can be read is not all that there was.
		report.Add(audit.Finding{Kind: audit.Anchor, Position: r.Lost, Detail: r.Detail})
	}
	return report, err
}

func (c *call) getAudit() (auditReply, error) {
	a := &c.audits
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, run := range a.list {
		if run.fleet == c.fleet && run.reply.AuditID == c.path("id") {
			out := run.reply
			out.status = http.StatusOK
			return out, nil
		}
	}
	return auditReply{}, notFound("AUDIT_NOT_FOUND", "no audit %+q is remembered; start one with POST /v1/audit", c.path("id"))
}
