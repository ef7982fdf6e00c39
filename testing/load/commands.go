package load

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"fleetledger/events"
	"fleetledger/projections"
)

// Commands makes up commands as agents and people run them: builds, tests, searches,
// version control, pipes. About four in ten repeat an earlier one exactly, as they
// do in real histories.
type Commands struct {
	rng    *rand.Rand
	recent [][]string
}

// NewCommands returns the commands of a seed: the same ones every time.
func NewCommands(seed uint64) *Commands {
	return &Commands{rng: rand.New(rand.NewPCG(seed, 7))}
}

const (
	repeated  = 41 // in a hundred
	remembers = 50000
)

// Next is the next command.
func (c *Commands) Next() []string {
	if len(c.recent) > 0 && c.rng.IntN(100) < repeated {
		return c.recent[c.rng.IntN(len(c.recent))]
	}
	argv := c.made()
	if len(c.recent) < remembers {
		c.recent = append(c.recent, argv)
	} else {
		c.recent[c.rng.IntN(remembers)] = argv
	}
	return argv
}

func (c *Commands) one(list ...string) string { return list[c.rng.IntN(len(list))] }

var (
	nouns = strings.Fields("events relay agent commands projections log store cursor batch server client token rule gate task report memory section block council tile proof root leaf key seal audit replay outbox lease stream queue index cache parser encoder header payload fleet worker bench fixture schema view query page search view panel user order cart invoice mail search auth session upload image report chart import export")
	verbs = strings.Fields("fix add remove rename split merge test check bound refuse name move keep drop read write open close wait retry fold append sign verify")
)

func (c *Commands) noun() string { return c.one(nouns...) }

func (c *Commands) file() string {
	return fmt.Sprintf("%s/%s_%s.%s", c.noun(), c.noun(), c.noun(), c.one("go", "py", "ts", "rs", "md", "json"))
}

func (c *Commands) message() string {
	return fmt.Sprintf("%s: %s the %s of %s, so that %s's %s is kept", c.noun(), c.one(verbs...), c.noun(), c.noun(), c.noun(), c.noun())
}

func (c *Commands) test() string {
	return "Test" + strings.ToUpper(c.noun()[:1]) + c.noun()[1:] + strings.ToUpper(c.noun()[:1]) + c.noun()[1:]
}

func (c *Commands) made() []string {
	n := func(most int) string { return fmt.Sprint(1 + c.rng.IntN(most)) }
	shell := func(line string) []string { return []string{"bash", "-lc", line} }
	switch c.rng.IntN(16) {
	case 0:
		return []string{"go", "test", "./" + c.noun() + "/...", "-run", c.test() + "|" + c.test(), "-count=" + n(20)}
	case 1:
		return []string{"go", c.one("vet", "build", "test"), "./" + c.noun() + "/" + c.noun()}
	case 2:
		return []string{"git", "commit", "-am", c.message()}
	case 3:
		return []string{"git", "log", "--oneline", "-" + n(50), "--", c.file()}
	case 4:
		return shell(fmt.Sprintf("grep -rn '%s.*%s' --include='*.go' %s | head -%s", c.noun(), c.noun(), c.noun(), n(100)))
	case 5:
		return []string{"sed", "-n", n(400) + "," + n(900) + "p", c.file()}
	case 6:
		return shell(fmt.Sprintf("pytest tests/%s -k '%s and not %s' -x -q 2>&1 | tail -%s", c.file(), c.noun(), c.noun(), n(60)))
	case 7:
		return []string{"npm", "run", c.one("build", "test", "lint", "dev"), "--", "--filter=" + c.noun() + "-" + c.noun(), "--port=" + n(9000)}
	case 8:
		return shell(fmt.Sprintf("cd %s && cargo test %s_%s -- --nocapture || true", c.noun(), c.noun(), c.noun()))
	case 9:
		return []string{"curl", "-sS", "-H", "Content-Type: application/json", "-d", fmt.Sprintf(`{"%s": "%s", "n": %s}`, c.noun(), c.noun(), n(1000)), "http://127.0.0.1:" + n(9999) + "/v1/" + c.noun()}
	case 10:
		return []string{"kubectl", "-n", c.noun(), "logs", "deploy/" + c.noun() + "-" + n(40), "--since=" + n(90) + "m"}
	case 11:
		return []string{"docker", "build", "-t", c.noun() + "/" + c.noun() + ":" + n(500), "-f", c.noun() + "/Dockerfile", "."}
	case 12:
		return shell(fmt.Sprintf("find %s -name '*.%s' -newer %s | xargs wc -l | sort -n | tail -%s", c.noun(), c.one("go", "py"), c.file(), n(30)))
	case 13:
		return []string{"python3", "-m", c.noun() + "." + c.noun(), "--in", c.file(), "--seed", n(100000)}
	case 14:
		return []string{"echo", c.one("テスト", "修复", "проверка", "🚀") + c.one("実行", "错误日志", " журнала", " done") + n(3000)}
	}
	return []string{`.\build.ps1`, "-Project", `C:\src\` + c.noun() + `\` + c.noun(), "-Run", n(5000)}
}

// Pasted is a command as somebody pastes it to ask for it.
func (c *Commands) Pasted(argv []string) string {
	if len(argv) == 3 && argv[1] == "-lc" && c.rng.IntN(2) == 0 {
		return argv[2]
	}
	if c.rng.IntN(3) == 0 {
		return strings.Join(argv, " ")
	}
	return projections.CommandLine(argv)
}

// Run is the i-th finished run of a history, of a command: who ran it, where, and
// how it ended.
func (c *Commands) Run(i int, argv []string, start time.Time) events.MemoryRecorded {
	exit := 0
	stderr := ""
	if c.rng.IntN(4) == 0 {
		exit = 1 + c.rng.IntN(2)
		stderr = fmt.Sprintf("%s:%d:%d: undefined: %s\nmake: *** [Makefile:%d: all] Error 1\n", c.file(), c.rng.IntN(900), c.rng.IntN(80), c.noun(), c.rng.IntN(90))
	}
	at := start.Add(time.Duration(i) * 30 * time.Second)
	machine := fmt.Sprintf("m%d", c.rng.IntN(20))
	return events.MemoryRecorded{Record: events.MemoryRecord{
		Argv: argv, Tags: []string{c.noun()},
		Envelope: events.Envelope{
			Outcome: events.Exited, ExitCode: &exit, StartedAt: at, EndedAt: at.Add(time.Second), ElapsedMS: 1000, Machine: machine,
			Cwd: "/src/" + c.noun(), Repo: "https://example.org/" + c.one(nouns[:8]...) + ".git", Commit: fmt.Sprintf("%040x", c.rng.Uint64()),
			Masked: len(argv) == 3 && argv[1] == "-lc", Transport: "agent", AgentVersion: "bench",
			Stderr: events.Output{Bytes: int64(len(stderr)), SHA256: events.SumHash(stderr), Tail: stderr},
		},
	}}
}

// RecordRuns appends n finished runs to a log, at most a thousand at a time, and
// returns the commands of every step-th.
func RecordRuns(ctx context.Context, log events.Log, c *Commands, n, step int, start time.Time, progress func(done int)) (sample [][]string, err error) {
	for done := 0; done < n; {
		var a events.Append
		for len(a.Drafts) < events.MaxAppendEvents && done < n {
			argv := c.Next()
			if done%step == 0 {
				sample = append(sample, argv)
			}
			e := c.Run(done, argv, start)
			payload, err := events.Encode(e)
			if err != nil {
				return nil, err
			}
			var salt [events.SaltBytes]byte
			binary.BigEndian.PutUint64(salt[:], uint64(done))
			id := sha256.Sum256(salt[:])
			a.Drafts = append(a.Drafts, events.NewDraft(events.Intent{
				ID: fmt.Sprintf("%x-%x-7%03x-8%03x-%x", id[:4], id[4:6], id[6:8][0], id[8:10][0], id[10:16]), Stream: events.MachineStream(e.Record.Machine),
				Type: e.Kind(), Schema: events.Schema, Actor: e.Record.Machine, Correlation: fmt.Sprint(done),
			}, salt, payload))
			done++
		}
		if _, err := log.Append(ctx, a); err != nil {
			return nil, err
		}
		progress(done)
	}
	return sample, nil
}
