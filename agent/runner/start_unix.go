//go:build unix && !linux

package runner

import "os/exec"

// start starts cmd. There is no way here to have it end with this program: what a
// killed agent leaves running is ended at the agent's next start.
func start(cmd *exec.Cmd) error { return cmd.Start() }
