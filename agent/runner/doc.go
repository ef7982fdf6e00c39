// Package runner runs one command on this machine and says how it ended.
//
//	policy, err := runner.NewPolicy([]string{"go", "git"}, []string{"/srv/project"})
//	envelope := runner.Run(ctx, policy, runner.Command{Argv: []string{"go", "test", "./..."}})
//
// Run asks the Policy first (policy.go, launch.go): which programs, in which
// directories. What it permits is executed without a shell, with a filtered
// environment (env.go), no input, and a limit in time; both outputs are hashed
// and counted as they pass and only their end is kept, without its secrets
// (output.go), so memory does not grow with what a command prints. When an
// attempt ends, its processes end with it (tree_*.go). worktree.go notes the repository a command ran in,
// masked.go whether its shell form can hide an exit code, and memory.go keeps
// the machine's own record of finished attempts.
//
// The allow-list says what may be started; it is no sandbox. A permitted
// program that starts others (make, find -exec, an interpreter) starts what it
// likes, with the agent's rights.
package runner
