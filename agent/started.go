package agent

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"fleetledger/agent/runner"
)

// running is an attempt whose command was about to be started, and has not ended
// as far as the agent got.
type running struct {
	TaskID    string    `json:"task_id"`
	Attempt   int       `json:"attempt"`
	Argv      []string  `json:"argv"` // without its secrets
	StartedAt time.Time `json:"started_at"`
	// Mark is in the environment of everything that the command started.
	Mark string `json:"mark"`
}

// started is the agent's own log of what it has started, each in a file of its own
// named by its mark: there before the command is, and gone once the command and
// what it started are.
type started struct {
	dir string
	log *slog.Logger
}

// put notes r. It is of use as long as the processes are: a loss of power ends both.
func (s started) put(r running) error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	b, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return writeFile(s.file(r.Mark), b, false)
}

func (s started) file(mark string) string { return filepath.Join(s.dir, mark+".json") }

// remove forgets a command that has ended. If its file stays, the next start looks
// for processes that are not there.
func (s started) remove(mark string) {
	if err := os.Remove(s.file(mark)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("what has ended could not be removed from the log of what was started", "file", s.file(mark), "error", err)
	}
}

// endLeft ends what an agent that was killed has left running. Its attempts are not
// reported: what ran without its agent has no trustworthy end, so their leases
// lapse, and a next attempt finds none of them at work.
func (s started) endLeft() error {
	files, err := os.ReadDir(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("log of what was started: %w", err)
	}
	removeLeft(s.dir, files)
	for _, f := range files {
		mark, ok := strings.CutSuffix(f.Name(), ".json")
		if !ok {
			continue // a crash left it half written: nothing was started
		}
		ended := runner.EndMarked(mark)
		var r running
		b, err := os.ReadFile(s.file(mark))
		if err == nil {
			err = json.Unmarshal(b, &r)
		}
		if err != nil {
			s.log.Error("an entry of the log of what was started cannot be read", "file", s.file(mark), "error", err)
		}
		s.log.Warn("the agent ended while this command ran; it is not run again unless the relay offers another attempt",
			"task", r.TaskID, "attempt", r.Attempt, "argv", r.Argv, "started_at", r.StartedAt, "processes_ended", ended)
		s.remove(mark)
	}
	return nil
}
