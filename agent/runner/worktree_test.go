package runner

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// gitIn runs git in dir without the configuration of whoever runs the tests.
func gitIn(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(baseEnvironment(), "HOME="+t.TempDir(), "GIT_CONFIG_NOSYSTEM=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

func needGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git here")
	}
}

func TestWorktreeIsNoted(t *testing.T) {
	needGit(t)
	t.Setenv("HOME", t.TempDir())
	dir := filepath.Join(t.TempDir(), "project")
	sub := filepath.Join(dir, "sub")
	if err := os.MkdirAll(sub, 0o755); err != nil {
		t.Fatal(err)
	}
	read := func() worktree { return readWorktree(background(), sub, 20*time.Second) }
	if wt := read(); wt != (worktree{}) {
		t.Errorf("outside a repository: %+v", wt)
	}

	gitIn(t, dir, "init")
	if wt := read(); wt.repo != "project" || wt.commit != "" || wt.dirty == nil || *wt.dirty {
		t.Errorf("without a commit: %+v", wt)
	}
	if err := os.WriteFile(filepath.Join(sub, "file"), []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "add", ".")
	gitIn(t, dir, "commit", "-m", "one")
	commit := gitIn(t, dir, "rev-parse", "HEAD")
	if wt := read(); wt.repo != "project" || wt.commit != commit || wt.dirty == nil || *wt.dirty {
		t.Errorf("clean: %+v", wt)
	}
	if err := os.WriteFile(filepath.Join(dir, "new"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "remote", "add", "origin", "https://me:secret@git.example.org/team/project.git")
	if wt := read(); wt.repo != "https://git.example.org/team/project.git" || wt.commit != commit || wt.dirty == nil || !*wt.dirty {
		t.Errorf("dirty: %+v", wt)
	}

	exe := executable(t)
	p, err := NewPolicy([]string{exe}, []string{dir})
	if err != nil {
		t.Fatal(err)
	}
	e := run(background(), p, Command{Argv: []string{exe, "5"}, Env: as("exit")}, quick(0))
	wantExit(t, e, 5)
	if e.Repo != "https://git.example.org/team/project.git" || e.Commit != commit || e.Dirty == nil || !*e.Dirty {
		t.Errorf("envelope: %q %q %v", e.Repo, e.Commit, e.Dirty)
	}
}

// A repository's configuration is written by whoever writes to the repository.
func TestReadingARepositoryRunsNothingOfIt(t *testing.T) {
	needGit(t)
	if runtime.GOOS == "windows" {
		t.Skip("the traps are shell scripts")
	}
	t.Setenv("HOME", t.TempDir())
	dir := t.TempDir()
	gitIn(t, dir, "init")
	gitIn(t, dir, "commit", "--allow-empty", "-m", "one")
	sprung := filepath.Join(t.TempDir(), "sprung")
	trap := filepath.Join(t.TempDir(), "trap")
	if err := os.WriteFile(trap, []byte("#!/bin/sh\necho x >> '"+sprung+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	gitIn(t, dir, "config", "core.fsmonitor", trap)
	gitIn(t, dir, "status")
	if err := os.Remove(sprung); err != nil {
		t.Fatalf("the trap does not work: %v", err)
	}
	if wt := readWorktree(background(), dir, 20*time.Second); wt.dirty == nil || *wt.dirty {
		t.Errorf("%+v", wt)
	}
	if _, err := os.Stat(sprung); err == nil {
		t.Error("a program named by the repository was run")
	}
}

func TestSlowGitIsNotWaitedFor(t *testing.T) {
	bin, dir := t.TempDir(), t.TempDir()
	install(t, bin, "git") // which hangs, see TestMain
	if err := os.Mkdir(filepath.Join(dir, ".git"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	began := time.Now()
	if wt := readWorktree(background(), dir, 200*time.Millisecond); wt != (worktree{}) {
		t.Errorf("%+v", wt)
	}
	if took := time.Since(began); took < 200*time.Millisecond || took > 10*time.Second {
		t.Errorf("took %s", took)
	}
	t.Setenv("PATH", "")
	if wt := readWorktree(background(), dir, time.Minute); wt != (worktree{}) {
		t.Errorf("without git: %+v", wt)
	}
}

func TestRepoNameTellsNoSecret(t *testing.T) {
	for origin, want := range map[string]string{
		"":                                      "top",
		"https://example.org/a/b.git":           "https://example.org/a/b.git",
		"https://tok@example.org/a/b":           "https://example.org/a/b",
		"https://me:s3@example.org:8443/a/b":    "https://example.org:8443/a/b",
		"https://me:s@3@example.org/a":          "https://example.org/a",
		"https://me:s/3@example.org/a":          "top",
		"https://tok/en@example.org/a":          "top",
		"https://example.org/a?private_token=s": "https://example.org/a",
		"https://example.org/a#s":               "https://example.org/a",
		"ssh://git@example.org:22/a/b":          "ssh://git@example.org:22/a/b",
		"ssh://git:s3@example.org/a/b":          "ssh://git@example.org/a/b",
		"git@example.org:a/b.git":               "git@example.org:a/b.git",
		"me:s3@example.org:a/b.git":             "top",
		"/srv/git/a.git":                        "/srv/git/a.git",
		"../a.git":                              "../a.git",
		"ext::sh -c 'id s3'":                    "top",
		"codecommit::eu-1://s3@repo":            "top",
		"https://%zz:s3@example.org/":           "top",
		"https://example.org/a\x1b[2J":          "top",
	} {
		if got := RepoName(origin, "/src/top"); got != want {
			t.Errorf("%q: %q, want %q", origin, got, want)
		}
	}
}
