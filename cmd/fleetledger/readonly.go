package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/pebblelog"
	"fleetledger/events/seal"
	"fleetledger/projections"
)

// openReadOnly opens every fleet of the data directory for reading, as far as that
// goes, and tells what is wrong with each. One that cannot be read at all is left out,
// unless it is the only one. Nothing is signed: what is left of a log
// must not be signed as if it were the log.
func (a *app) openReadOnly(_ context.Context, _ string, logger *slog.Logger) (fleets map[string]*commands.Ledger, seals map[string]*seal.Sealer, isNew bool, err error) {
	names, err := fleetNames(a.data)
	if err != nil {
		return nil, nil, false, err
	}
	fleets = map[string]*commands.Ledger{}
	defer func() {
		if err != nil {
			for _, l := range fleets {
				err = errors.Join(err, l.Log().Close())
			}
		}
	}()
	restore := "restore a backup: fleetledger restore BACKUP --data NEW-DIRECTORY"
	var unread []error
	for _, name := range names {
		signed, err := signedHead(a.data, name)
		if err != nil {
			printer{a.err}.f("fleet %s: its newest checkpoint is not read: %v\n", name, err)
		}
		state := projections.NewState()
		log, err := pebblelog.OpenReadOnly(fleetDir(a.data, name), pebblelog.Options{Fleet: name, Fold: state, Logger: logger, Now: a.now, Signed: signed})
		if err != nil {
			if errors.Is(err, events.ErrLocked) {
				return fleets, nil, false, inUse(a.data)
			}
			unread = append(unread, fmt.Errorf("fleet %s: %w", name, err))
			continue
		}
		fleets[name] = commands.New(log, state, random())
		printer{a.err}.f("fleet %s is served for reading only, positions 1 to %d\n", name, log.Durable())
		if r, ok := errors.AsType[*events.ReadOnlyError](log.Degraded()); ok && r.Lost > 0 {
			printer{a.err}.f("  it is damaged from position %d on: %s\n  %s\n", r.Lost, r.Detail, restore)
		}
	}
	for _, err := range unread {
		if len(fleets) == 0 {
			return fleets, nil, false, tryNext(err, restore)
		}
		printer{a.err}.f("not served: %v\n  %s\n", err, restore)
	}
	if len(fleets) == 0 {
		return fleets, nil, false, tryNext(fmt.Errorf("there is no fleet in %s", a.data), restore)
	}
	return fleets, nil, false, nil
}

// signedHead is the head in the newest checkpoint of a fleet, nil if there is none.
func signedHead(dir, fleet string) (*pebblelog.Head, error) {
	kept, err := keptCheckpoint(dir, fleet)
	if err != nil || len(kept) == 0 {
		return nil, err
	}
	c, err := seal.ParseCheckpoint(kept[0])
	if err != nil {
		return nil, err
	}
	return &pebblelog.Head{Size: c.Size, Root: c.Root}, nil
}
