package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"fleetledger/agent"
	"fleetledger/events"
	"fleetledger/testing/load"
)

// realAgents starts n agents, each a process of this program with a machine of its
// own, and has each run one command after the other. What it returns stops them and
// tells how long their tasks took from submission until they were known settled.
func (b fleetBench) realAgents(ctx context.Context, t load.Target, data string, n int) (stop func() (load.Latencies, error), err error) {
	ctx, cancel := context.WithCancel(ctx)
	var processes, loops sync.WaitGroup
	end := func() {
		cancel()
		processes.Wait()
	}
	root, err := agent.NewClient("http://"+t.Addr, t.Token)
	if err != nil {
		cancel()
		return nil, err
	}
	stopping := make(chan struct{})
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	for i := range n {
		machine := fmt.Sprintf("real-%d", i+1)
		said, err := b.realAgent(ctx, root, machine, data, &processes)
		if err != nil {
			end()
			return nil, err
		}
		loops.Go(func() {
			for {
				select {
				case <-stopping:
					return
				case <-ctx.Done():
					return
				default:
				}
				begun := time.Now()
				err := b.realTask(ctx, root, machine)
				mu.Lock()
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("real agent %s: %w; it said: %s", machine, err, said))
					mu.Unlock()
					return
				}
				took = append(took, time.Since(begun))
				mu.Unlock()
			}
		})
	}
	return func() (load.Latencies, error) {
		close(stopping)
		loops.Wait()
		end()
		return load.Summarize(took), failed
	}, nil
}

// realAgent registers a machine and starts its agent, which is killed when ctx
// ends. What it says is kept.
func (b fleetBench) realAgent(ctx context.Context, root *agent.Client, machine, data string, processes *sync.WaitGroup) (*strings.Builder, error) {
	resp, err := root.Post(ctx, "/v1/actors", map[string]any{"id": machine, "kind": "machine", "authority_level": 10, "scopes": []string{}})
	if err != nil {
		return nil, err
	}
	var registered struct {
		Token string `json:"token"`
	}
	if err := resp.Decode(&registered); err != nil {
		return nil, err
	}
	token := filepath.Join(data, machine+".token")
	if err := os.WriteFile(token, []byte(registered.Token+"\n"), 0o600); err != nil {
		return nil, err
	}
	said := &strings.Builder{}
	cmd := exec.CommandContext(ctx, b.program, "agent", "--machine", machine, "--server", root.Address(), "--token-file", token,
		"--allow", b.program, "--root", data, "--state", filepath.Join(data, machine+".state"))
	cmd.Dir, cmd.Stderr, cmd.WaitDelay = data, said, time.Second
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	processes.Go(func() { _ = cmd.Wait() }) // it is killed
	return said, nil
}

// realTask has a machine run this program's shortest command.
func (b fleetBench) realTask(ctx context.Context, root *agent.Client, machine string) error {
	resp, err := root.Post(ctx, "/v1/tasks", map[string]any{"argv": []string{b.program, "version"}, "targets": []string{machine}})
	if err != nil {
		return err
	}
	var task struct {
		TaskID  string  `json:"task_id"`
		Verdict *string `json:"verdict"`
	}
	if err := resp.Decode(&task); err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	settled := errors.New("settled")
	err = root.Subscribe(limit, agent.Subscription{
		Path:  "/v1/events/stream",
		Query: url.Values{"after": {"0"}, "stream": {string(events.TaskStream(task.TaskID))}, "type": {string(events.TaskSettled{}.Kind())}},
	}, func(agent.ServerEvent) error { return settled })
	if !errors.Is(err, settled) {
		return fmt.Errorf("task %s did not settle: %w", task.TaskID, err)
	}
	if resp, err = root.Get(ctx, agent.Path("v1", "tasks", task.TaskID), nil); err != nil {
		return err
	}
	if err := resp.Decode(&task); err != nil {
		return err
	}
	if task.Verdict == nil || *task.Verdict != string(events.VerdictSucceeded) {
		return fmt.Errorf("task %s did not succeed: %s", task.TaskID, resp.Body)
	}
	return nil
}
