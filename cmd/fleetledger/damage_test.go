package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// served is a data directory as servers leave it, with every kind of file there is, an
// earlier copy of it, and what its default fleet's log has.
type served struct {
	dir, earlier string
	events       uint64
	root         events.Hash // of the first rootOf events
}

const rootOf = 30

func newServed(t *testing.T) (s served) {
	t.Helper()
	s.dir, s.earlier = filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "earlier")
	sink := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer sink.Close()
	do := func(args ...string) string {
		t.Helper()
		var out, told bytes.Buffer
		if code := run(t.Context(), args, nil, &out, &told); code != 0 {
			t.Fatalf("%q: exit code %d: %s", args, code, told.String())
		}
		return out.String()
	}
	_, stop := startServer(t, s.dir)
	stop()
	do("fleet", "found", "staging", "--data", s.dir)
	for i, text := range []string{"earlier", "later"} {
		address, stop := startServer(t, s.dir)
		at := []string{"--server", address, "--token-file", filepath.Join(s.dir, rootTokenName)}
		if i == 0 {
			do(append([]string{"subscriptions", "create", "out", "--webhook", sink.URL, "--type", "ext.*", "--after", "0"}, at...)...)
		}
		notes(t, s.dir, address, text, 40)
		for end := time.Now().Add(20 * time.Second); !strings.Contains(do(append([]string{"subscriptions", "show", "out", "--json"}, at...)...), fmt.Sprintf(`"delivered":%d`, 40*(i+1))); {
			if time.Sleep(5 * time.Millisecond); time.Now().After(end) {
				t.Fatal("nothing was delivered within 20 s")
			}
		}
		do(append([]string{"checkpoint"}, at...)...)
		stop()
		fleets, _, _, err := quiet(s.dir).openFleets(t.Context(), "", "relay", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range fleets {
			log := l.Log().(*pebblelog.Log)
			p, state, err := l.State().EncodeSnapshot()
			if err = errors.Join(err, log.WriteSnapshot(l.State().SnapshotVersion(), p, state), log.Close()); err != nil {
				t.Fatal(err)
			}
		}
		if i == 0 {
			if err := os.CopyFS(s.earlier, os.DirFS(s.dir)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var err error
	if s.events, s.root, err = s.start(t, s.dir); err != nil || s.events < 100 {
		t.Fatalf("%d events, %v", s.events, err)
	}
	return s
}

func quiet(dir string) *app {
	return &app{in: strings.NewReader(""), out: &results{w: io.Discard}, err: io.Discard, data: dir, now: time.Now}
}

// start is a start of the server, up to where it would listen, and its end.
func (s served) start(t *testing.T, dir string) (size uint64, root events.Hash, err error) {
	t.Helper()
	if err := makeData(dir); err != nil {
		return 0, root, err
	}
	fleets, seals, _, err := quiet(dir).openFleets(t.Context(), "", "relay", slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, root, err
	}
	defer func() {
		for _, l := range fleets {
			err = errors.Join(err, l.Log().Close())
		}
	}()
	for _, l := range fleets { // what a start behind a snapshot has not read yet
		log := l.Log().(*pebblelog.Log)
		for done, of := log.Verified(); done < of && log.Degraded() == nil; done, of = log.Verified() {
			time.Sleep(time.Millisecond)
		}
		if log.Degraded() != nil {
			return 0, root, log.Degraded()
		}
	}
	views, err := openViews(dir, fleets, false, slog.New(slog.DiscardHandler))
	if err != nil {
		return 0, root, err
	}
	defer func() { err = errors.Join(err, closeViews(views)) }()
	if err := views[defaultFleet].Wait(t.Context(), fleets[defaultFleet].Log().Durable()); err != nil {
		return 0, root, err
	}
	if _, err := seals[defaultFleet].Checkpoint(); err != nil {
		return 0, root, err
	}
	view := seals[defaultFleet].Reader()
	size = view.Size()
	root, err = view.RootAt(min(size, rootOf))
	return size, root, err
}

// What becomes of a damaged directory.
const (
	isHarmless = "harmless" // every event is there, and it is served
	atStart    = "start"    // it is not served
	byAudit    = "audit"    // it is served, and an audit names what is wrong
	byView     = "view"     // an audit that compares the view does
)

// outcome audits and starts a damaged directory. Wherever it passes, all is there.
func (s served) outcome(t *testing.T, what, dir string) string {
	t.Helper()
	audited := func(terms auditTerms) bool {
		if existingData(dir) != nil {
			return false
		}
		r, err := quiet(dir).auditFleet(t.Context(), defaultFleet, &terms)
		if err == nil && r.OK && uint64(r.To) < s.events {
			t.Errorf("%s: the audit passes with %d of %d events", what, r.To, s.events)
		}
		return err == nil && r.OK
	}
	log := audited(auditTerms{})
	view := log && audited(auditTerms{view: true})
	size, root, err := s.start(t, dir)
	switch {
	case err != nil:
		return atStart
	case size < s.events || root != s.root:
		t.Errorf("%s: it is served with %d of %d events, root %s", what, size, s.events, root)
	case !log:
		return byAudit
	case !view:
		return byView
	}
	return isHarmless
}

// copied is a copy of the directory, to be damaged.
func (s served) copied(t *testing.T) string {
	t.Helper()
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.CopyFS(bad, os.DirFS(s.dir)); err != nil {
		t.Fatal(err)
	}
	return bad
}

func content(t *testing.T, dir, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return b
}

// TestDamagedDirectory damages every file of a data directory in every way: the log's
// own (package pebblelog has a table of those, with more places), formats, keys,
// checkpoints, tokens, snapshots, cursors, the view, and whatever else there comes to
// be. Either the start refuses the directory, or an audit names what is wrong, or all
// events are there, under the root that they had.
func TestDamagedDirectory(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	places := 1
	if os.Getenv("FLEETLEDGER_LONG") != "" {
		places = 10
	}
	s := newServed(t)
	var files []string
	if err := filepath.WalkDir(s.dir, func(path string, d fs.DirEntry, err error) error {
		name, _ := filepath.Rel(s.dir, path)
		if name = filepath.ToSlash(name); err == nil && !d.IsDir() && (!strings.HasPrefix(name, "fleets/staging/") || strings.HasSuffix(name, rootTokenName)) {
			files = append(files, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for _, must := range []string{"format", "LOCK", "root.token", "fleets/default/checkpoint", "fleets/default/checkpoint.key", "fleets/default/anchor", "fleets/default/pebble/",
		"fleets/default/snapshots/", "fleets/default/subscriptions/out-", "fleets/default/subscriptions/webhook.key", "fleets/default/view/", "fleets/staging/root.token"} {
		if !slices.ContainsFunc(files, func(name string) bool { return strings.HasPrefix(name, must) }) {
			t.Fatalf("there is no %s in the directory: %v", must, files)
		}
	}
	table := map[string]map[string]int{}
	for _, name := range files {
		table[name] = map[string]int{}
		whole := content(t, s.dir, name)
		damages := []string{"a flipped bit", "a cut tail", "a zeroed block", "removed", "swapped", "an older copy"}
		if testing.Short() { // another one each time
			damages = damages[rng.IntN(len(damages)):][:1]
		}
		for _, damage := range damages {
			for i := range places {
				changed, swapped := bytes.Clone(whole), ""
				switch {
				case (damage == "removed" || damage == "an older copy") && i > 0:
					continue // there is one way
				case damage == "removed":
					changed = nil
				case damage == "swapped":
					if swapped = files[rng.IntN(len(files))]; swapped == name {
						continue
					}
					changed = append([]byte{}, content(t, s.dir, swapped)...)
				case damage == "an older copy":
					if changed = content(t, s.earlier, name); changed == nil {
						continue // there was none
					}
				case len(whole) == 0:
					continue
				case damage == "a flipped bit":
					changed[rng.IntN(len(changed))] ^= 1 << rng.IntN(8)
				case damage == "a cut tail":
					changed = changed[:rng.IntN(len(changed))]
				case damage == "a zeroed block":
					at := rng.IntN(len(changed)) / 512 * 512
					clear(changed[at:min(at+512, len(changed))])
				}
				bad := s.copied(t)
				put := func(name string, b []byte) {
					path := filepath.Join(bad, filepath.FromSlash(name))
					if err := os.Remove(path); err != nil {
						t.Fatal(err)
					}
					if b == nil {
						return
					}
					if err := os.WriteFile(path, b, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				put(name, changed)
				if swapped != "" {
					put(swapped, whole)
				}
				table[name][s.outcome(t, fmt.Sprintf("seed %d: %s: %s %s", seed, name, damage, swapped), bad)]++
				if err := os.RemoveAll(bad); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, name := range files {
		t.Logf("%-60s %v", name, table[name])
	}
	for _, name := range []string{"format", "fleets/default/checkpoint", "fleets/default/checkpoint.key", "fleets/default/format"} {
		if table[name][atStart] == 0 && !testing.Short() {
			t.Errorf("%s is not looked at", name)
		}
	}
}

// TestDamagedFolders does the same with whole folders: gone, from an older copy, or
// another fleet's.
func TestDamagedFolders(t *testing.T) {
	s := newServed(t)
	newest := content(t, s.dir, "fleets/default/checkpoint")
	for _, c := range []struct {
		folder                    string
		removed, older, exchanged string // what comes of it; exchanged with the other fleet's
	}{
		// An older copy of all that a log leaves looks whole: see below.
		{"fleets", atStart, "whole", ""},
		{"fleets/default", atStart, "whole", atStart},
		{"fleets/default/pebble", atStart, atStart, atStart},
		{"fleets/default/snapshots", isHarmless, isHarmless, isHarmless},
		{"fleets/default/view", isHarmless, isHarmless, byView},
		{"fleets/default/subscriptions", isHarmless, isHarmless, isHarmless},
	} {
		for damage, want := range map[string]string{"removed": c.removed, "an older copy": c.older, "exchanged": c.exchanged} {
			if want == "" {
				continue
			}
			what := c.folder + ": " + damage
			bad := s.copied(t)
			at := filepath.Join(bad, filepath.FromSlash(c.folder))
			other := strings.Replace(at, defaultFleet, "staging", 1)
			aside := at + ".aside"
			if err := os.Rename(at, aside); err != nil {
				t.Fatal(err)
			}
			switch damage {
			case "an older copy":
				if err := os.CopyFS(at, os.DirFS(filepath.Join(s.earlier, filepath.FromSlash(c.folder)))); err != nil {
					t.Fatal(err)
				}
			case "exchanged":
				for _, r := range [][2]string{{other, at}, {aside, other}} {
					if err := os.Rename(r[0], r[1]); err != nil && !errors.Is(err, fs.ErrNotExist) { // the other may have none
						t.Fatal(err)
					}
				}
			}
			if err := os.RemoveAll(aside); err != nil {
				t.Fatal(err)
			}
			if want == "whole" {
				// No file in it can tell. Whoever has kept a checkpoint can.
				r, err := quiet(bad).auditFleet(t.Context(), defaultFleet, &auditTerms{checkpoints: [][]byte{newest}})
				if err != nil || r.OK || uint64(r.To) >= s.events {
					t.Errorf("%s, beside the newest checkpoint: %v %+v", what, err, r)
				}
				continue
			}
			if got := s.outcome(t, what, bad); got != want {
				t.Errorf("%s: %s, want %s", what, got, want)
			}
		}
	}
}
