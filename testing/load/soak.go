package load

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/agent"
)

// Soak keeps many callers busy at one fleet while its relay comes and goes, and
// keeps book of every acknowledgement, so that the log can be held to it.
type Soak struct {
	// Root and Captain are clients with those actors' tokens, Worker one of an actor
	// of level 10, all of one relay. Machines have an agent somewhere.
	Root, Captain, Worker *agent.Client
	Machines              []string
	// Run is a word that no other soak of this fleet had.
	Run string

	mu     sync.Mutex
	acked  map[string]uint64 // by event id: its position; guarded by mu
	counts SoakCounts        // guarded by mu
	tasks  []string          // guarded by mu
}

// SoakCounts is what callers did.
type SoakCounts struct {
	Acknowledged int `json:"acknowledged"`
	// Unanswered are requests whose connection broke or that a relay that was
	// coming or going turned away; each was made again under its key.
	Unanswered int `json:"unanswered"`
	// Retried are acknowledged requests that were made again on purpose.
	Retried int `json:"retried"`
	Tasks   int `json:"tasks"`
	Granted int `json:"approvals_granted"`
	Reads   int `json:"reads"`
}

// Counts is what was done so far.
func (s *Soak) Counts() SoakCounts {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Acknowledged, c.Tasks = len(s.acked), len(s.tasks)
	return c
}

// soakReceipt is the receipt in an answer.
type soakReceipt struct {
	Receipt struct {
		Position uint64 `json:"position"`
		EventID  string `json:"event_id"`
	} `json:"receipt"`
}

// Work keeps callers busy until ctx ends, and then has them finish what they
// began. Its error is a promise that was broken, not a relay that was away.
func (s *Soak) Work(ctx context.Context, callers int) error {
	s.acked = map[string]uint64{}
	finish, fail := context.WithCancelCause(context.WithoutCancel(ctx))
	defer fail(nil)
	var all sync.WaitGroup
	for i := range callers {
		random := rand.New(rand.NewPCG(uint64(i), 1))
		work := []func(context.Context, *rand.Rand, string) error{s.event, s.event, s.event, s.approval, s.task, s.read}[i%6]
		all.Go(func() {
			for n := 0; ctx.Err() == nil && finish.Err() == nil; n++ {
				if err := work(finish, random, fmt.Sprintf("%s-%d-%d", s.Run, i, n)); err != nil {
					fail(err)
				}
			}
		})
	}
	all.Wait()
	return context.Cause(finish)
}

// do makes a request until it is answered, and decodes the answer.
func (s *Soak) do(ctx context.Context, c *agent.Client, r agent.Request, into any) error {
	if r.Key == "" && r.Method == http.MethodPost {
		r.Key = agent.NewKey()
	}
	r.Once = true
	for {
		resp, err := c.Do(ctx, r)
		if err == nil {
			return resp.Decode(into)
		}
		p, isProblem := errors.AsType[*agent.Problem](err)
		if ctx.Err() != nil || isProblem && p.Status < 500 && p.Status != http.StatusTooManyRequests {
			return fmt.Errorf("%s %s: %w", r.Method, r.Path, err)
		}
		s.mu.Lock()
		s.counts.Unanswered++
		s.mu.Unlock()
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// change makes a request that records something and notes its receipt; now and
// then it makes it again, which must be answered in the same words.
func (s *Soak) change(ctx context.Context, random *rand.Rand, c *agent.Client, path string, body any, into any) error {
	r := agent.Request{Method: http.MethodPost, Path: path, Body: body, Key: agent.NewKey()}
	if path == "/v1/events" {
		r.ContentType = "application/cloudevents+json"
	}
	var answer jsontext.Value
	if err := s.do(ctx, c, r, &answer); err != nil {
		return err
	}
	var got soakReceipt
	if err := json.Unmarshal(answer, &got); err != nil || got.Receipt.Position == 0 {
		return fmt.Errorf("POST %s was answered without a receipt: %s", path, answer)
	}
	s.mu.Lock()
	before, doubled := s.acked[got.Receipt.EventID]
	s.acked[got.Receipt.EventID] = got.Receipt.Position
	s.mu.Unlock()
	if doubled {
		return fmt.Errorf("event %s was acknowledged for two requests, at positions %d and %d", got.Receipt.EventID, before, got.Receipt.Position)
	}
	if random.IntN(10) == 0 {
		var again jsontext.Value
		if err := s.do(ctx, c, r, &again); err != nil {
			return err
		}
		if string(again) != string(answer) {
			return fmt.Errorf("POST %s was answered %s, and under the same key %s", path, answer, again)
		}
		s.mu.Lock()
		s.counts.Retried++
		s.mu.Unlock()
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(answer, into)
}

func (s *Soak) event(ctx context.Context, random *rand.Rand, name string) error {
	return s.change(ctx, random, s.Worker, "/v1/events", map[string]any{
		"specversion": "1.0", "id": name, "source": "/soak", "type": "ext.soak.done", "subject": "ext-soak-" + strconv.Itoa(random.IntN(20)),
		"datacontenttype": "application/json", "data": map[string]any{"name": name, "n": random.IntN(1000)},
	}, nil)
}

// approval asks for what needs one, has it granted and spends it.
func (s *Soak) approval(ctx context.Context, random *rand.Rand, name string) error {
	command := map[string]string{"release": name}
	var gate struct {
		GateID     string `json:"gate_id"`
		ApprovalID string `json:"approval_id"`
	}
	if err := s.change(ctx, random, s.Worker, "/v1/gates", map[string]any{"action": "soak.release", "command": command, "request_approval": true}, &gate); err != nil {
		return err
	}
	if err := s.change(ctx, random, s.Captain, agent.Path("v1", "approvals", gate.ApprovalID, "settle"), map[string]any{"outcome": "granted", "reason": "soak"}, nil); err != nil {
		return tolerate(err, "APPROVAL_ENDED") // a clock that jumped ahead
	}
	if err := s.change(ctx, random, s.Worker, agent.Path("v1", "gates", gate.GateID, "spend"), map[string]any{"command": command}, nil); err != nil {
		return tolerate(err, "APPROVAL_EXPIRED")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Granted++
	return nil
}

func tolerate(err error, code string) error {
	if p, ok := errors.AsType[*agent.Problem](err); ok && p.Code == code {
		return nil
	}
	return err
}

// task has one of the machines run something, and waits until it is settled.
func (s *Soak) task(ctx context.Context, random *rand.Rand, _ string) error {
	var task struct {
		TaskID string `json:"task_id"`
		Status string `json:"status"`
	}
	if err := s.change(ctx, random, s.Worker, "/v1/tasks", map[string]any{
		"argv": []string{"true"}, "targets": []string{s.Machines[random.IntN(len(s.Machines))]}, "attempts": 2,
	}, &task); err != nil {
		return err
	}
	s.mu.Lock()
	s.tasks = append(s.tasks, task.TaskID)
	s.mu.Unlock()
	for begun := time.Now(); task.Status != "settled"; {
		if time.Since(begun) > 2*time.Minute {
			return fmt.Errorf("task %s is not settled after 2 minutes: %s", task.TaskID, task.Status)
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.do(ctx, s.Worker, agent.Request{Method: http.MethodGet, Path: agent.Path("v1", "tasks", task.TaskID)}, &task); err != nil {
			return err
		}
	}
	return nil
}

// read asks what analysts and approvers ask.
func (s *Soak) read(ctx context.Context, random *rand.Rand, _ string) error {
	paths := []string{"/v1/tasks", "/v1/approvals", "/v1/tried", "/v1/events", "/v1/memory", "/v1/actors"}
	path := paths[random.IntN(len(paths))]
	r := agent.Request{Method: http.MethodGet, Path: path, Query: url.Values{"limit": {"20"}}}
	if path == "/v1/tried" {
		r.Query.Set("q", "true")
	}
	var list struct {
		Scope jsontext.Value `json:"scope"`
	}
	if err := s.do(ctx, s.Worker, r, &list); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts.Reads++
	return nil
}

// SoakCheck is what the log has of what was acknowledged.
type SoakCheck struct {
	Events int `json:"events"`
	// Missing were acknowledged and are not there, or elsewhere; Doubled are there
	// twice; Unsettled are tasks without exactly one settlement.
	Missing   []string `json:"missing"`
	Doubled   []string `json:"doubled"`
	Unsettled []string `json:"unsettled"`
}

// OK reports whether nothing was found.
func (c SoakCheck) OK() bool { return len(c.Missing)+len(c.Doubled)+len(c.Unsettled) == 0 }

// Check reads the whole log and holds it to what was acknowledged.
func (s *Soak) Check(ctx context.Context) (SoakCheck, error) {
	check := SoakCheck{Missing: []string{}, Doubled: []string{}, Unsettled: []string{}}
	at := map[string]uint64{}
	names := map[string]bool{}
	settled := map[string]int{}
	for after := uint64(0); ; {
		var page struct {
			Items []struct {
				Position uint64 `json:"position"`
				ID       string `json:"id"`
				Type     string `json:"type"`
				Stream   string `json:"stream"`
				Data     struct {
					Name string `json:"name"`
				} `json:"data"`
			} `json:"items"`
		}
		q := url.Values{"after": {strconv.FormatUint(after, 10)}, "limit": {"1000"}}
		if err := s.do(ctx, s.Root, agent.Request{Method: http.MethodGet, Path: "/v1/events", Query: q}, &page); err != nil {
			return check, err
		}
		for _, e := range page.Items {
			if e.Position != after+1 {
				return check, fmt.Errorf("position %d comes after %d", e.Position, after)
			}
			after = e.Position
			if at[e.ID] != 0 || e.Type == "ext.soak.done" && names[e.Data.Name] {
				check.Doubled = append(check.Doubled, e.ID)
			}
			at[e.ID] = e.Position
			switch e.Type {
			case "ext.soak.done":
				names[e.Data.Name] = true
			case "task.settled":
				settled[e.Stream]++
			}
		}
		check.Events += len(page.Items)
		if len(page.Items) < 1000 {
			break
		}
	}
	for id, position := range s.acked {
		if at[id] != position {
			check.Missing = append(check.Missing, fmt.Sprintf("%s, acknowledged at %d", id, position))
		}
	}
	for _, id := range s.tasks {
		if settled["task-"+id] != 1 {
			check.Unsettled = append(check.Unsettled, id)
		}
	}
	return check, nil
}
