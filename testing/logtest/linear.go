package logtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"fleetledger/events"
)

// linStreams and linKeys bound the state that a history moves through.
const (
	linStreams = 3
	linKeys    = 4
)

// linState is a log as the checker sees it: comparable, and small.
type linState struct {
	last events.Position
	revs [linStreams]events.Revision
	keys [linKeys]struct {
		first, last events.Position
		request     int
	}
}

// linOp is one call. Every kind of call has its own fields.
type linOp struct {
	kind string // "append", "stream", "all", "key"

	streams []int // written to, in order
	expect  []linExpect
	key     int // 0 for none
	request int

	stream int
}

type linExpect struct {
	stream int
	rev    events.Revision
}

// linResult is what a call returned.
type linResult struct {
	first, last events.Position
	duplicate   bool
	mismatch    bool
	conflict    *events.ConflictError
	count       int // events read
}

func linStream(i int) events.Stream { return events.Stream(fmt.Sprintf("lin-%d", i)) }

// step says whether a log in state s may answer op with res, and what it is
// then. It is the contract of events.Log, once more and in few words.
func (op linOp) step(s linState, res linResult) (bool, linState) {
	switch op.kind {
	case "stream":
		return res.count == int(s.revs[op.stream]), s
	case "all":
		return res.count == int(s.last), s
	case "key":
		k := s.keys[op.key]
		return res.first == k.first && res.last == k.last, s
	}
	if op.key != 0 {
		if k := s.keys[op.key]; k.first != 0 {
			if k.request != op.request {
				return res.mismatch && res.first == k.first, s
			}
			return res.duplicate && res.first == k.first && res.last == k.last, s
		}
	}
	for _, e := range op.expect {
		if s.revs[e.stream] != e.rev {
			want := events.ConflictError{Stream: linStream(e.stream), Expected: e.rev, Actual: s.revs[e.stream]}
			return res.conflict != nil && *res.conflict == want, s
		}
	}
	if res.duplicate || res.mismatch || res.conflict != nil || res.first != s.last+1 {
		return false, s
	}
	for _, i := range op.streams {
		s.revs[i]++
		s.last++
	}
	if op.key != 0 {
		s.keys[op.key].first, s.keys[op.key].last, s.keys[op.key].request = res.first, res.last, op.request
	}
	return res.last == s.last, s
}

// run makes the call on l.
func (op linOp) run(t *testing.T, l events.Log) (linResult, error) {
	var res linResult
	switch op.kind {
	case "stream":
		for _, err := range l.ReadStream(t.Context(), linStream(op.stream), 0) {
			if err != nil {
				return res, err
			}
			res.count++
		}
		return res, nil
	case "all":
		for _, err := range l.ReadAll(t.Context(), 0) {
			if err != nil {
				return res, err
			}
			res.count++
		}
		return res, nil
	case "key":
		a, _, err := l.FindKey(t.Context(), events.SumHash("key", fmt.Sprint(op.key)))
		res.first, res.last = a.First, a.Last
		return res, err
	}
	var a events.Append
	for _, i := range op.streams {
		a.Drafts = append(a.Drafts, draft(linStream(i), freshID()))
	}
	for _, e := range op.expect {
		a = expecting(a, linStream(e.stream), e.rev)
	}
	if op.key != 0 {
		a = keyed(a, fmt.Sprint(op.key), fmt.Sprint(op.request))
	}
	done, err := l.Append(t.Context(), a)
	var mismatch *events.KeyMismatchError
	switch {
	case err == nil:
		res.first, res.last, res.duplicate = done.First, done.Last, done.Duplicate
	case errors.As(err, &res.conflict):
	case errors.As(err, &mismatch):
		res.mismatch, res.first = true, mismatch.First
	default:
		return res, err
	}
	return res, nil
}

// testLinearizable lets clients append and read at once and checks that the
// answers fit one order of the calls that respects real time.
func testLinearizable(t *testing.T, e Engine) {
	rounds := 8
	if testing.Short() {
		rounds = 3
	}
	for round := range rounds {
		seed := uint64(time.Now().UnixNano()) + uint64(round)
		l := e.open(t, Options{})
		history := linHistory(t, l, seed)
		model := porcupine.Model{
			Init: func() any { return linState{} },
			Step: func(state, in, out any) (bool, any) {
				ok, next := in.(linOp).step(state.(linState), out.(linResult))
				return ok, next
			},
			DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
		}
		switch porcupine.CheckOperationsTimeout(model, history, 20*time.Second) {
		case porcupine.Illegal:
			for _, op := range history {
				t.Logf("client %d, %d..%d: %s", op.ClientId, op.Call, op.Return, model.DescribeOperation(op.Input, op.Output))
			}
			t.Fatalf("seed %d: no order of these calls explains their answers", seed)
		case porcupine.Unknown:
			t.Fatalf("seed %d: the history could not be checked in time", seed)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// linHistory has clients make random calls, and returns what they got and when.
func linHistory(t *testing.T, l events.Log, seed uint64) []porcupine.Operation {
	const clients, each = 6, 20
	var (
		wg      sync.WaitGroup
		mu      sync.Mutex
		history []porcupine.Operation
		start   = time.Now()
	)
	for c := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(c)))
			var known [linStreams]events.Revision // what this client believes
			for range each {
				op := randomOp(rng, known)
				call := time.Since(start).Nanoseconds()
				res, err := op.run(t, l)
				returned := time.Since(start).Nanoseconds()
				if err != nil {
					t.Errorf("%+v: %v", op, err)
					return
				}
				switch {
				case op.kind == "stream":
					known[op.stream] = events.Revision(res.count)
				case res.conflict != nil:
					for i := range known {
						if linStream(i) == res.conflict.Stream {
							known[i] = res.conflict.Actual
						}
					}
				case op.kind == "append" && !res.duplicate && !res.mismatch:
					for _, i := range op.streams {
						known[i]++
					}
				}
				mu.Lock()
				history = append(history, porcupine.Operation{ClientId: c, Input: op, Call: call, Output: res, Return: returned})
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return history
}

func randomOp(rng *rand.Rand, known [linStreams]events.Revision) linOp {
	switch n := rng.IntN(10); {
	case n == 0:
		return linOp{kind: "all"}
	case n == 1:
		return linOp{kind: "key", key: 1 + rng.IntN(linKeys-1)}
	case n < 4:
		return linOp{kind: "stream", stream: rng.IntN(linStreams)}
	}
	op := linOp{kind: "append"}
	for range 1 + rng.IntN(2) {
		op.streams = append(op.streams, rng.IntN(linStreams))
	}
	for range rng.IntN(3) {
		i := rng.IntN(linStreams)
		op.expect = append(op.expect, linExpect{stream: i, rev: known[i]})
	}
	if rng.IntN(3) == 0 {
		op.key, op.request = 1+rng.IntN(linKeys-1), rng.IntN(2)
	}
	return op
}
