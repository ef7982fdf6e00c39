package pebblelog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"fleetledger/events"
)

// Backup is a copy of a log as it was at one moment.
type Backup struct {
	// Head is what its anchor vouches for: everything that was acknowledged when the
	// backup was begun. A few events more may be in it.
	Head Head
	// Files are those of the copy's directory, with slashes in their names.
	Files []BackupFile
}

// BackupFile is one file of a backup.
type BackupFile struct {
	Name string
	Size int64
	Open func() (io.ReadCloser, error)
}

// ErrBackingUp refuses a backup beside another one.
var ErrBackingUp = errors.New("another backup of this log is being made")

// backupName is where the files of a backup are kept while it is made. Most of them
// are links: they take space only as compactions write the log's own anew.
const backupName = "backup.new"

// Backup calls f with a copy of the log while appends and reads go on; its files are
// there until f returns. It waits until every event in the copy is durable here: a
// copy never has an event that the log may still lose.
func (l *Log) Backup(ctx context.Context, f func(Backup) error) (err error) {
	if !l.backingUp.TryLock() {
		return ErrBackingUp
	}
	defer l.backingUp.Unlock()
	done, err := l.use()
	if err != nil {
		return err
	}
	defer done()
	if err := l.failedErr(); err != nil {
		return err
	}
	// Its files may hold payloads that are erased meanwhile: those are gone when the
	// backup's are.
	select {
	case l.scrubbing <- struct{}{}:
		defer func() { <-l.scrubbing }()
	case <-ctx.Done():
		return ctx.Err()
	}

	// The head first: the database, copied after it, has at least its events.
	tree := l.Tree()
	head := Head{Generation: 1, Size: tree.Size, Root: tree.Root, log: l.id}
	fsys := l.opts.FS
	dir := fsys.PathJoin(l.dir, backupName)
	if err := fsys.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove what an earlier backup left: %w", err)
	}
	defer func() { err = errors.Join(err, fsys.RemoveAll(dir)) }()
	if err := l.copyDatabase(dir); err != nil {
		return fmt.Errorf("copy the database: %w", err)
	}
	last := events.Position(l.written.Load())
	if err := l.Wait(ctx, last); err != nil {
		return fmt.Errorf("wait until position %d is durable: %w", last, err)
	}

	b := Backup{Head: head, Files: []BackupFile{
		memoryFile(formatName, []byte(formatLine())),
		memoryFile(anchorName, head.file()),
	}}
	if l.replica {
		b.Files = append(b.Files, memoryFile(replicaName, []byte(replicaLine)))
	}
	names, err := fsys.List(dir)
	if err != nil {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		path := fsys.PathJoin(dir, name)
		info, err := fsys.Stat(path)
		if err != nil {
			return err
		}
		b.Files = append(b.Files, BackupFile{Name: pebbleName + "/" + name, Size: info.Size(), Open: func() (io.ReadCloser, error) {
			return fsys.Open(path)
		}})
	}
	return f(b)
}

// BackupHas reports whether a Backup may have a file of this name.
func BackupHas(name string) bool {
	switch name {
	case formatName, anchorName, replicaName:
		return true
	}
	folder, _, ok := strings.Cut(name, "/")
	return ok && folder == pebbleName
}

// copyDatabase makes a copy of the database in dir. What is durable is in files, so
// nothing needs to be flushed for it.
func (l *Log) copyDatabase(dir string) error {
	return l.logger.await(func() (err error) {
		defer func() {
			// Pebble panics when it cannot sync the copy's directory. It holds no lock
			// then, and the database itself is well.
			if r := recover(); r != nil {
				err = fmt.Errorf("panic in Pebble: %v", r)
			}
		}()
		return l.db.Checkpoint(dir)
	})
}

func memoryFile(name string, content []byte) BackupFile {
	return BackupFile{Name: name, Size: int64(len(content)), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(content)), nil
	}}
}
