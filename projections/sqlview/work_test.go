package sqlview

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"fleetledger/events"
	"fleetledger/projections"
)

func (l *ledger) submitted(id string, machines ...string) {
	l.t.Helper()
	l.append("task-"+id, events.TaskSubmitted{TaskID: id, Command: events.TaskCommand{Argv: []string{"ls"}, Mode: events.Replicate, Targets: machines}, Gates: []events.LegGate{}})
}

// Every page of every list at every position is the one that reading all streams
// gives.
func TestListsOfWork(t *testing.T) {
	l := newLedger(t)
	rng := rand.New(rand.NewPCG(1, 2))
	var tasks, approvals, gates []string
	status := map[string]string{}
	for i := range 120 {
		pickOf := func(want string) string {
			var list []string
			for _, id := range tasks {
				if status[id] == want {
					list = append(list, id)
				}
			}
			if len(list) == 0 {
				return ""
			}
			return list[rng.IntN(len(list))]
		}
		switch rng.IntN(6) {
		case 0, 1:
			id := fmt.Sprintf("t%d", i)
			l.submitted(id, [][]string{{"m1"}, {"m2"}, {"m1", "m2"}}[rng.IntN(3)]...)
			tasks, status[id] = append(tasks, id), projections.TaskAwaitingApproval
			if rng.IntN(2) == 0 {
				a := "a" + id
				l.append("task-"+id, events.ApprovalRequested{ApprovalID: a, GateIDs: []string{"g"}, Actions: []string{"x"}, RequestedBy: "ana"})
				approvals = append(approvals, a)
			}
		case 2:
			id := fmt.Sprintf("g%d", i)
			l.append("gate-"+id, events.ApprovalRequested{ApprovalID: "a" + id, GateIDs: []string{id}, Actions: []string{"x"}, RequestedBy: "bo"})
			approvals, gates = append(approvals, "a"+id), append(gates, "a"+id)
		case 3:
			if id := pickOf(projections.TaskAwaitingApproval); id != "" {
				status[id] = projections.TaskOpen
				l.append("task-"+id, events.TaskOpened{})
			}
		case 4:
			if id := pickOf(projections.TaskOpen); id != "" {
				status[id] = projections.TaskSettled
				l.append("task-"+id, events.TaskSettled{Verdict: events.VerdictCancelled})
			}
		default:
			if len(gates) > 0 {
				outcome := []events.ApprovalOutcome{events.Granted, events.Refused, events.Expired}[rng.IntN(3)]
				l.append("gate-"+gates[0][1:], events.ApprovalSettled{ApprovalID: gates[0], Outcome: outcome})
				gates = gates[1:]
			}
		}
	}
	v := l.view()
	ctx := context.Background()
	compare := func(what string, want []string, page func(projections.Page) ([]Listed, events.Position, error), at events.Position) {
		t.Helper()
		for _, limit := range []int{1, 7, 1000} {
			var got []string
			for p := (projections.Page{At: at, Limit: limit}); ; {
				list, last, err := page(p)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range list {
					got = append(got, e.ID)
				}
				if p.After = last; last == 0 {
					break
				}
				if len(list) != limit {
					t.Fatalf("%s at %d: a page of %d that is not the last, limit %d", what, at, len(list), limit)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s at %d in pages of %d:\n%v, not\n%v", what, at, limit, got, want)
			}
		}
	}
	for at := events.Position(1); at <= l.Durable(); at += 3 {
		for _, status := range []string{"", projections.TaskAwaitingApproval, projections.TaskOpen, projections.TaskSettled} {
			for _, machine := range []string{"", "m1", "m2", "m3"} {
				var want []string
				for _, id := range slices.Backward(tasks) {
					task, err := projections.LoadTask(ctx, l, id, at)
					if err != nil {
						t.Fatal(err)
					}
					if task != nil && (status == "" || task.Status == status) && (machine == "" || task.Leg(machine) >= 0) {
						want = append(want, id)
					}
				}
				compare(fmt.Sprintf("tasks %q on %q", status, machine), want, func(p projections.Page) ([]Listed, events.Position, error) {
					return v.Tasks(ctx, p, status, machine)
				}, at)
			}
		}
		then := map[string]string{}
		for r, err := range l.ReadAll(ctx, 0) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Header.Position > at {
				break
			}
			switch r.Header.Type {
			case events.ApprovalRequested{}.Kind():
				e, err := events.DecodeAs[events.ApprovalRequested](r)
				if err != nil {
					t.Fatal(err)
				}
				then[e.ApprovalID] = projections.ApprovalPending
			case events.ApprovalSettled{}.Kind():
				e, err := events.DecodeAs[events.ApprovalSettled](r)
				if err != nil {
					t.Fatal(err)
				}
				then[e.ApprovalID] = string(e.Outcome)
			}
		}
		for _, status := range []string{"", projections.ApprovalPending, string(events.Granted), string(events.Refused), string(events.Expired), string(events.Withdrawn)} {
			var want []string
			for _, id := range approvals {
				if s, ok := then[id]; ok && (status == "" || s == status) {
					want = append(want, id)
				}
			}
			compare(fmt.Sprintf("approvals %q", status), want, func(p projections.Page) ([]Listed, events.Position, error) {
				return v.Approvals(ctx, p, status)
			}, at)
		}
	}
}

// What a task was asked for and erased is not listed under its machines.
func TestErasedTaskHasNoTargets(t *testing.T) {
	l := newLedger(t)
	l.submitted("t1", "m1", "m2")
	position := l.Durable()
	l.submitted("t2", "m1")
	for _, id := range []string{"t1", "t2"} {
		l.append("task-"+id, events.TaskSettled{Verdict: events.VerdictCancelled})
	}
	l.erase(position)
	v := l.view()
	for machine, want := range map[string]string{"": "[t2 t1]", "m1": "[t2]", "m2": "[]"} {
		list, _, err := v.Tasks(context.Background(), projections.Page{At: l.Durable(), Limit: 10}, "", machine)
		if err != nil {
			t.Fatal(err)
		}
		ids := []string{}
		for _, e := range list {
			ids = append(ids, e.ID)
		}
		if fmt.Sprint(ids) != want {
			t.Errorf("on %q there are %v, not %s", machine, ids, want)
		}
	}
}

// A page looks at so many rows and no more; the next one goes on there.
func TestPagesOfWorkAreBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("records 10,000 tasks")
	}
	l := newLedger(t)
	l.submitted("first", "m1")
	l.append("task-first", events.TaskSettled{Verdict: events.VerdictCancelled})
	for i := range MaxLooked {
		l.submitted(fmt.Sprint("t", i), "m1")
	}
	v := l.view()
	p := projections.Page{At: l.Durable(), Limit: 10}
	list, last, err := v.Tasks(context.Background(), p, projections.TaskSettled, "")
	if err != nil || len(list) != 0 || last == 0 {
		t.Fatalf("the first page has %d tasks, the next one is after %d: %v", len(list), last, err)
	}
	p.After = last
	list, last, err = v.Tasks(context.Background(), p, projections.TaskSettled, "")
	if err != nil || len(list) != 1 || list[0].ID != "first" || last != 0 {
		t.Fatalf("the second page is %v, the next one is after %d: %v", list, last, err)
	}
}
