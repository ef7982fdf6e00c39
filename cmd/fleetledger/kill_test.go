package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/agent"
)

// TestKill kills the real server with SIGKILL at random moments while callers and
// an agent are busy, again and again, and then holds the log to what was
// acknowledged: every event is there, where it was acknowledged, and none twice; the
// audit finds nothing. Now and then a backup is begun before the kill; if it is done
// in time, it holds all that had been acknowledged.
//
// FLEETLEDGER_KILLS is how often; 20 times if it is not set.
func TestKill(t *testing.T) {
	if testing.Short() || runtime.GOOS == "windows" {
		t.Skip("it runs real servers")
	}
	kills := 20
	if text := os.Getenv("FLEETLEDGER_KILLS"); text != "" {
		var err error
		if kills, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	s := &soak{data: filepath.Join(dir, "data"), dir: dir, agents: 1, seed: seed}
	var err error
	if s.program, err = exec.LookPath("fleetledger"); err != nil { // TestMain has put it there
		t.Fatal(err)
	}
	if s.listen, err = freeAddress(); err != nil {
		t.Fatal(err)
	}
	if err := s.start(t.Context(), 0, 0); err != nil {
		t.Fatal(err)
	}
	defer func() { s.server.Kill() }()
	book, agents, err := s.found(t.Context())
	for _, ag := range agents {
		defer ag.kill()
	}
	if err != nil {
		t.Fatal(err)
	}

	busy, stop := context.WithCancel(t.Context())
	defer stop()
	worked := make(chan error, 1)
	go func() { worked <- book.Work(busy, 12) }()
	backups := 0
	for n := range kills {
		time.Sleep(time.Duration(random.IntN(150)) * time.Millisecond)
		var backup chan error
		if n%10 == 3 {
			backup = make(chan error, 1)
			go func() {
				backup <- s.checkBackup(t.Context(), book.Root, filepath.Join(dir, fmt.Sprintf("backup-%d", n)))
			}()
			select {
			case err := <-backup:
				if err != nil {
					t.Fatalf("after %d kills: a backup under load: %v", n, err)
				}
				backups++
				backup = nil
			case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
			}
		}
		s.server.Kill()
		if backup != nil {
			<-backup // it fails; or it was just done
		}
		if err := s.start(t.Context(), 0, 0); err != nil {
			t.Fatalf("after %d kills: %v", n+1, err)
		}
		select {
		case err := <-worked:
			t.Fatalf("after %d kills: %v", n+1, err)
		default:
		}
	}
	if err := s.checkBackup(t.Context(), book.Root, filepath.Join(dir, "backup")); err != nil {
		t.Fatalf("a backup under load: %v", err)
	}
	stop()
	if err := <-worked; err != nil {
		t.Fatal(err)
	}
	check, err := book.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	counts := book.Counts()
	t.Logf("%d kills, %d backups: %+v; %d events in the log", kills, backups+1, counts, check.Events)
	if !check.OK() {
		t.Errorf("%+v", check)
	}
	if counts.Unanswered == 0 || counts.Acknowledged < kills {
		t.Errorf("too little was under way: %+v", counts)
	}
	s.server.Kill()
	if err := s.audit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !s.counts.Audit.OK {
		t.Errorf("the audit: %+v", s.counts.Audit)
	}
}

// checkBackup backs the server up, restores that elsewhere, and compares how much
// there is with what had been acknowledged before. The program audits both copies.
func (s *soak) checkBackup(ctx context.Context, root *agent.Client, dir string) error {
	resp, err := root.Get(ctx, "/v1/limits", nil)
	if err != nil {
		return err
	}
	before, err := strconv.ParseInt(resp.Header.Get("Ledger-Position"), 10, 64)
	if err != nil {
		return err
	}
	restored := dir + "-restored"
	for _, args := range [][]string{
		{"backup", dir, "--json", "--server", "http://" + s.listen, "--token-file", rootTokenFile(s.data, defaultFleet)},
		{"restore", dir, "--json", "--data", restored},
	} {
		var stderr bytes.Buffer
		cmd := exec.CommandContext(ctx, s.program, args...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w: %s%s", args[0], err, out, &stderr)
		}
		var copied struct {
			Fleets []struct {
				Events int64 `json:"events"`
			} `json:"fleets"`
		}
		if err := json.Unmarshal(out, &copied); err != nil {
			return err
		}
		if len(copied.Fleets) != 1 || copied.Fleets[0].Events < before {
			return fmt.Errorf("%s: %d events were acknowledged before, and the copy has %+v", args[0], before, copied.Fleets)
		}
	}
	return nil
}
