package service

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"path/filepath"
	"strings"
	"time"
)

// label is the service's name as launchd has them.
func (s Service) label() string { return "fleetledger.agent." + s.Machine }

// Launchd is the service as a property list of launchd (launchd.plist(5)).
func (s Service) Launchd() []byte {
	var args strings.Builder
	for _, a := range append([]string{s.Program}, s.Args...) {
		args.WriteString("\n\t\t<string>" + xmlText(a) + "</string>")
	}
	user := ""
	if s.System {
		user = "\n\t<key>UserName</key>\n\t<string>" + xmlText(s.User) + "</string>"
	}
	return fmt.Appendf(nil, `<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
	<key>Label</key>
	<string>%s</string>
	<key>ProgramArguments</key>
	<array>%s
	</array>
	<key>EnvironmentVariables</key>
	<dict>
		<key>PATH</key>
		<string>%s</string>
	</dict>%s
	<key>RunAtLoad</key>
	<true/>
	<key>KeepAlive</key>
	<true/>
	<key>ThrottleInterval</key>
	<integer>2</integer>
	<key>ExitTimeOut</key>
	<integer>%d</integer>
	<key>StandardErrorPath</key>
	<string>%s</string>
</dict>
</plist>
`, xmlText(s.label()), args.String(), xmlText(s.Path), user, int(s.Stop/time.Second), xmlText(filepath.Join(s.State, "agent.log")))
}

func xmlText(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a buffer takes everything
	return b.String()
}
