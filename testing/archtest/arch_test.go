// Package archtest holds the house to its plan: which room may import which,
// and which library lives where. A rule that fails says why it is there.
package archtest

import (
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
)

const module = "fleetledger/"

// rooms are the top-level folders, and what each may import of the others.
var rooms = map[string][]string{
	"cmd":         {"relay", "agent", "commands", "projections", "migrations", "events", "testing"},
	"relay":       {"commands", "projections", "events"},
	"agent":       {"events"},
	"commands":    {"projections", "events"},
	"projections": {"events"},
	"migrations":  {"events"},
	"events":      {},
	"testing":     {"cmd", "relay", "agent", "commands", "projections", "migrations", "events"},
}

// homes are libraries that only some packages may import, by prefix, and why.
var homes = []struct {
	library string
	in      []string
	why     string
}{
	{"github.com/cockroachdb/pebble/", []string{"events/pebblelog", "testing/load"}, "only engines store; everything else reads through events.Log"},
	{"github.com/EventStore/", []string{"events/kurrentlog", "testing/kurrentstub"}, "the client's faults stay inside its engine"},
	{"github.com/ThreeDotsLabs/", []string{"relay/bus"}, "the log is the source; the bus is one subscriber of it"},
	{"github.com/go-chi/chi/", []string{"relay", "testing/load"}, "HTTP is the relay's"},
	{"github.com/danielgtaylor/huma/", []string{"relay"}, "the API is described where it is served"},
	{"github.com/prometheus/", []string{"relay"}, "what is measured is told where it is served"},
	{"github.com/spf13/cobra", []string{"cmd"}, "the command line is the program's"},
	{"github.com/go-jose/go-jose/", []string{"events/devicekey"}, "the form of signatures is read and written in one place, for the machine and for the relay"},
	{"github.com/google/uuid", []string{"cmd", "agent", "relay", "testing"}, "decisions take ids as arguments"},
	{"filippo.io/torchwood", []string{"events/seal", "testing/witnessstub"}, "the formats of proofs are read and written in one place"},
	{"golang.org/x/mod/sumdb/", []string{"events/seal", "testing/logtest", "testing/witnessstub"}, "the formats of proofs are read and written in one place"},
	{"github.com/zricethezav/gitleaks/", []string{"events/secrets"}, "what is a secret is decided in one place, for the machine and for the relay"},
	{"modernc.org/sqlite", []string{"projections/sqlview", "migrations/histories", "testing/load"}, "SQLite is a view for analysts, and a file of atuin's; the log is elsewhere"},
	{"mvdan.cc/sh/", []string{"events/shell"}, "what a shell can hide is decided in one place, for the machine and for the relay"},
}

// pure are packages that a replay runs: they may not ask a clock, a network or
// chance.
var pure = []string{"commands/gate", "projections", "commands/audit", "commands/evidence"}

type pkg struct {
	ImportPath   string
	Imports      []string
	TestImports  []string
	XTestImports []string
}

func list(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "fleetledger/...")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var pkgs []pkg
	for _, part := range strings.Split(string(out), "\n}\n") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		var p pkg
		if err := json.Unmarshal([]byte(part+"\n}"), &p); err != nil {
			t.Fatal(err)
		}
		pkgs = append(pkgs, p)
	}
	if len(pkgs) < 8 {
		t.Fatalf("go list found only %d packages", len(pkgs))
	}
	return pkgs
}

func room(path string) string {
	name, _, _ := strings.Cut(strings.TrimPrefix(path, module), "/")
	return name
}

func TestRooms(t *testing.T) {
	for _, p := range list(t) {
		from := room(p.ImportPath)
		allowed, ok := rooms[from]
		if !ok {
			t.Errorf("%s: %q is no room; the rooms are those of the architecture", p.ImportPath, from)
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			if to := room(imp); to != from && !slices.Contains(allowed, to) {
				t.Errorf("%s imports %s: %s may import only %v; arrows go downward", p.ImportPath, imp, from, allowed)
			}
		}
	}
}

// Engines stand side by side: what two of them need is in events or seal.
func TestEnginesDoNotImportEachOther(t *testing.T) {
	engines := []string{module + "events/memlog", module + "events/pebblelog", module + "events/kurrentlog"}
	for _, p := range list(t) {
		if !slices.Contains(engines, p.ImportPath) {
			continue
		}
		for _, imp := range p.Imports {
			if imp != p.ImportPath && slices.Contains(engines, imp) {
				t.Errorf("%s imports %s: an engine never imports another", p.ImportPath, imp)
			}
		}
	}
}

func TestLibrariesLiveInTheirRooms(t *testing.T) {
	for _, p := range list(t) {
		for _, h := range homes {
			home := slices.ContainsFunc(h.in, func(in string) bool {
				return p.ImportPath == module+in || strings.HasPrefix(p.ImportPath, module+in+"/")
			})
			if home {
				continue
			}
			for _, imp := range p.Imports {
				if strings.HasPrefix(imp, h.library) {
					t.Errorf("%s imports %s: %s", p.ImportPath, imp, h.why)
				}
			}
		}
	}
}

// Only the program may use the test and load rooms, and only to measure.
func TestProductDoesNotImportTests(t *testing.T) {
	for _, p := range list(t) {
		if room(p.ImportPath) == "testing" {
			continue
		}
		for _, imp := range p.Imports {
			if strings.HasPrefix(imp, module+"testing/") && imp != module+"testing/load" {
				t.Errorf("%s imports %s: only tests do", p.ImportPath, imp)
			}
		}
	}
}

// A replay gives the same bytes every time, so what it runs cannot reach
// anything that differs between two runs.
func TestFoldsAndDecisionsArePure(t *testing.T) {
	forbidden := []string{"net", "net/http", "os", "math/rand", "math/rand/v2", "crypto/rand", "os/exec", "github.com/google/uuid"}
	for _, p := range list(t) {
		if !slices.Contains(pure, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains(forbidden, imp) {
				t.Errorf("%s imports %s: decisions and folds take time, ids and randomness as arguments", p.ImportPath, imp)
			}
		}
	}
}
