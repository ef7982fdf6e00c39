package runner

import (
	"context"
	"encoding/hex"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// worktree is the state of the git work tree that a directory lies in. What
// could not be read in time is absent.
type worktree struct {
	repo   string // the origin's URL without credentials, or the name of the top folder
	commit string
	dirty  *bool
}

// readWorktree asks git, for at most limit. No answer is no failure: an attempt
// is as good without it.
func readWorktree(ctx context.Context, dir string, limit time.Duration) worktree {
	if !underGit(dir) {
		return worktree{}
	}
	path, err := onPath("git")
	if err != nil {
		return worktree{}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	g := git{path: path, dir: dir, env: append(baseEnvironment(), "LC_ALL=C", "GIT_TERMINAL_PROMPT=0")}
	var top, origin, status string
	var topOK, statusOK bool
	var wg sync.WaitGroup
	wg.Go(func() {
		// It fails in a repository without a commit, having told the folder.
		top, _ = g.output(ctx, 8<<10, "rev-parse", "--show-toplevel", "HEAD")
		topOK = top != ""
	})
	wg.Go(func() { origin, _ = g.output(ctx, 8<<10, "remote", "get-url", "origin") })
	// One byte of the list of changes is enough.
	wg.Go(func() { status, statusOK = g.output(ctx, 1, "status", "--porcelain", "--ignore-submodules=dirty") })
	wg.Wait()
	if !topOK {
		return worktree{}
	}
	folder, commit, _ := strings.Cut(top, "\n")
	wt := worktree{repo: RepoName(strings.TrimSpace(origin), folder)}
	commit = strings.TrimSpace(commit)
	if raw, err := hex.DecodeString(commit); err == nil && len(raw) >= 20 {
		wt.commit = commit
	}
	if statusOK {
		dirty := status != ""
		wt.dirty = &dirty
	}
	return wt
}

// underGit spares a directory outside every repository the three processes.
func underGit(dir string) bool {
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
		if dir == filepath.Dir(dir) {
			return false
		}
	}
}

type git struct {
	path, dir string
	env       []string
}

// output is the first bytes, at most limit, of what git prints, and whether git
// succeeded or had more to print. Reading takes no locks and runs none of the
// programs that a repository's own configuration may name for it.
func (g git) output(ctx context.Context, limit int64, args ...string) (string, bool) {
	args = append([]string{"git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=" + os.DevNull}, args...)
	cmd := &exec.Cmd{Path: g.path, Args: args, Dir: g.dir, Env: g.env}
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return "", false
	}
	t, err := startTree(cmd)
	if err != nil {
		return "", false
	}
	defer t.close()
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		t.kill()
		pipe.Close()
		close(stopped)
	})
	// An error here is a short answer, judged below.
	out, _ := io.ReadAll(io.LimitReader(pipe, limit))
	full := int64(len(out)) == limit
	if full {
		t.kill()
	}
	err = cmd.Wait()
	if !stop() {
		<-stopped
		return "", false
	}
	return string(out), err == nil || full
}

// RepoName is the origin's URL, if it is one that certainly tells no secret,
// and otherwise the name of the top folder.
func RepoName(origin, folder string) string {
	name := filepath.Base(filepath.FromSlash(strings.TrimSpace(folder)))
	switch {
	case origin == "", strings.Contains(origin, "::"), strings.ContainsFunc(origin, func(r rune) bool { return r < ' ' }):
		return name // a helper's address (gitremote-helpers) has a form of its own
	case strings.Contains(origin, "://"):
		u, err := url.Parse(origin)
		if err != nil || u.Opaque != "" || strings.Contains(u.Path, "@") {
			return name
		}
		if u.Scheme == "ssh" && u.User != nil {
			u.User = url.User(u.User.Username()) // says which account, as in git@host
		} else {
			u.User = nil
		}
		u.RawQuery, u.ForceQuery, u.Fragment, u.RawFragment = "", false, "", ""
		return u.String()
	}
	// host:path, user@host:path or a path. A colon before the @ is no user name.
	if at := strings.LastIndex(origin, "@"); at >= 0 && strings.Contains(origin[:at], ":") {
		return name
	}
	return origin
}
