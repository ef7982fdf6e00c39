// Command fleetledger is the ledger's one program: the server, the agent of a
// machine, and the client for people, agents and auditors.
//
//	fleetledger serve
//	fleetledger actors register m1 --kind machine --level 10 --save-token m1.token
//	fleetledger agent --machine m1 --token-file m1.token --allow go
//	fleetledger task submit --target m1 --wait -- go version
//
// There is one file for each noun of the command line; main.go lists them, app.go
// has what they share. Results go to stdout, everything else to stderr. The exit
// code is 0 when the thing was done, 1 when it was refused, failed or found
// something, 2 when the command line was wrong.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// From then on a second signal ends it at once.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	os.Exit(code)
}

// run is the program without its process: it returns the exit code.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	out := &results{w: stdout}
	a := &app{in: stdin, out: out, terminal: stdout, err: stderr, now: time.Now}
	root := a.root()
	misuseOfDefaults(root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(ctx)
	if out.err != nil && (err == nil || errors.Is(err, errQuiet)) {
		a.started = true // it was no misuse
		err = fmt.Errorf("its output is not whole: %w; what it was to change is changed", out.err)
	}
	if err == nil {
		return exitDone
	}
	if !a.started {
		// Reading the flags ended at what is wrong with them, maybe before this one.
		if i := slices.Index(args, "--"); i >= 0 {
			args = args[:i]
		}
		a.json = a.json || slices.Contains(args, "--json")
	}
	return a.fail(cmd, err)
}

// results is the standard output. It keeps the first error of writing to it, so that
// no file of results is cut short without a word.
type results struct {
	w   io.Writer
	err error
}

func (r *results) Write(p []byte) (int, error) {
	n, err := r.w.Write(p)
	if r.err == nil {
		r.err = err
	}
	return n, err
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "fleetledger",
		Short: "The append-only record of a fleet: tasks, approvals, memory and who may do what",
		Long: strings.TrimSpace(`
fleetledger keeps one append-only record of a fleet of machines and of the people
and agents that work them: every task, approval, rule and conclusion is an event,
and everything shown is folded from those events.

Commands find the server by --server, FLEETLEDGER_URL, or ` + defaultServer + `,
and their token by --token-file, FLEETLEDGER_TOKEN, or root.token in the data
directory (only for a server on this machine, or when --data is given).`),
		Example: `  fleetledger serve
  fleetledger approvals list
  fleetledger tried 'go test ./...'`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	flags := root.PersistentFlags()
	flags.StringVar(&a.server, "server", "", "address of the relay (FLEETLEDGER_URL; default "+defaultServer+")")
	flags.StringVar(&a.tokenFile, "token-file", "", "file that holds the token (FLEETLEDGER_TOKEN)")
	flags.StringVar(&a.data, "data", defaultData, "data directory")
	flags.BoolVar(&a.json, "json", false, "print the server's JSON, and errors as problem documents")
	root.AddCommand(
		a.serveCommand(),
		a.agentCommand(),
		a.runCommand(),
		a.taskCommand(),
		a.replayCommand(),
		a.approvalsCommand(),
		a.triedCommand(),
		a.sqlCommand(),
		a.concludeCommand(),
		a.memoryCommand(),
		a.collectiveCommand(),
		a.blocksCommand(),
		a.importCommand(),
		a.actorsCommand(),
		a.rulesCommand(),
		a.gateCommand(),
		a.eventsCommand(),
		a.auditCommand(),
		a.rebuildCommand(),
		a.backupCommand(),
		a.restoreCommand(),
		a.moveCommand(),
		a.checkpointCommand(),
		a.evidenceCommand(),
		a.subscriptionsCommand(),
		a.settingsCommand(),
		a.keysCommand(),
		a.limitsCommand(),
		a.fleetCommand(),
		a.rootTokenCommand(),
		a.benchCommand(),
		a.versionCommand(),
	)
	return root
}
