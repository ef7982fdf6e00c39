package service

import (
	"fmt"
	"strings"
	"time"
)

// Systemd is the service as a unit of systemd (systemd.service(5)).
func (s Service) Systemd() []byte {
	words := []string{systemdWord(s.Program)}
	for _, a := range s.Args {
		words = append(words, systemdWord(a))
	}
	user, target := "", "default.target"
	if s.System {
		// The directory is made for the user, and given to it if somebody else has.
		user = "User=" + strings.ReplaceAll(s.User, "%", "%%") + "\nStateDirectory=" + systemdState + "/" + s.Machine + "\nStateDirectoryMode=0700\n"
		target = "multi-user.target"
	}
	return fmt.Appendf(nil, `[Unit]
Description=fleetledger agent of %s
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart=%s
Environment=%s
%sNoNewPrivileges=yes
Restart=always
RestartSec=2
KillMode=mixed
TimeoutStopSec=%d

[Install]
WantedBy=%s
`, s.Machine, strings.Join(words, " "), systemdWord("PATH="+s.Path), user, int(s.Stop/time.Second), target)
}

// systemdState is where, below /var/lib, services of the system have their state.
const systemdState = "fleetledger-agent"

// systemdWord quotes a word of a command line or an assignment: in quotes, with
// what systemd would replace doubled.
func systemdWord(w string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `%`, `%%`, `$`, `$$`).Replace(w) + `"`
}
