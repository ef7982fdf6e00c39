package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"fleetledger/agent"
	"fleetledger/commands"
	"fleetledger/projections/sqlview"
)

func (a *app) rebuildCommand() *cobra.Command {
	var fleet string
	cmd := &cobra.Command{
		Use:   "rebuild [--data DIR | --server URL]",
		Short: "Make a fleet's view again, from its log",
		Long: strings.TrimSpace(`
Make the view again that answers memory, conclusions, tried and sql. It holds
nothing that the log does not, and a damaged or old one is made again by itself; this
is for whoever wants to be sure.

At a server the old view answers until the new one takes its place. With --data it is
made in a data directory that no server has open.`),
		Example: `  fleetledger rebuild
  fleetledger rebuild --data /var/lib/fleetledger --fleet staging`,
		Args: cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("data") {
				for _, name := range []string{"fleet", "engine"} {
					if cmd.Flags().Changed(name) {
						return misused("--%s is for a view in a directory: give it with --data; a server has the fleet of the token", name)
					}
				}
				return a.rebuildServer(cmd)
			}
			if a.server != "" {
				return misused("--data rebuilds in a directory and --server at a server: give one of them")
			}
			return a.rebuildData(cmd.Context(), fleet)
		}),
	}
	a.engineFlag(cmd)
	cmd.Flags().StringVar(&fleet, "fleet", defaultFleet, "with --data: which fleet")
	return cmd
}

func (a *app) rebuildServer(cmd *cobra.Command) error {
	c, err := a.client(cmd)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	status := func(r *agent.Response, err error) (v viewStatus, _ error) {
		if err != nil {
			return v, a.unanswered(err)
		}
		return v, r.Decode(&v)
	}
	before, err := status(c.Get(ctx, "/v1/view", nil))
	if err != nil {
		return err
	}
	if _, err := status(c.Post(ctx, "/v1/view/rebuild", nil)); err != nil {
		return err
	}
	note := a.newProgress("folded")
	defer note.end()
	for wait := 20 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		r, err := c.Get(ctx, "/v1/view", nil)
		v, err := status(r, err)
		if err != nil {
			return err
		}
		switch {
		// One that was under way when this was asked for does not count.
		case v.Rebuilds > before.Rebuilds+rebuildsUnderWay(before) && !v.Rebuilding:
			note.end()
			return a.show(r, func(p printer, _ *agent.Response) error { v.show(p); return nil })
		case v.Fault != "":
			return fmt.Errorf("the view could not be made again; the server goes on trying: %s", v.Fault)
		}
		note.at(v.Rebuilt, v.Head)
		if err := pause(ctx, wait); err != nil {
			return errors.New("waiting was broken off; the view is made at the server all the same")
		}
	}
}

func rebuildsUnderWay(v viewStatus) int {
	if v.Rebuilding {
		return 1
	}
	return 0
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (a *app) rebuildData(ctx context.Context, fleet string) error {
	if err := existingData(a.data); err != nil {
		return err
	}
	if _, err := os.Stat(fleetDir(a.data, fleet)); err != nil {
		return tryNext(fmt.Errorf("there is no fleet %s in %s", fleet, a.data), "fleetledger fleet found NAME --data "+shellWord(a.data))
	}
	return a.offline(ctx, fleet, func(l *commands.Ledger) (err error) {
		dir := filepath.Join(fleetDir(a.data, fleet), viewName)
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
		v, err := sqlview.Open(l.Log(), dir, a.newLogger(slog.LevelWarn))
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, v.Close()) }()
		note := a.newProgress("folded")
		defer note.end()
		for {
			s := v.Status()
			waiting, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			err := v.Wait(waiting, l.Log().Durable())
			cancel()
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if s.Fault != "" {
				return fmt.Errorf("the view could not be made: %s", s.Fault)
			}
			note.at(uint64(s.Rebuilt), uint64(s.Head))
		}
		note.end()
		s := v.Status()
		out := viewStatus{Position: uint64(s.Position), Head: uint64(s.Head), Rebuilds: s.Rebuilds, Fault: s.Fault}
		parked, err := v.Parked(ctx, 100)
		if err != nil {
			return err
		}
		for _, p := range parked {
			out.Parked = append(out.Parked, struct {
				Position uint64 `json:"position"`
				Type     string `json:"type"`
				Error    string `json:"error"`
			}{uint64(p.Position), string(p.Type), p.Error})
		}
		if a.json {
			return a.printValue(out)
		}
		out.show(printer{a.out})
		return nil
	})
}
