package service

import (
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf16"
)

// Task is the service as a task of the Windows Task Scheduler (schema 1.2), in
// UTF-16 as schtasks takes it.
func (s Service) Task() []byte {
	var args []string
	for _, a := range s.Args {
		args = append(args, windowsWord(a))
	}
	trigger, principal := "LogonTrigger", "<LogonType>InteractiveToken</LogonType>"
	if s.System {
		trigger, principal = "BootTrigger", "<UserId>"+xmlText(s.User)+"</UserId><LogonType>S4U</LogonType>"
	}
	text := fmt.Sprintf(`<?xml version="1.0" encoding="UTF-16"?>
<Task version="1.2" xmlns="http://schemas.microsoft.com/windows/2004/02/mit/task">
  <RegistrationInfo><Description>fleetledger agent of %s</Description></RegistrationInfo>
  <Triggers><%s><Enabled>true</Enabled></%s></Triggers>
  <Principals><Principal id="Author">%s<RunLevel>LeastPrivilege</RunLevel></Principal></Principals>
  <Settings>
    <MultipleInstancesPolicy>IgnoreNew</MultipleInstancesPolicy>
    <DisallowStartIfOnBatteries>false</DisallowStartIfOnBatteries>
    <StopIfGoingOnBatteries>false</StopIfGoingOnBatteries>
    <ExecutionTimeLimit>PT0S</ExecutionTimeLimit>
    <RestartOnFailure><Interval>PT1M</Interval><Count>999</Count></RestartOnFailure>
  </Settings>
  <Actions Context="Author"><Exec><Command>%s</Command><Arguments>%s</Arguments></Exec></Actions>
</Task>
`, xmlText(s.Machine), trigger, trigger, principal, xmlText(s.Program), xmlText(strings.Join(args, " ")))
	out := []byte{0xff, 0xfe}
	for _, u := range utf16.Encode([]rune(strings.ReplaceAll(text, "\n", "\r\n"))) {
		out = binary.LittleEndian.AppendUint16(out, u)
	}
	return out
}

// windowsWord quotes an argument as CommandLineToArgvW reads it back.
func windowsWord(a string) string {
	if a != "" && !strings.ContainsAny(a, " \t\"") {
		return a
	}
	var b strings.Builder
	b.WriteByte('"')
	backslashes := 0
	for _, r := range a {
		switch r {
		case '\\':
			backslashes++
			continue
		case '"':
			// Those before a quote count double, and one more escapes it.
			b.WriteString(strings.Repeat(`\`, 2*backslashes+1))
		default:
			b.WriteString(strings.Repeat(`\`, backslashes))
		}
		backslashes = 0
		b.WriteRune(r)
	}
	b.WriteString(strings.Repeat(`\`, 2*backslashes))
	b.WriteByte('"')
	return b.String()
}
