package pebblelog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	formatName    = "format"
	formatVersion = 1
	formatPrefix  = "fleetledger log, format "
	pebbleName    = "pebble"
)

// lockDir makes the directory of a log if it is not there, and locks it: the
// lock of the database is that of the whole directory.
// LockDirectory keeps other processes from locking dir, until the closer is
// closed or the process ends. It is for a directory that holds several logs; each
// log is locked by itself too. The error wraps events.ErrLocked if another has it.
func LockDirectory(dir string) (io.Closer, error) {
	lock, err := pebble.LockDirectory(dir, vfs.Default)
	if err != nil {
		return nil, lockError(dir, err)
	}
	return lock, nil
}

func lockDir(fsys vfs.FS, dir string) (*pebble.Lock, error) {
	if err := makeDirs(fsys, fsys.PathJoin(dir, pebbleName)); err != nil {
		return nil, err
	}
	path := fsys.PathJoin(dir, pebbleName)
	lock, err := pebble.LockDirectory(path, fsys)
	if err != nil {
		return nil, lockError(path, err)
	}
	return lock, nil
}

// makeDirs makes dir and what is missing above it, and makes that durable.
func makeDirs(fsys vfs.FS, dir string) error {
	changed := []string{}
	for d := dir; ; {
		_, err := fsys.Stat(d)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		up := fsys.PathDir(d)
		changed = append(changed, up)
		if up == d {
			break
		}
		d = up
	}
	if err := fsys.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range changed {
		if err := syncDir(fsys, d); err != nil {
			return err
		}
	}
	return nil
}

// checkFormat refuses a directory whose layout this program does not know. It
// reports whether the directory is new, that is, has no format file and nothing
// that one would belong to.
func checkFormat(fsys vfs.FS, dir string) (isNew bool, err error) {
	line, err := readFile(fsys, fsys.PathJoin(dir, formatName))
	if errors.Is(err, fs.ErrNotExist) {
		return true, checkNothingThere(fsys, dir)
	}
	if err != nil {
		return false, err
	}
	version, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), formatPrefix)
	n, err := strconv.Atoi(version)
	switch {
	case !ok || err != nil || n < 1:
		return false, fmt.Errorf("%s does not say which format the directory has: it begins %.40q; restore it, it should read %q",
			fsys.PathJoin(dir, formatName), line, formatLine())
	case n > formatVersion:
		return false, fmt.Errorf("%s has format %d, this program reads up to %d: use the newer program that wrote it", dir, n, formatVersion)
	}
	return false, nil
}

func formatLine() string { return formatPrefix + strconv.Itoa(formatVersion) + "\n" }

// checkNothingThere refuses to make a log where parts of one lie.
func checkNothingThere(fsys vfs.FS, dir string) error {
	lost := func(what string) error {
		return fmt.Errorf("%s has %s but no file %q: it is not whole; restore the directory from a backup", dir, what, formatName)
	}
	if _, err := fsys.Stat(fsys.PathJoin(dir, anchorName)); err == nil {
		return lost("an anchor")
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	names, err := fsys.List(fsys.PathJoin(dir, pebbleName))
	if err != nil {
		return err
	}
	for _, name := range names {
		if name != "LOCK" {
			return lost("a database")
		}
	}
	return nil
}

// readFile returns what a small file holds.
func readFile(fsys vfs.FS, path string) (string, error) {
	f, err := fsys.Open(path)
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(io.LimitReader(f, 4096))
	return string(b), errors.Join(err, f.Close())
}
