package main

import (
	"bytes"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"fleetledger/commands"
	"fleetledger/events/seal"
)

// TestOlderDirectoryGetsAKey opens a directory whose log was founded without a
// key, and one that a crash left between the key and its event.
func TestOlderDirectoryGetsAKey(t *testing.T) {
	logger := slog.New(slog.NewTextHandler(io.Discard, nil))
	var told bytes.Buffer
	a := &app{out: &results{w: io.Discard}, err: &told, data: filepath.Join(t.TempDir(), "data"), now: time.Now}
	if err := makeData(a.data); err != nil {
		t.Fatal(err)
	}
	l, _, err := a.openFleet(t.Context(), defaultFleet, logger)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Found(t.Context(), defaultFleet)
	if err != nil {
		t.Fatal(err)
	}
	if err := writeToken(rootTokenFile(a.data, defaultFleet), r.Secret); err != nil {
		t.Fatal(err)
	}
	if err := l.Log().Close(); err != nil {
		t.Fatal(err)
	}

	// open opens it as serve does, and returns the keys in the log and the checkpoint.
	open := func(host string) (keys []string, signed []byte) {
		t.Helper()
		fleets, seals, isNew, err := a.openFleets(t.Context(), host, "relay", logger)
		if err != nil || isNew {
			t.Fatalf("new %t, %v", isNew, err)
		}
		l := fleets[defaultFleet]
		ring, err := l.Keys(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, k := range ring {
			keys = append(keys, k.Verifier)
		}
		if signed, err = seals[defaultFleet].Checkpoint(); err != nil {
			t.Fatal(err)
		}
		if err := l.Log().Close(); err != nil {
			t.Fatal(err)
		}
		return keys, signed
	}
	key, err := seal.NewKey(bytes.NewReader(make([]byte, 64)), "old.example.org/default")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeDurably(keyFile(a.data, defaultFleet), []byte(key.Private()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := a.openFleets(t.Context(), "new.example.org", "relay", logger); err == nil || !strings.Contains(err.Error(), "cannot be named new.example.org/default") {
		t.Errorf("a log whose key names it was named anew: %v", err)
	}
	if err := os.Remove(keyFile(a.data, defaultFleet)); err != nil {
		t.Fatal(err)
	}

	keys, signed := open("")
	if len(keys) != 1 || !strings.HasPrefix(keys[0], "fleetledger.local/default+") {
		t.Fatalf("keys %q", keys)
	}
	if c, err := seal.VerifyCheckpoint(signed, keys...); err != nil || c.Size != uint64(len(r.Records)+1) {
		t.Errorf("%+v, %v", c, err)
	}
	if info, err := os.Stat(keyFile(a.data, defaultFleet)); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", info, err)
	}
	again, same := open("fleetledger.local")
	if len(again) != 1 || again[0] != keys[0] || !bytes.Equal(signed, same) {
		t.Errorf("opened again: keys %q, checkpoint\n%s\nnot\n%s", again, same, signed)
	}
	if told.Len() > 0 {
		t.Errorf("it told: %s", told.String())
	}

	// The key of another fleet, and what is none.
	for _, text := range []string{"PRIVATE+KEY+x", strings.Replace(key.Private(), "old", "new", 1), key.Private()} {
		if err := os.WriteFile(keyFile(a.data, defaultFleet), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, _, err := a.openFleets(t.Context(), "", "relay", logger); err == nil || strings.Contains(err.Error(), text) || !strings.Contains(err.Error(), keyFile(a.data, defaultFleet)) {
			t.Errorf("key %q: %v", text, err)
		}
	}
}

// TestKeysThatACrashLeft: a key that was kept and never recorded, and one that was
// retired and is still kept, sign nothing, and are taken out at the next start.
func TestKeysThatACrashLeft(t *testing.T) {
	logger := slog.New(slog.DiscardHandler)
	a := &app{out: &results{w: io.Discard}, err: io.Discard, data: filepath.Join(t.TempDir(), "data")}
	if err := makeData(a.data); err != nil {
		t.Fatal(err)
	}
	name := keyFile(a.data, defaultFleet)
	kept := func() string {
		t.Helper()
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// open starts, does something, and stops; it returns the keys that sign then.
	open := func(do func(*commands.Ledger, *seal.Sealer) error) []string {
		t.Helper()
		fleets, seals, _, err := a.openFleets(t.Context(), "", "", logger)
		if err != nil {
			t.Fatal(err)
		}
		if do != nil {
			if err := do(fleets[defaultFleet], seals[defaultFleet]); err != nil {
				t.Fatal(err)
			}
		}
		signs := seals[defaultFleet].Verifiers()
		if err := fleets[defaultFleet].Log().Close(); err != nil {
			t.Fatal(err)
		}
		return signs
	}
	first := open(nil)
	before := kept()
	stranger, err := seal.NewKey(bytes.NewReader(make([]byte, 64)), "fleetledger.local/default")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(before+stranger.Private()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if signs := open(nil); !slices.Equal(signs, first) || kept() != before {
		t.Errorf("a key that was never recorded: %q sign", signs)
	}

	root := commands.Caller{Actor: "root"}
	both := open(func(l *commands.Ledger, s *seal.Sealer) error {
		_, err := l.RotateKey(t.Context(), root, s, commands.RotateKey{})
		return err
	})
	two := kept()
	if len(both) != 2 || strings.Count(two, "\n") != 2 || !slices.Equal(open(nil), both) {
		t.Fatalf("%q sign", both)
	}
	after := open(func(l *commands.Ledger, s *seal.Sealer) error {
		_, err := l.RetireKey(t.Context(), root, s, commands.RetireKey{ID: seal.RingKey{Verifier: first[0]}.ID()})
		return err
	})
	one := kept()
	if !slices.Equal(after, both[1:]) || strings.Count(one, "\n") != 1 {
		t.Fatalf("%q sign", after)
	}
	if err := os.WriteFile(name, []byte(two), 0o600); err != nil {
		t.Fatal(err)
	}
	if signs := open(nil); !slices.Equal(signs, after) || kept() != one {
		t.Errorf("a key that was retired: %q sign", signs)
	}
	if info, err := os.Stat(name); err != nil || runtime.GOOS != "windows" && info.Mode().Perm() != 0o600 {
		t.Errorf("the key file: %v, %v", info, err)
	}

	// Only a retired key is left: it is not taken into use again.
	if err := os.WriteFile(name, []byte(before), 0o600); err != nil {
		t.Fatal(err)
	}
	if signs := open(nil); len(signs) != 1 || slices.Contains(both, signs[0]) {
		t.Errorf("only a retired key was left: %q sign", signs)
	}
}
