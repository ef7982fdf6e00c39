package sqlview

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
)

// table reads rows as text, one a line.
func table(t *testing.T, v *View, query string) string {
	t.Helper()
	var out []string
	err := v.look(t.Context(), func(r reader) error {
		return r.each(func(rows *sql.Rows) error {
			columns, err := rows.Columns()
			if err != nil {
				return err
			}
			values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
			for i := range values {
				into[i] = &values[i]
			}
			err = rows.Scan(into...)
			var line []string
			for _, v := range values {
				if !v.Valid {
					v.String = "NULL"
				}
				line = append(line, v.String)
			}
			out = append(out, strings.Join(line, "|"))
			return err
		}, query)
	})
	if err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return strings.Join(out, "\n")
}

func level(n events.Level) *events.Level { return &n }

// founding is a log with one of every kind that is folded.
func founding(t *testing.T) *ledger {
	l := newLedger(t)
	scope, rule := "team-a", "r1"
	l.append("authority", events.ActorRegistered{ID: "root", Type: events.Human, AuthorityLevel: 100, Scopes: []string{}})
	l.append("authority", events.ActorRegistered{ID: "ana", Type: events.Human, AuthorityLevel: 60, Scopes: []string{"team-a"}})
	l.append("authority", events.ActorRegistered{ID: "ana.bot", Type: events.Agent, AuthorityLevel: 80, Cap: level(70), Parent: "ana", Scopes: []string{}})
	l.append("authority", events.ActorRegistered{ID: "m1", Type: events.Machine, AuthorityLevel: 10, Scopes: []string{}})
	l.append("authority", events.ActorLevelSet{ID: "ana", AuthorityLevel: 40})
	l.append("authority", events.ActorScopesChanged{ID: "ana", Added: []string{"team-b"}, Removed: []string{"team-a"}})
	l.append("authority", events.ActorSuspended{ID: "ana"})
	l.append("authority", events.RuleWritten{RuleID: rule, Rule: events.Rule{Action: "deploy.*", MinLevel: level(50), Scope: &scope, Why: "careful"}})
	l.append("authority", events.RuleWritten{RuleID: "r2", Rule: events.Rule{Action: "x"}})
	l.append("authority", events.RuleRetired{RuleID: "r2"})

	decisive := events.Evaluated{RuleID: &rule, Verdict: events.NeedsApproval, ReasonCode: events.ReasonBelowMinimum, Reason: "40 is below 50"}
	l.append("gate-g1", events.GateDecided{GateID: "g1", Asked: true, Command: []byte(`{"to":"prod"}`), Decision: events.Decision{
		Verdict: events.NeedsApproval, Action: "deploy.prod", Actor: "ana", Level: 40, Decisive: &decisive, AuthorityRevision: 9}})
	l.append("gate-g1", events.ApprovalRequested{ApprovalID: "p1", GateIDs: []string{"g1"}, RequestedBy: "ana", Actions: []string{"deploy.prod"},
		Level: 40, RequiredLevel: 50, Why: "40 is below 50", ExpiresAt: l.now.Add(time.Hour)})
	l.append("gate-g1", events.ApprovalSettled{ApprovalID: "p1", Outcome: events.Granted, Reason: "go"})
	l.append("gate-g1", events.ApprovalSpent{ApprovalID: "p1"})

	l.append("task-t1", events.TaskSubmitted{TaskID: "t1", Command: events.TaskCommand{Argv: []string{"make", "all"}, Mode: events.Single, Targets: []string{"m1"}, Cwd: "/src"},
		Gates: []events.LegGate{{Machine: "m1", GateID: "g2", Decision: events.Decision{Verdict: events.Allow, Action: "task.submit.m1", Actor: "root", Level: 100}}}})
	l.append("task-t1", events.TaskOpened{})
	l.append("task-t1", events.TaskClaimed{Machine: "m1", Attempt: 1, LeaseExpiresAt: l.now.Add(time.Minute)})
	l.append("task-t1", events.LeaseLapsed{Machine: "m1", Attempt: 1, Reoffered: true})
	l.append("task-t1", events.TaskClaimed{Machine: "m1", Attempt: 2, LeaseExpiresAt: l.now.Add(time.Minute)})
	code := 2
	l.append("task-t1", events.TaskReported{Machine: "m1", Attempt: 2, Envelope: events.Envelope{Outcome: events.Exited, ExitCode: &code, Machine: "m1", EndedAt: l.now, ElapsedMS: 7,
		Stderr: events.Output{Tail: "main.go:12:3: undefined: frob\nmake: *** [Makefile:3: all] Error 1\n"}}})
	l.append("task-t1", events.TaskSettled{Verdict: events.VerdictFailed})
	l.append("task-t2", events.TaskSubmitted{TaskID: "t2", Command: events.TaskCommand{Argv: []string{"true"}, Mode: events.Single, Targets: []string{"m1"}}})
	l.append("task-t2", events.TaskCancelled{Reason: "not needed"})
	l.append("task-t2", events.TaskSettled{Verdict: events.VerdictCancelled})

	l.append("collective", events.SectionRevised{Slug: "build", Heading: "Build", Text: "make all", Evidence: []string{"t1"}})
	l.append("collective", events.SectionRetired{Slug: "build"})
	hash := events.SumHash("a")
	l.append("block-"+hash.String(), events.BlockPublished{Hash: hash, Fields: map[string]string{"focus": "tests"}})
	l.append("block-"+hash.String(), events.BlockAccepted{Hash: hash, Fields: map[string]string{}})
	return l
}

func TestTablesTellWhatHappened(t *testing.T) {
	v := founding(t).view()
	if p := table(t, v, `SELECT * FROM parked`); p != "" {
		t.Errorf("parked: %s", p)
	}
	for query, want := range map[string]string{
		`SELECT actor_id, kind, authority_level, cap, parent, scopes, suspended FROM actors ORDER BY position`: `root|human|100|NULL|NULL|[]|0
ana|human|40|NULL|NULL|["team-b"]|1
ana.bot|agent|80|70|ana|[]|0
m1|machine|10|NULL|NULL|[]|0`,
		`SELECT * FROM actor_levels ORDER BY actor_id`:                                                                                                                                                                      "ana|40|0\nana.bot|40|0\nm1|10|1\nroot|100|1",
		`SELECT rule_id, action, min_level, scope, why, retired_at IS NULL FROM rules ORDER BY position`:                                                                                                                    "r1|deploy.*|50|team-a|careful|1\nr2|x|NULL|NULL|NULL|0",
		`SELECT gate_id, actor, action, machine, task_id, verdict, rule_id, reason_code, asked, command, approval_id FROM gates ORDER BY position`:                                                                          "g1|ana|deploy.prod|NULL|NULL|needs_approval|r1|BELOW_MINIMUM|1|{\"to\":\"prod\"}|p1\ng2|root|task.submit.m1|m1|t1|allow|NULL|NULL|0|NULL|NULL",
		`SELECT approval_id, task_id, requested_by, actions, required_level, status, settled_by, reason, spent_at IS NOT NULL FROM approvals`:                                                                               `p1|NULL|ana|["deploy.prod"]|50|granted|ana|go|1`,
		`SELECT task_id, command, argv, targets, cwd, status, verdict, reason FROM tasks ORDER BY task_id`:                                                                                                                  `t1|make all|["make","all"]|["m1"]|/src|settled|failed|NULL` + "\n" + `t2|true|["true"]|["m1"]|NULL|settled|cancelled|not needed`,
		`SELECT attempts.attempt, attempts.machine, lapsed_at IS NOT NULL, attempts.outcome, attempts.exit_code, command, failure, failure_version FROM attempts LEFT JOIN runs ON runs.position = attempts.run ORDER BY 1`: "1|m1|1|NULL|NULL|NULL|NULL|NULL\n2|m1|0|exited|2|make all|main.go:#: undefined: frob|3",
		`SELECT slug, revision, retired, heading, text, evidence FROM sections ORDER BY position`:                                                                                                                           "build|1|0|Build|make all|[\"t1\"]\nbuild|2|1|NULL|NULL|NULL",
		`SELECT blocks.fields, published_by, acceptances.fields, stored FROM blocks JOIN acceptances USING (hash)`:                                                                                                          `{"focus":"tests"}|ana|{}|NULL`,
	} {
		if got := table(t, v, query); got != want {
			t.Errorf("%s\n%s\nwant\n%s", query, got, want)
		}
	}
}

// Whoever erases what can be erased leaves the tables of one who never met it.
func TestErasedFromEveryTable(t *testing.T) {
	l := founding(t)
	live := l.view()
	var erasable []events.Position
	for r, err := range l.ReadAll(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Header.Type.Erasable() {
			erasable = append(erasable, r.Header.Position)
		}
	}
	for _, p := range erasable {
		l.erase(p)
		l.upToDate(live)
	}
	rebuilt := l.view()
	for _, name := range []string{"tasks", "task_targets", "attempts", "runs", "conclusions", "gates", "approvals", "rules", "actors", "sections", "blocks", "block_parents", "acceptances", "consolidations", "cited", "forgettings", "series", "forms", "series_conclusions", "parked"} {
		query := fmt.Sprintf(`SELECT * FROM %s`, name)
		if got, want := table(t, live, query), table(t, rebuilt, query); got != want {
			t.Errorf("%s, erased:\n%s\nnever met:\n%s", name, got, want)
		}
	}
}

// Where a tail was cut does not name a failure.
func TestFailureInATail(t *testing.T) {
	for _, c := range []struct {
		o    events.Output
		want string
	}{
		{events.Output{Bytes: 9000, Truncated: true, Tail: "t/error_test.go ok\nmain.go:3: undefined: frob\n"}, "main.go:#: undefined: frob"},
		{events.Output{Bytes: 9000, Truncated: true, Tail: "error: all in one line"}, "error: all in one line"},
		{events.Output{Bytes: 9000, Truncated: true, Tail: "error: the last line\n\n"}, "error: the last line"},
		{events.Output{Bytes: 28, Tail: "error: the first\nand another\n"}, "error: the first"},
		// Of what another tool kept nobody knows whether it is all.
		{events.Output{Bytes: 29, Truncated: true, Tail: "error: the first\nand another\n"}, "error: the first"},
	} {
		if got := failureIn(wholeLines(&c.o), "", true); got != c.want {
			t.Errorf("%q: got %q, want %q", c.o.Tail, got, c.want)
		}
	}
}

func TestFailureNames(t *testing.T) {
	for _, c := range []struct{ stderr, stdout, want string }{
		{"", "", ""},
		{"main.go:12:3: undefined: frob\nmake: *** [Makefile:3: all] Error 1\n", "", "main.go:#: undefined: frob"},
		{"/home/bo/x/main.go:99:1: undefined: frob\nexit status 1\n", "", "main.go:#: undefined: frob"},
		{"npm ERR! code ELIFECYCLE\nnpm ERR! errno 1\n", "sh: 1: jest: not found\n", "sh: #: jest: not found"},
		{"", "ok 1\nTraceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    raise error\nValueError: bad port 8080\n", "ValueError: bad port #"},
		{"Traceback (most recent call last):\n  File \"a.py\", line 3, in <module>\n    open('/x')\nPermissionError: [Errno 13] Permission denied: '/x'\n", "", "PermissionError: [Errno #] Permission denied: 'x'"},
		{"ConnectionRefusedError: [Errno 111] Connection refused\nmake: *** [Makefile:3: all] Error 1\n", "", "ConnectionRefusedError: [Errno #] Connection refused"},
		{"gmake[2]: Entering directory '/x'\n[db] ERROR 1045 (28000): Access denied\ngmake[2]: *** [foo] Error 127\n", "", "[db] ERROR # (#): Access denied"},
		{"", "ld: bad thing\nsub[1] Error 2\n", "ld: bad thing"},
		{"\x1b[31merror\x1b[0m: dial tcp 10.0.0.1:5432: connect: connection refused", "", "error: dial tcp #: connect: connection refused"},
		{"curl: (7) Failed to connect to localhost port 7070 after 12 ms", "", "curl: (#) Failed to connect to localhost port # after # ms"},
		{"12 passed, 0 errors\nsegfault at 0x7ffe12\n", "", "segfault at #"},
		{"FAIL\nexit status 1", "--- FAIL: TestX (0.00s)\n    x_test.go:12: got 3, want 4\nFAIL\nFAIL\tmod/x\t0.1s\n", "x_test.go:#: got #, want #"},
		{"", "{\n  \"a\": 1\n}\n---\n", ""},
		{"error: Recipe `test` failed on line 3 with exit code 1", "expected 200, got 500", "expected #, got #"},
	} {
		if got := failureIn(c.stderr, c.stdout, true); got != c.want {
			t.Errorf("%q %q: got %q, want %q", c.stderr, c.stdout, got, c.want)
		}
	}
	if got := failureIn("", "12 files\nall is well\n", false); got != "" {
		t.Errorf("of what may have succeeded: got %q", got)
	}
}
