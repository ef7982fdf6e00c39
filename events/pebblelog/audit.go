package pebblelog

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"strings"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Audit is what ReadForAudit found besides the events.
type Audit struct {
	// Fleet is the fleet that the directory was made for, "" if that is lost.
	Fleet string
	// Size is the position of the last event there is, Root the Merkle root of all
	// up to it. Root is zero if a header on the way could not be read.
	Size uint64
	Root events.Hash
	// Anchor is the newest valid anchor record, nil if there is none; Slots says
	// what is wrong with each slot of the anchor file, nil for a valid one. One bad
	// slot is no damage: a write to it was interrupted.
	Anchor *Head
	Slots  [2]error
	// Damage says that the log is not what the anchor vouches for; nil if it is.
	Damage *DamagedError
	// Index lists entries of the indexes that disagree with the events, at most
	// MaxIndexProblems. They can be made again from the headers.
	Index []*events.CorruptError
}

// BeginningError says that a log does not begin like one that was audited before.
type BeginningError struct {
	Position events.Position // the first that is known not to be as it was
	Detail   string
}

func (e *BeginningError) Error() string { return e.Detail }

// ReadForAudit reads a log that no program has open, and changes nothing. from is the
// size and root of what an earlier audit has read of it, zero for nothing: that must be
// its beginning by the stored tiles, or else the error is a *BeginningError, and it is
// not read again; nor are the indexes then, which takes all of them.
//
// It calls fn for every position behind from in order, with the event as check has it
// looked at, and with what is wrong there: with the event itself, or with how it follows
// those before it. Damage does not end it, an error of fn does. What an event points to
// is overwritten once fn returns. Options that concern appends are not used; Fleet may
// be empty. The error is for a log that cannot be read at all.
func ReadForAudit(dir string, opts Options, from Head, check events.CheckOptions, fn func(*events.Checked, error) error) (Audit, error) {
	a, logger, err := openForAudit(dir, opts)
	if err != nil {
		return Audit{}, err
	}
	err = logger.await(func() error { return a.run(from, check, fn) })
	if logger.isStuck() {
		return a.out, err
	}
	return a.out, errors.Join(err, a.db.Close())
}

// ReadAgain reads single events of a log that no program has open, and changes nothing.
func ReadAgain(dir string, opts Options, positions []events.Position, fn func(events.Stored)) error {
	a, logger, err := openForAudit(dir, opts)
	if err != nil {
		return err
	}
	err = logger.await(func() error {
		r, err := newRecordReader(a.db, true)
		if err != nil {
			return err
		}
		defer r.close()
		for _, p := range positions {
			s, _, err := r.stored(p, nil)
			if err != nil {
				return err
			}
			fn(s)
		}
		return nil
	})
	if logger.isStuck() {
		return err
	}
	return errors.Join(err, a.db.Close())
}

// openForAudit opens a log for reading, past what is damaged in it.
func openForAudit(dir string, opts Options) (*auditor, *pebbleLogger, error) {
	if opts.Fleet == "" {
		opts.Fleet = "unknown" // withDefaults wants one; it is not compared
	}
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, nil, err
	}
	opts.FS = readOnlyFS{opts.FS}
	path := opts.FS.PathJoin(dir, pebbleName)
	if _, err := opts.FS.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("there is no log in %s", dir)
	} else if err != nil {
		return nil, nil, err
	}
	isNew, err := checkFormat(opts.FS, dir)
	if err != nil {
		return nil, nil, err
	}
	if isNew {
		return nil, nil, fmt.Errorf("there is no log in %s", dir)
	}
	logger := newPebbleLogger(opts.Logger, nil)
	db, err := openDatabase(path, opts.pebbleOptions(path, nil, true, logger), logger)
	if errors.Is(err, events.ErrLocked) {
		return nil, nil, err
	}
	if errors.Is(err, fs.ErrPermission) {
		return nil, nil, fmt.Errorf("the database in %s cannot be opened: %w", dir, err)
	}
	var cuts []walCut
	if pebble.IsCorruptionError(err) {
		db, cuts, err = openCut(dir, opts, nil, logger, err)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("the database in %s cannot be opened, so none of its events can be read: %w; restore a backup", dir, err)
	}
	return &auditor{dir: dir, opts: opts, db: db, cuts: cuts}, logger, nil
}

type auditor struct {
	dir  string
	opts Options
	db   *database
	cuts []walCut // where WALs stop being readable
	out  Audit
}

func (a *auditor) run(from Head, check events.CheckOptions, fn func(*events.Checked, error) error) error {
	var err error
	a.out.Anchor, a.out.Slots, err = readAnchor(a.opts.FS, a.opts.FS.PathJoin(a.dir, anchorName))
	if err != nil {
		return fmt.Errorf("read the anchor: %w", err)
	}
	a.checkMeta()
	if a.out.Size, err = a.end(); err != nil {
		return err
	}
	if len(a.cuts) > 0 {
		a.damaged(events.Position(a.out.Size+1), "%s", a.cuts[0])
	}
	r, err := newRecordReader(a.db, true)
	if err != nil {
		return err
	}
	defer r.close()
	var (
		tree    seal.Tree
		lost    bool // a header could not be read
		bad     bool // something is wrong with an event
		chain   = newChain(a.out.Fleet)
		indexes = newIndexSums()
	)
	tiles, stored := indexes.addTile, tileChecker{db: a.db}
	if from.Size > 0 {
		if tree, err = a.beginning(from, r); err != nil {
			return err
		}
		tiles = stored.check
	}
	check.Verify, check.Also = true, func(c *events.Checked) {
		if !c.Record.LeafHash.IsZero() {
			indexes.add(&c.Record)
		}
	}
	for c := range events.CheckAhead(a.stored(r, events.Position(from.Size+1)), check) {
		wrong := c.Err
		if _, ok := errors.AsType[*events.CorruptError](wrong); wrong != nil && !ok {
			return wrong
		}
		if rec := &c.Record; rec.LeafHash.IsZero() {
			lost = true
			chain.lose()
		} else {
			tree.Append(rec.LeafHash, tiles)
			indexes.addKey(&rec.Header)
			if from.Size == 0 { // or else the heads of streams are not known here
				if broken := chain.check(rec); wrong == nil {
					wrong = broken
				}
			}
			if wrong == nil {
				wrong = corruptAt(c.Stored.Position, c.Payload)
			}
			if !lost && a.out.Anchor != nil && tree.Size() == a.out.Anchor.Size && tree.Root() != a.out.Anchor.Root {
				a.damaged(1, "the Merkle root of the first %d events is %s, %s was acknowledged: at least one of them was replaced",
					tree.Size(), tree.Root(), a.out.Anchor.Root)
			}
		}
		bad = bad || wrong != nil
		if err := fn(c, wrong); err != nil {
			return err
		}
	}
	if !lost {
		a.out.Root = tree.Root()
	}
	a.checkAnchor()
	if from.Size > 0 {
		if corrupt, ok := errors.AsType[*events.CorruptError](stored.err); ok {
			return a.report(corrupt.Position, "%s", corrupt.Detail)
		}
		return stored.err
	}
	if err := a.checkIndexes(indexes, lost); err != nil {
		return err
	}
	if bad || a.out.Damage != nil || len(a.out.Index) > 0 {
		return nil // what is wrong with the files shows in what they hold
	}
	return a.checkTables()
}

// beginning is the tree of what an earlier audit has read, by the stored tiles.
func (a *auditor) beginning(from Head, r *recordReader) (seal.Tree, error) {
	if from.Size > a.out.Size {
		return seal.Tree{}, &BeginningError{events.Position(a.out.Size + 1), fmt.Sprintf("an earlier audit read %d events, %d are there", from.Size, a.out.Size)}
	}
	tree, err := treeAt(a.db, from.Size, r)
	if corrupt, ok := errors.AsType[*events.CorruptError](err); ok {
		return seal.Tree{}, &BeginningError{corrupt.Position, corrupt.Detail}
	}
	if err != nil {
		return seal.Tree{}, err
	}
	if tree.Root() != from.Root {
		return seal.Tree{}, &BeginningError{1, fmt.Sprintf("the Merkle root of the first %d events is %s, an earlier audit found %s: it is another log, or at least one of them was replaced", from.Size, tree.Root(), from.Root)}
	}
	if an := a.out.Anchor; an != nil && an.Size == from.Size && an.Root != from.Root {
		a.damaged(1, "the Merkle root of the first %d events is %s, %s was acknowledged: at least one of them was replaced", from.Size, from.Root, an.Root)
	}
	return tree, nil
}

// stored yields every event from a position on, or what is wrong in its place. It is read by
// another goroutine than the auditor's own, which would not see it panic.
func (a *auditor) stored(r *recordReader, next events.Position) iter.Seq2[events.Stored, error] {
	type found struct {
		event events.Stored
		err   error
	}
	return func(yield func(events.Stored, error) bool) {
		var (
			portion []found
			buf     []byte
		)
		for next <= events.Position(a.out.Size) {
			portion, buf = portion[:0], buf[:0]
			err := a.db.logger.protect(func() error {
				for ; next <= events.Position(a.out.Size) && len(portion) < fullPortion && len(buf) < maxPortionBytes; next++ {
					var f found
					f.event, buf, f.err = r.stored(next, buf)
					portion = append(portion, f)
				}
				return nil
			})
			for _, f := range portion {
				if !yield(f.event, f.err) {
					return
				}
			}
			if err != nil {
				yield(events.Stored{}, err)
				return
			}
		}
	}
}

// corruptAt makes err one of position p.
func corruptAt(p events.Position, err error) error {
	if err == nil {
		return nil
	}
	return &events.CorruptError{Position: p, Detail: said(err)}
}

// said is what an error says, without the mark that Pebble's have for programs.
func said(err error) string {
	return strings.ReplaceAll(err.Error(), "\n<corruption detail carrier>", "")
}

// damaged records the first damage that is found.
func (a *auditor) damaged(p events.Position, format string, args ...any) {
	if a.out.Damage == nil {
		a.out.Damage = &DamagedError{Dir: a.dir, Position: p, Detail: fmt.Sprintf(format, args...)}
	}
}

// checkMeta compares whose log this is with whose anchor it is.
func (a *auditor) checkMeta() {
	v, found, err := a.db.Get(metaKey)
	switch {
	case err == nil && !found:
		if a.out.Anchor != nil {
			a.damaged(1, "the database has lost the log's id; the anchor names %d events", a.out.Anchor.Size)
		}
		return
	case err != nil:
		a.damaged(1, "the log's id cannot be read: %v", err)
		return
	}
	id, fleet, err := parseMeta(v)
	if err != nil {
		a.damaged(1, "%v", err)
		return
	}
	a.out.Fleet = fleet
	if a.out.Anchor != nil && a.out.Anchor.log != id {
		a.damaged(1, "the anchor is that of another log")
	}
}

// checkAnchor compares the size of the log with the anchor's.
func (a *auditor) checkAnchor() {
	switch anchored := a.out.Anchor; {
	case anchored == nil && a.out.Size > 0:
		a.damaged(1, "the anchor has no valid record (%s), so nothing vouches for the %d events there are", slotWords(a.out.Slots), a.out.Size)
	case anchored != nil && a.out.Size < anchored.Size:
		a.damaged(events.Position(a.out.Size+1), "%d events were acknowledged, %d are there", anchored.Size, a.out.Size)
	}
}

// end is the position of the last event. Where the end of one kind of key cannot
// be read, another kind's may.
func (a *auditor) end() (uint64, error) {
	var (
		end  uint64
		errs []error
	)
	for _, space := range []byte{headerSpace, payloadSpace} {
		last, err := lastPosition(a.db, space)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		end = max(end, uint64(last))
	}
	if len(errs) > 0 && a.out.Anchor != nil {
		end = max(end, a.out.Anchor.Size)
		errs = nil
	}
	if len(errs) == 2 {
		return 0, fmt.Errorf("the end of the log in %s cannot be read: %w", a.dir, errors.Join(errs...))
	}
	return end, nil
}
