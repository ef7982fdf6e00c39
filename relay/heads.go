package relay

import (
	"context"
	"time"

	"fleetledger/commands"
)

// A root over the heads of all streams is recorded after Config.RootEvery events, and
// at the latest rootAfter behind the last one if there was any event since: evidence of
// a task that has just settled shows soon that nothing of it was left out, and a quiet
// fleet is not filled with roots. Making one reads the heads of all streams: a fleet
// that has so many that it takes long gets its roots more rarely, so that they take
// one part in rootShare of one processor at most.
const (
	standardRootEvery = 10_000
	rootAfter         = 5 * time.Minute
	rootShare         = 20
)

// rootHeads records roots until ctx ends.
func (s *Relay) rootHeads(ctx context.Context, fleet string, ledger *commands.Ledger) {
	begun := ledger.Log().Now()
	var notBefore time.Time
	logged := ""
	every(ctx, sweepInterval, func() {
		start := time.Now()
		if start.Before(notBefore) || !ledger.OnDuty() || !s.rootDue(ledger, begun) {
			return
		}
		err := ledger.RootHeads(ctx)
		notBefore = time.Now().Add(rootShare * time.Since(start))
		if err == nil || ctx.Err() != nil {
			logged = ""
			return
		}
		if logged != err.Error() {
			logged = err.Error()
			s.cfg.Logger.Error("no root over the heads of all streams could be recorded", "fleet", fleet, "error", err)
		}
	})
}

func (s *Relay) rootDue(ledger *commands.Ledger, begun time.Time) bool {
	last, head := ledger.State().Rooted(), ledger.State().Position()
	if ledger.State().Newest().Event <= last.At || ledger.Degraded() != nil {
		return false
	}
	if last.Time.Before(begun) {
		last.Time = begun
	}
	return head-last.At >= s.cfg.RootEvery || ledger.Log().Now().Sub(last.Time) >= rootAfter
}
