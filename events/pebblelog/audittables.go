package pebblelog

import (
	"context"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/sstable"
)

// checkTables reads every block of every table. What nobody has read so far is what
// tells quickly that a key is not there: if it is damaged no event is lost, but
// appends meet it.
func (a *auditor) checkTables() error {
	levels, err := a.db.SSTables()
	if err != nil {
		return err
	}
	for _, level := range levels {
		for _, table := range level {
			name := fmt.Sprintf("%06d.sst", uint64(table.FileNum))
			if err := a.checkTable(name); err != nil {
				if err := a.report(0, "the table %s is damaged: %v", name, err); err != nil {
					return nil // there are enough
				}
			}
		}
	}
	return nil
}

func (a *auditor) checkTable(name string) error {
	fsys := a.opts.FS
	file, err := fsys.Open(fsys.PathJoin(fsys.PathJoin(a.dir, pebbleName), name))
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, sstable.ReaderOptions{})
	if err != nil {
		return err // it has closed readable
	}
	return errors.Join(r.ValidateBlockChecksums(), r.Close())
}
