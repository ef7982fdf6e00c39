package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"fleetledger/commands"
	"fleetledger/projections/sqlview"
)

const viewName = "view"

// openViews opens the read models of fleets. They catch up by themselves. Where
// nothing may be changed in the data directory they are made elsewhere.
func openViews(dir string, fleets map[string]*commands.Ledger, readOnly bool, logger *slog.Logger) (map[string]*sqlview.View, error) {
	views := map[string]*sqlview.View{}
	for name, l := range fleets {
		in := filepath.Join(fleetDir(dir, name), viewName)
		if readOnly {
			in = ""
		}
		v, err := sqlview.Open(l.Log(), in, logger.With("fleet", name))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("fleet %s: %w", name, err), closeViews(views))
		}
		views[name] = v
	}
	return views, nil
}

func closeViews(views map[string]*sqlview.View) error {
	var all error
	for _, v := range views {
		all = errors.Join(all, v.Close())
	}
	return all
}
