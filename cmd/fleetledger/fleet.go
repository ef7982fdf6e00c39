package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"fleetledger/commands"
	"fleetledger/events"
)

func (a *app) fleetCommand() *cobra.Command {
	const example = `  fleetledger fleet found staging --data /var/lib/fleetledger`
	var originHost string
	foundCmd := &cobra.Command{
		Use:   "found NAME",
		Short: "Add a fleet, with a root of its own, to a data directory that no server has open",
		Long: `Add a fleet to a data directory. No server may have the directory open. The token
of the new fleet's root is written to fleets/NAME/root.token there.`,
		Example: example,
		Args:    cobra.ExactArgs(1),
		RunE: a.does(func(cmd *cobra.Command, args []string) error {
			name := args[0]
			if !events.ValidID(name) {
				return misused("%q cannot name a fleet: a-z, 0-9 and . _ - after the first character, at most 64", name)
			}
			if err := makeData(a.data); err != nil {
				return err
			}
			return a.offline(cmd.Context(), name, func(l *commands.Ledger) error {
				if l.Log().Durable() > 0 {
					return tryNext(fmt.Errorf("fleet %s is founded already", name), "fleetledger serve --data "+shellWord(a.data))
				}
				if err := a.found(cmd.Context(), l, name, originHost); err != nil {
					return err
				}
				return a.tokenWritten(name)
			})
		}),
	}
	originHostFlag(foundCmd, &originHost)
	a.engineFlag(foundCmd)
	return a.group("fleet", "Add fleets to a data directory", example, foundCmd)
}

func (a *app) rootTokenCommand() *cobra.Command {
	const example = `  fleetledger root-token reset --data /var/lib/fleetledger`
	var fleet string
	reset := &cobra.Command{
		Use:   "reset",
		Short: "Give root a new token, in a data directory that no server has open",
		Long: `Give the root of a fleet a new token and end its old ones. No server may have the
data directory open. It is for a token that was lost, or never written because the
first start was cut off. The reset is recorded like any other event.`,
		Example: example,
		Args:    cobra.NoArgs,
		RunE: a.does(func(cmd *cobra.Command, _ []string) error {
			if err := existingData(a.data); err != nil {
				return err
			}
			if _, err := os.Stat(fleetDir(a.data, fleet)); err != nil {
				return tryNext(fmt.Errorf("there is no fleet %s in %s", fleet, a.data), "fleetledger fleet found NAME --data "+shellWord(a.data))
			}
			return a.offline(cmd.Context(), fleet, func(l *commands.Ledger) error {
				if l.Log().Durable() == 0 {
					return tryNext(fmt.Errorf("fleet %s was never founded", fleet), "fleetledger fleet found "+fleet+" --data "+shellWord(a.data))
				}
				r, err := l.ResetRootToken(cmd.Context())
				if err != nil {
					return err
				}
				if err := writeToken(rootTokenFile(a.data, fleet), r.Secret); err != nil {
					return err
				}
				return a.tokenWritten(fleet)
			})
		}),
	}
	a.engineFlag(reset)
	reset.Flags().StringVar(&fleet, "fleet", defaultFleet, "whose root")
	return a.group("root-token", "Recover the token of a fleet's root", example, reset)
}

// offline opens a fleet without a server, for f.
func (a *app) offline(ctx context.Context, fleet string, f func(*commands.Ledger) error) error {
	lock, err := lockData(a.data, false)
	if err != nil {
		return err
	}
	dir := fleetDir(a.data, fleet)
	_, err = os.Lstat(dir)
	unused := errors.Is(err, fs.ErrNotExist)
	l, _, err := a.openFleet(ctx, fleet, a.newLogger(slog.LevelWarn))
	if err == nil {
		err = f(l)
		unused = unused && l.Log().Durable() == 0
		err = errors.Join(err, l.Log().Close())
	}
	if unused {
		// A server would not start beside a fleet that was never founded.
		err = errors.Join(err, os.RemoveAll(dir))
	}
	return errors.Join(err, lock.Close())
}

func (a *app) tokenWritten(fleet string) error {
	name := rootTokenFile(a.data, fleet)
	if a.json {
		return a.printValue(struct {
			Fleet     string `json:"fleet"`
			TokenFile string `json:"token_file"`
		}{fleet, name})
	}
	printer{a.out}.f("the token of fleet %s's root is in %s\n", fleet, name)
	return nil
}
