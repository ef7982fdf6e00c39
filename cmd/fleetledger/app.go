package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"fleetledger/agent"
	"fleetledger/events/kurrentlog"
	"fleetledger/projections"
)

const (
	defaultServer = "http://127.0.0.1:7070"
	defaultListen = "127.0.0.1:7070"
	// defaultData lies in the working directory, like the data of other tools
	// that need nothing installed.
	defaultData = "fleetledger-data"

	envServer = "FLEETLEDGER_URL"
	envToken  = "FLEETLEDGER_TOKEN"
)

// app is one run of the program.
type app struct {
	in  io.Reader
	out *results
	err io.Writer
	// terminal is out as it is, for a program that this one starts.
	terminal io.Writer
	// now is the wall clock.
	now func() time.Time

	// The flags that every command has.
	server, tokenFile, data string
	json                    bool
	// engineName is the flag --engine of the commands that open a log.
	engineName string
	// peers takes appends of other relays, where this one serves fleets of a cluster.
	peers *kurrentlog.Peers

	// started is true once a command's own code runs: an error before is misuse.
	started bool
}

// does makes the RunE of a command.
func (a *app) does(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		a.started = true
		return f(cmd, args)
	}
}

// group is a command that holds others. By itself it is its list, if it has one.
func (a *app) group(use, short, example string, commands ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{
		Use: use, Short: short, Example: example,
		Args:                       cobra.ArbitraryArgs,
		SuggestionsMinimumDistance: 2,
		RunE:                       runGroup,
	}
	g.AddCommand(commands...)
	return g
}

func runGroup(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		for _, sub := range cmd.Commands() {
			if sub.Name() == "list" {
				sub.SetContext(cmd.Context())
				return sub.RunE(sub, nil)
			}
		}
		return misused("which %s command?", cmd.Name())
	}
	text := fmt.Sprintf("there is no command %q", args[0])
	if close := cmd.SuggestionsFor(args[0]); len(close) > 0 {
		text += "; did you mean " + strings.Join(close, " or ") + "?"
	}
	return misused("%s", text)
}

// misuseOfDefaults has cobra's own commands, which would answer on stdout as if nothing
// were wrong, refuse what there is not.
func misuseOfDefaults(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		switch cmd.Name() {
		case "help":
			cmd.Args = func(_ *cobra.Command, args []string) error {
				if found, rest, err := root.Find(args); err != nil || len(rest) > 0 {
					return misused("there is no command %q", strings.Join(append(strings.Fields(found.CommandPath())[1:], rest...), " "))
				}
				return nil
			}
		case "completion":
			cmd.Args, cmd.RunE = cobra.ArbitraryArgs, runGroup
		}
	}
}

// client returns a client for the server and the token that flags and
// environment name.
func (a *app) client(cmd *cobra.Command) (*agent.Client, error) {
	server := a.serverURL()
	token, err := a.token(cmd, server)
	if err != nil {
		return nil, err
	}
	c, err := agent.NewClient(server, token)
	if err != nil {
		return nil, &misuse{err.Error()}
	}
	return c, nil
}

func (a *app) serverURL() string {
	for _, s := range []string{a.server, os.Getenv(envServer)} {
		if s != "" {
			return s
		}
	}
	return defaultServer
}

// token finds the token. Root's own is offered only to a server on this machine,
// or when the user points at it: a token must not go to whatever address is named.
func (a *app) token(cmd *cobra.Command, server string) (string, error) {
	if a.tokenFile != "" {
		b, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return "", fmt.Errorf("token file: %w", err)
		}
		return strings.TrimSpace(string(b)), nil
	}
	if t := strings.TrimSpace(os.Getenv(envToken)); t != "" {
		return t, nil
	}
	const next = "give --token-file FILE or set " + envToken
	// Not cmd's own flags: a command may have another --data.
	pointed := cmd.Root().PersistentFlags().Changed("data")
	if !isLoopbackURL(server) && !pointed {
		return "", tryNext(fmt.Errorf("no token for %s", server), next)
	}
	name := filepath.Join(a.data, rootTokenName)
	b, err := os.ReadFile(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", tryNext(fmt.Errorf("no token: there is no %s", name), next+"; a server is started with: fleetledger serve")
	case err != nil:
		return "", tryNext(fmt.Errorf("no token: %w", err), next)
	}
	return strings.TrimSpace(string(b)), nil
}

func isLoopbackURL(server string) bool {
	u, err := url.Parse(server)
	return err == nil && isLoopbackHost(u.Hostname())
}

func isLoopbackHost(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// get asks the server for path, and shows the answer.
func (a *app) get(cmd *cobra.Command, path string, query url.Values, show func(p printer, r *agent.Response) error) error {
	return a.request(cmd, agent.Request{Method: http.MethodGet, Path: path, Query: query}, show)
}

// post sends body to path, and shows the answer.
func (a *app) post(cmd *cobra.Command, path string, body any, show func(p printer, r *agent.Response) error) error {
	return a.request(cmd, agent.Request{Method: http.MethodPost, Path: path, Body: body, ApprovalID: approvalOf(cmd)}, show)
}

// request makes one request and shows the answer: as it came with --json, else
// by show. An answer that waits for an approval changed nothing else: it is shown
// as such and ends with exit code 1.
func (a *app) request(cmd *cobra.Command, r agent.Request, show func(p printer, r *agent.Response) error) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	resp, err := c.Do(cmd.Context(), r)
	if err != nil {
		return a.unanswered(err)
	}
	if resp.Status == http.StatusAccepted {
		return a.waiting(cmd, resp)
	}
	return a.show(resp, show)
}

// unanswered adds what to do when no server is there.
func (a *app) unanswered(err error) error {
	if _, ok := errors.AsType[*agent.UnreachableError](err); ok {
		return tryNext(err, "fleetledger serve, or --server URL for another one")
	}
	return err
}

func (a *app) show(resp *agent.Response, show func(p printer, r *agent.Response) error) error {
	if a.json {
		return a.printJSON(resp.Body)
	}
	return show(printer{a.out}, resp)
}

// printJSON writes one value on one line.
func (a *app) printJSON(raw []byte) error {
	_, err := fmt.Fprintln(a.out, strings.TrimSpace(visibleJSON(raw)))
	return err
}

// waiting tells that a command waits for an approval.
func (a *app) waiting(cmd *cobra.Command, resp *agent.Response) error {
	if a.json {
		if err := a.printJSON(resp.Body); err != nil {
			return err
		}
		return errQuiet
	}
	var w struct {
		ApprovalID string `json:"approval_id"`
	}
	if err := resp.Decode(&w); err != nil {
		return err
	}
	return tryNext(fmt.Errorf("nothing was changed: it waits for approval %s; once granted, repeat the same command with --approval %s", w.ApprovalID, w.ApprovalID),
		"fleetledger approvals show "+w.ApprovalID)
}

// spends adds the flag by which a granted approval is spent.
func spends(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().String("approval", "", "spend this granted approval")
	return cmd
}

func approvalOf(cmd *cobra.Command) string {
	if f := cmd.Flags().Lookup("approval"); f != nil {
		return f.Value.String()
	}
	return ""
}

// pages adds the flags of commands that list.
func pages(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().Int("limit", 50, "how many at most")
	cmd.Flags().String("cursor", "", "go on where an earlier list ended")
	return cmd
}

func pageQuery(cmd *cobra.Command) url.Values {
	q := url.Values{}
	for _, name := range []string{"limit", "cursor"} {
		if f := cmd.Flags().Lookup(name); f.Changed {
			q.Set(name, f.Value.String())
		}
	}
	return q
}

// showMore tells how to go on with a list: by the same question.
func (a *app) showMore(cmd *cobra.Command, next *string) {
	if next != nil && *next != "" {
		printer{a.err}.f("there is more: %s\n", goingOn(cmd, *next))
	}
}

// goingOn is the command line of cmd as it was given, but for the flags that all commands
// have, with another cursor.
func goingOn(cmd *cobra.Command, cursor string) string {
	var flags []string
	cmd.Flags().Visit(func(f *pflag.Flag) {
		switch list, many := f.Value.(pflag.SliceValue); {
		case f.Name == "cursor" || cmd.InheritedFlags().Lookup(f.Name) != nil:
		case many:
			for _, v := range list.GetSlice() {
				flags = append(flags, "--"+f.Name, v)
			}
		case f.Value.String() == "true" && f.Value.Type() == "bool":
			flags = append(flags, "--"+f.Name)
		case f.Value.Type() == "bool":
			flags = append(flags, "--"+f.Name+"="+f.Value.String())
		default:
			flags = append(flags, "--"+f.Name, f.Value.String())
		}
	})
	flags = append(flags, "--cursor", cursor)
	words, args := strings.Fields(cmd.CommandPath()), cmd.Flags().Args()
	if slices.ContainsFunc(args, func(arg string) bool { return strings.HasPrefix(arg, "-") }) {
		args, flags = append(flags, "--"), args
	}
	return projections.CommandLine(slices.Concat(words, args, flags))
}

// readFile reads a file, or stdin for "-", up to so many bytes.
func (a *app) readFile(name string, most int64) ([]byte, error) {
	in := a.in
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		in = f
	}
	return io.ReadAll(io.LimitReader(in, most))
}

// page is one of a list.
type page[T any] struct {
	Items      []T     `json:"items"`
	NextCursor *string `json:"next_cursor"`
	Scope      scope   `json:"scope"`
}

// scope says what a list was looked for in.
type scope struct {
	Fleet   string `json:"fleet"`
	From    uint64 `json:"from"`
	To      uint64 `json:"to"`
	Query   string `json:"q"`
	Status  string `json:"status"`
	Machine string `json:"machine"`
	Command string `json:"command"`
	Repo    string `json:"repo"`
	Stream  string `json:"stream"`
	Type    string `json:"type"`

	Cwd         string `json:"cwd"`
	Record      string `json:"record"`
	PublishedBy string `json:"published_by"`
	AcceptedBy  string `json:"accepted_by"`
	Parent      string `json:"parent"`
	Forgotten   string `json:"forgotten"`
}

// nothing tells that a list is empty, and what it covered: "none" and "none of
// those" are different answers.
func (a *app) nothing(what string, s scope) {
	p := printer{a.err}
	p.f("no %s in fleet %s, positions %d to %d", what, s.Fleet, s.From, s.To)
	for _, f := range []struct{ name, value string }{
		{"matching", s.Query}, {"status", s.Status}, {"machine", s.Machine}, {"command", s.Command},
		{"repository", s.Repo}, {"stream", s.Stream}, {"type", s.Type},
		{"directory", s.Cwd}, {"record", s.Record}, {"publisher", s.PublishedBy}, {"receiver", s.AcceptedBy}, {"parent", s.Parent},
	} {
		if f.value != "" {
			p.f(", %s %s", f.name, f.value)
		}
	}
	p.f("\n")
}

// table writes rows in columns; the first row is the heading. Cells are made
// visible.
func (p printer) table(rows [][]string) {
	t := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				_, _ = io.WriteString(t, "\t")
			}
			_, _ = io.WriteString(t, visible(cell))
		}
		_, _ = io.WriteString(t, "\n")
	}
	_ = t.Flush()
}

// when is a time as people read it: UTC, to the second.
func when(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format("2006-01-02 15:04:05Z")
}

// age is how long ago t was, in one unit.
func age(t, now time.Time) string {
	d := now.Sub(t)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", max(0, int(d/time.Second)))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d/time.Minute))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d/time.Hour))
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}

// count is a number of things.
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return strconv.Itoa(n) + " " + thing
}

// elapsed is a duration as people read it.
func elapsed(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	switch {
	case d < time.Second:
		return fmt.Sprintf("%dms", ms)
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// newLogger writes what an operator should know to stderr.
func (a *app) newLogger(level slog.Level) *slog.Logger {
	return slog.New(slog.NewTextHandler(a.err, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, attr slog.Attr) slog.Attr {
			// The handler would write %+v of an error, which for some is a stack trace.
			if err, ok := attr.Value.Any().(error); ok {
				attr.Value = slog.StringValue(err.Error())
			}
			return attr
		},
	}))
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// printValue is printJSON for what no server made.
func (a *app) printValue(v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return a.printJSON(raw)
}
