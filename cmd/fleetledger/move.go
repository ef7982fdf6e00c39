package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/events/pebblelog"
	"fleetledger/relay/bus"
)

func (a *app) moveCommand() *cobra.Command {
	const example = `  fleetledger move --from pebble --to kurrentdb://db1:2113,db2:2113,db3:2113
  fleetledger move --from kurrentdb://db1:2113,db2:2113,db3:2113 --to pebble`
	var from, to, fleet string
	cmd := &cobra.Command{
		Use:   "move --from ENGINE --to ENGINE",
		Short: "Move a fleet's log into a KurrentDB cluster, or out of one",
		Long: strings.TrimSpace(`
Move the log of a fleet between the data directory (pebble) and a KurrentDB cluster.
Every event stays as it is: position, id, bytes, Merkle root, and so every proof and
checkpoint. Afterwards each event is read from the cluster and compared. How far the
subscriptions are goes with it.

No server may have the data directory open, and when the move is out of a cluster,
no other relay may run: what it records afterwards is not in the directory.

Into a cluster, its stream must be empty, or hold what an interrupted move has
copied; the directory is then a replica, for serve --engine. Out of one, the
directory is the replica, or new; the stream stays as it is. A --from or --to of "$" is
what ` + envEngine + ` names.`),
		Example: example,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			for _, e := range []*string{&from, &to} {
				if *e == "$" {
					*e = os.Getenv(envEngine)
				}
			}
			switch {
			case from == "" || to == "":
				return misused("move --from ENGINE --to ENGINE: an engine is pebble, or kurrentdb://...")
			case (from == embedded) == (to == embedded):
				return misused("a log is moved between pebble and a cluster: one of --from and --to is pebble")
			case !events.ValidID(fleet):
				return misused("%q names no fleet", fleet)
			}
			if from == embedded {
				a.engineName = to
			} else {
				a.engineName = from
			}
			engine, err := a.engine()
			if err != nil {
				return err
			}
			return a.move(cmd.Context(), fleet, engine, from == embedded)
		}),
	}
	cmd.Flags().StringVar(&from, "from", "", "where the log is: pebble, or kurrentdb://...")
	cmd.Flags().StringVar(&to, "to", "", "where it is to be")
	cmd.Flags().StringVar(&fleet, "fleet", defaultFleet, "whose log")
	return cmd
}

// moved is what move answers.
type moved struct {
	Fleet  string          `json:"fleet"`
	From   string          `json:"from"`
	To     string          `json:"to"`
	Events events.Position `json:"events"`
	Root   events.Hash     `json:"root"`
}

func (a *app) move(ctx context.Context, fleet, engine string, into bool) error {
	prepare := makeData
	if into {
		prepare = existingData
	}
	if err := prepare(a.data); err != nil {
		return err
	}
	lock, err := lockData(a.data, false)
	if err != nil {
		return err
	}
	out, err := a.moveLocked(ctx, fleet, engine, into)
	if err := errors.Join(err, lock.Close()); err != nil {
		return err
	}
	if a.json {
		return a.printValue(out)
	}
	p := printer{a.out}
	p.f("fleet %s is in %s: %s, root %s\n", fleet, out.To, count(int(out.Events), "event"), out.Root)
	if into {
		p.f("try: fleetledger serve --engine '%s' --data %s\n", kurrentlog.Redact(engine), shellWord(a.data))
	} else {
		p.f("try: fleetledger audit --data %s --fleet %s\n", shellWord(a.data), fleet)
	}
	return nil
}

// moveLocked moves a log of a directory that nobody else changes.
func (a *app) moveLocked(ctx context.Context, fleet, engine string, into bool) (moved, error) {
	dir := fleetDir(a.data, fleet)
	logger := a.newLogger(slog.LevelWarn)
	local := pebblelog.Options{Fleet: fleet, Logger: logger, Now: a.now}
	remote := kurrentlog.Options{Connection: engine, Fleet: fleet, Logger: logger, Now: a.now}
	shown := kurrentlog.Redact(engine)
	if !into {
		replica, err := pebblelog.OpenReplica(dir, local)
		if err != nil {
			return moved{}, explainOpen(err, a.data, fleet)
		}
		log, err := kurrentlog.Open(ctx, replica, remote)
		if err != nil {
			return moved{}, errors.Join(explainCluster(err, dir, fleet), replica.Close())
		}
		out := moved{fleet, shown, embedded, log.Durable(), log.Tree().Root}
		if out.Events == 0 {
			err = fmt.Errorf("there is no fleet %s in %s", fleet, shown)
		} else {
			if err = kurrentlog.Compare(ctx, log, remote); err == nil {
				err = a.moveCursors(ctx, log, fleet, remote, false)
			}
			err = explainMove(err, fleet)
		}
		if err := errors.Join(err, log.Close()); err != nil {
			return moved{}, err
		}
		// A crash before this line leaves a replica: the move is made again.
		return out, pebblelog.SetReplica(dir, false)
	}

	if _, err := os.Stat(dir); err != nil {
		return moved{}, tryNext(fmt.Errorf("there is no fleet %s in %s", fleet, a.data), "name the data directory with --data, and the fleet with --fleet")
	}
	log, err := pebblelog.Open(dir, local)
	if err != nil {
		return moved{}, explainOpen(err, a.data, fleet)
	}
	out := moved{fleet, embedded, shown, log.Durable(), log.Tree().Root}
	told := events.Position(0)
	err = kurrentlog.Import(ctx, log, remote, func(done events.Position) {
		if done-told >= 50_000 || done == out.Events {
			told = done
			printer{a.err}.f("%d of %d events are there\n", done, out.Events)
		}
	})
	if err == nil {
		err = a.moveCursors(ctx, log, fleet, remote, true)
	}
	if err := errors.Join(explainMove(err, fleet), log.Close()); err != nil {
		return moved{}, err
	}
	// A crash before this line leaves a log of its own, and a copy that the next move
	// finds whole.
	return out, pebblelog.SetReplica(dir, true)
}

// moveCursors copies how far the subscriptions of a log are, into its cluster or out of
// it.
func (a *app) moveCursors(ctx context.Context, log events.Log, fleet string, remote kurrentlog.Options, into bool) error {
	shelf, err := kurrentlog.OpenShelf(remote)
	if err != nil {
		return err
	}
	defer shelf.Close()
	from, to := bus.Store(shelf), bus.Files(filepath.Join(fleetDir(a.data, fleet), subscriptionsName))
	if into {
		from, to = to, from
	}
	return bus.CopyCursors(ctx, log, from, to)
}

func explainMove(err error, fleet string) error {
	if err == nil {
		return nil
	}
	err = fmt.Errorf("fleet %s: %w", fleet, err)
	switch {
	case errors.Is(err, events.ErrUnavailable):
		return tryNext(err, "see that the cluster runs, then move again: it goes on from where it was")
	case errors.Is(err, context.Canceled):
		return tryNext(err, "move again: it goes on from where it was")
	}
	if _, ok := errors.AsType[*kurrentlog.NotEmptyError](err); ok {
		return tryNext(err, "name another stream with ?streamPrefix=NAME, or stop the relays that use this one")
	}
	return err
}
