package shell

import "strings"

// sshValues are the options of ssh that take a value.
const sshValues = "BbcDEeFIiJLlmOoPpQRSWw"

// givenScript finds the line that a program which is no shell gives to one: ssh to the
// shell of the other machine, su and runuser to that of the other user. It is empty if
// there is none.
func givenScript(argv []string) string {
	args := argv[1:]
	switch ProgramName(argv[0]) {
	case "ssh":
		hosts := 0
		for ; len(args) > 0; args = args[1:] {
			arg := args[0]
			switch {
			case arg == "--":
			case len(arg) > 1 && arg[0] == '-':
				if i := strings.IndexAny(arg[1:], sshValues); i == len(arg)-2 {
					args = args[min(1, len(args)-1):] // its value is the next word
				}
			case hosts == 0:
				hosts++
			default:
				return strings.Join(args, " ")
			}
		}
	case "su", "runuser":
		for i, arg := range args {
			if script, ok := strings.CutPrefix(arg, "--command="); ok {
				return script
			}
			short := len(arg) > 1 && arg[0] == '-' && arg[1] != '-' && strings.HasSuffix(arg, "c")
			if (short || arg == "--command") && i+1 < len(args) {
				return args[i+1]
			}
		}
	}
	return ""
}
