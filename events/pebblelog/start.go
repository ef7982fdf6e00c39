package pebblelog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// DamagedError says that a log is not what was acknowledged. Nothing in its
// directory was changed.
type DamagedError struct {
	Dir string
	// Position is the first event that is lost, wrong, or cannot be told from a
	// wrong one.
	Position events.Position
	Detail   string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("the log in %s is damaged from position %d on: %s; nothing was changed: look with `fleetledger audit --data %s`, then restore a backup",
		e.Dir, e.Position, e.Detail, e.Dir)
}

// Open opens the log in dir, and makes one if dir is empty or missing. It reads
// the log first and opens nothing that is not what was acknowledged: then it returns
// a *DamagedError. A log in use is refused with events.ErrLocked.
//
// It reads the whole log, or, if there is a snapshot of the fold, what comes after
// it: then the tree up to there is made from the stored tiles, its root compared with
// the snapshot's and the anchor's, and the events before are read behind it. Damage
// found there ends appends: see Degraded and Verified.
func Open(dir string, opts Options) (*Log, error) { return openAs(dir, opts, false) }

// openAs opens a log, or, if replica is set, a replica.
func openAs(dir string, opts Options, replica bool) (*Log, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, err
	}
	lock, err := lockDir(opts.FS, dir)
	if err != nil {
		return nil, err
	}
	if err := checkRole(opts.FS, dir, replica); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	l := newLog(dir, opts)
	l.lock = lock
	l.replica = replica
	l.logger = newPebbleLogger(opts.Logger, func(err error) { l.fail(err) })
	l.logger.flushFailed = func(err error) { l.fail(err) }
	l.space.failing = l.logger.flushFails
	if err := l.open(); err != nil {
		if l.db != nil {
			err = errors.Join(err, l.db.Close())
		}
		if !l.logger.isStuck() {
			err = errors.Join(err, lock.Close())
		}
		l.stopScrub()
		return nil, err
	}
	l.start()
	return l, nil
}

// newLog is a log that was not opened yet.
func newLog(dir string, opts Options) *Log {
	l := &Log{
		dir:     dir,
		opts:    opts,
		queue:   queue{ready: make(chan struct{}, 1)},
		space:   space{fs: opts.FS, dir: dir, min: opts.MinFreeBytes},
		probers: make(chan *prober, probersKept),
		tail:    tail{limit: maxTailBytes},
		failed:  make(chan struct{}),

		scrubbing: make(chan struct{}, 1),
		scrubDue:  make(chan struct{}, 1),
	}
	l.scrubCtx, l.stopScrub = context.WithCancel(context.Background())
	return l
}

// open checks what is in the directory, with the lock held, and opens it.
func (l *Log) open() error {
	fsys := l.opts.FS
	isNew, err := checkFormat(fsys, l.dir)
	if err != nil {
		return err
	}
	if isNew {
		// First of all, so that everything else in the directory has a format.
		if err := writeFileDurably(fsys, l.dir, formatName, []byte(formatLine())); err != nil {
			return err
		}
	}
	anchored, slots, err := readAnchor(fsys, fsys.PathJoin(l.dir, anchorName))
	if err != nil {
		return fmt.Errorf("read the anchor: %w", err)
	}

	desc, err := pebble.Peek(fsys.PathJoin(l.dir, pebbleName), fsys)
	if err != nil {
		return fmt.Errorf("look for the database in %s: %w", l.dir, err)
	}
	var was verified
	switch {
	case desc.Exists:
		// Read-only first: opening for writing replays the WAL and removes it, and
		// with it what could still be found in a damaged one.
		if err := l.openPebble(true); err != nil {
			return err
		}
		if was, err = l.verify(anchored, slots); err != nil {
			return err
		}
		if err := l.closePebble(); err != nil {
			return err
		}
	case anchored != nil:
		return &DamagedError{Dir: l.dir, Position: 1, Detail: fmt.Sprintf("the database is missing, the anchor names %d events", anchored.Size)}
	}
	if was.id == (logID{}) {
		// A new log. The WAL that Pebble begins before the database has its final
		// format lacks what tells a damaged WAL from a torn one: nothing is written
		// until it has begun another.
		if err := l.openPebble(false); err != nil {
			return err
		}
		if err := l.closePebble(); err != nil {
			return err
		}
	}
	if err := l.openPebble(false); err != nil {
		return err
	}
	if err := fsys.RemoveAll(fsys.PathJoin(l.dir, backupName)); err != nil {
		return fmt.Errorf("remove what a backup left that was cut off: %w", err)
	}
	return l.settle(was, anchored)
}

// openPebble opens the database.
func (l *Log) openPebble(readOnly bool) error {
	path := l.opts.FS.PathJoin(l.dir, pebbleName)
	opts := l.opts.pebbleOptions(path, l.lock, readOnly, l.logger)
	if readOnly && !l.mayResume() {
		opts.CacheSize = readOnceCacheBytes
	}
	db, err := openDatabase(path, opts, l.logger)
	switch {
	case err == nil:
		l.db = db
		return nil
	case pebble.IsCorruptionError(err):
		return l.damagedWAL(err)
	default:
		return fmt.Errorf("open the database in %s: %w", l.dir, err)
	}
}

// readOnceCacheBytes is the block cache where the whole log is read, once and in order.
// With one that keeps what is read, memory for every block is new, and costs more than
// reading it.
const readOnceCacheBytes = 8 << 20

func (l *Log) closePebble() error {
	err := l.db.Close()
	l.db = nil
	return err
}

// verified is what reading the whole log told.
type verified struct {
	id   logID // zero if the log is new
	tree seal.Tree
	// lacking is how many full tiles are not stored: a log made before there were
	// tiles has none.
	lacking int
	time    time.Time // of the newest event
	// resumed is the position of the snapshot that reading began behind, 0 if it began
	// with the first event.
	resumed events.Position
}

// verify reads the whole log, checks it, and feeds the fold.
func (l *Log) verify(anchored *Head, slots [anchorSlots]error) (was verified, err error) {
	damaged := func(p events.Position, format string, args ...any) error {
		return &DamagedError{Dir: l.dir, Position: p, Detail: fmt.Sprintf(format, args...)}
	}
	if was.id, err = l.readMeta(); err != nil {
		return was, err
	}
	switch {
	case anchored == nil:
	case was.id == (logID{}):
		return was, damaged(1, "the database is empty, the anchor names %d events", anchored.Size)
	case was.id != anchored.log:
		return was, damaged(1, "the anchor is that of another log")
	}
	if l.resume(&was) {
		if err := l.checkResumed(&was, anchored); err != nil {
			return was, err
		}
	}
	if err := l.readLog(&was, anchored); err != nil {
		return was, err
	}
	return was, l.checkSize(&was, anchored, slots)
}

// checkSize compares the size of what was read with what is known to have been.
func (l *Log) checkSize(was *verified, anchored *Head, slots [anchorSlots]error) error {
	damaged := func(p events.Position, format string, args ...any) error {
		return &DamagedError{Dir: l.dir, Position: p, Detail: fmt.Sprintf(format, args...)}
	}
	size := was.tree.Size()
	switch {
	case anchored == nil && size > 0:
		return damaged(1, "the anchor has no valid record (%s), so nothing vouches for the %d events there are", slotWords(slots), size)
	case anchored != nil && size < anchored.Size:
		return damaged(events.Position(size+1), "%d events were acknowledged, %d are there", anchored.Size, size)
	case l.opts.Signed != nil && size < l.opts.Signed.Size:
		return damaged(events.Position(size+1), "a checkpoint was signed over %d events, %d are there", l.opts.Signed.Size, size)
	}
	return nil
}

func slotWords(slots [anchorSlots]error) string {
	words := make([]string, len(slots))
	for i, err := range slots {
		words[i] = fmt.Sprintf("slot %d: %v", i, err)
	}
	return strings.Join(words, "; ")
}

// checkResumed compares the tree with the anchor if reading begins behind that.
func (l *Log) checkResumed(was *verified, anchored *Head) error {
	if anchored == nil || anchored.Size > was.tree.Size() {
		return nil
	}
	r, err := newRecordReader(l.db, false)
	if err != nil {
		return err
	}
	defer r.close()
	tree, err := treeAt(l.db, anchored.Size, r)
	if err != nil {
		return l.damagedAt(1, err)
	}
	return l.checkRoot(&verified{tree: tree}, anchored, "acknowledged")
}

// readLog reads the events behind was in order, and compares the tree with the
// anchor. After an error, was, and the fold, are what was read before it.
func (l *Log) readLog(was *verified, anchored *Head) error {
	r, err := newRecordReader(l.db, l.opts.Fold != nil)
	if err != nil {
		return err
	}
	defer r.close()
	chain := newChain(l.opts.Fleet)
	chain.last = was.resumed
	if was.resumed != 0 {
		chain.time, chain.index = was.time, l.db
	}
	tiles := tileChecker{db: l.db}
	if tiles.inOrder, err = l.db.NewIter(&pebble.IterOptions{LowerBound: []byte{tileSpace}, UpperBound: spaceEnd(tileSpace)}); err != nil {
		return err
	}
	defer tiles.inOrder.Close()
	// follow takes the next event, and says whether the fold is to have it, though
	// something is wrong.
	follow := func(c *events.Checked) (fits bool, err error) {
		p, err := chain.last+1, c.Err
		if err == nil {
			err = chain.check(&c.Record)
		}
		if err == nil {
			err = corruptAt(p, c.Payload)
		}
		if err != nil {
			return false, l.damagedAt(p, err)
		}
		was.tree.Append(c.Record.LeafHash, tiles.check)
		if tiles.err != nil {
			return true, l.damagedAt(p, tiles.err)
		}
		was.time = chain.time
		if err := l.checkRoot(was, anchored, "acknowledged"); err != nil {
			return true, err
		}
		return true, l.checkRoot(was, l.opts.Signed, "signed")
	}
	check := events.CheckOptions{
		// Where something is wrong, Pebble's own sums are not all that counts; and the
		// end of a log is where something is.
		Verify: (l.readOnly || was.resumed != 0) && l.opts.Fold != nil,
	}
	if l.opts.Fold != nil {
		check.Also = decodeForFold
	}
	var batch []events.Record
	for items := range events.CheckPartsAhead(r.from(was.resumed+1), check) {
		batch = batch[:0]
		var wrong error
		for i := range items {
			var fits bool
			if fits, wrong = follow(&items[i]); fits {
				batch = append(batch, items[i].Record)
			}
			if wrong != nil {
				break
			}
		}
		if err := l.fold(batch); err != nil {
			return err
		}
		if wrong != nil {
			return wrong
		}
	}
	if err := tiles.checkEnd(was.tree.Size()); err != nil {
		return l.damagedAt(chain.last+1, err)
	}
	was.lacking = tiles.lacking
	return nil
}

// decodeForFold decodes, while others are folded, what folds look at: neither agents'
// own events, nor most gates.
func decodeForFold(c *events.Checked) {
	kind := c.Record.Header.Type
	if c.Err == nil && c.Payload == nil && !kind.IsExt() && kind != (events.GateDecided{}).Kind() {
		c.Record = events.WithEvent(c.Record)
	}
}

// fold gives the fold records that are in the log.
func (l *Log) fold(recs []events.Record) error {
	if l.opts.Fold == nil || len(recs) == 0 {
		return nil
	}
	publish, err := l.opts.Fold.Stage(recs)
	switch {
	case err == nil:
		publish()
		return nil
	case len(recs) == 1:
		return fmt.Errorf("position %d: the fold refuses what is in the log: %w", recs[0].Header.Position, err)
	}
	for i := range recs { // which of them it is
		if err := l.fold(recs[i : i+1]); err != nil {
			return err
		}
	}
	return nil
}

// checkRoot compares the root with that of a known head, once its size is reached.
func (l *Log) checkRoot(was *verified, known *Head, how string) error {
	if known == nil || was.tree.Size() != known.Size {
		return nil
	}
	if root := was.tree.Root(); root != known.Root {
		return &DamagedError{Dir: l.dir, Position: 1, Detail: fmt.Sprintf(
			"the Merkle root of the first %d events is %s, %s was %s: at least one of them was replaced", known.Size, root, known.Root, how)}
	}
	return nil
}

// damagedAt makes err, met at p, a *DamagedError.
func (l *Log) damagedAt(p events.Position, err error) error {
	var corrupt *events.CorruptError
	if errors.As(err, &corrupt) {
		return &DamagedError{Dir: l.dir, Position: corrupt.Position, Detail: corrupt.Detail}
	}
	return &DamagedError{Dir: l.dir, Position: p, Detail: said(err)}
}

// readMeta returns the log's id; it is zero in a new log.
func (l *Log) readMeta() (logID, error) {
	v, found, err := l.db.Get(metaKey)
	if err != nil {
		return logID{}, l.damagedAt(1, err)
	}
	if !found {
		return logID{}, nil
	}
	id, fleet, err := parseMeta(v)
	if err != nil {
		return logID{}, l.damagedAt(1, err)
	}
	if fleet != l.opts.Fleet {
		return logID{}, fmt.Errorf("%s holds the log of fleet %q, not of %q", l.dir, fleet, l.opts.Fleet)
	}
	return id, nil
}

// settle makes the log ready for appends: what a crash left unanchored is
// anchored, and a new log gets its id and its anchor.
func (l *Log) settle(was verified, anchored *Head) error {
	size, root := was.tree.Size(), was.tree.Root()
	last, err := lastPosition(l.db, headerSpace)
	if err != nil {
		return l.damagedAt(1, err)
	}
	if uint64(last) != size {
		return fmt.Errorf("%s: %d events were read, then the last one was number %d: see that nothing else writes to the directory", l.dir, size, last)
	}
	if was.id == (logID{}) {
		if _, err := rand.Read(was.id[:]); err != nil {
			return err
		}
		err := l.logger.await(func() error { return l.db.Set(metaKey, metaValue(was.id, l.opts.Fleet), pebble.Sync) })
		if err != nil {
			return fmt.Errorf("write the log's id: %w", err)
		}
	}
	if anchored == nil {
		// The log is empty, or verify would have refused it.
		anchored = &Head{Generation: 1, Size: size, Root: root, log: was.id}
		if err := createAnchor(l.opts.FS, l.dir, *anchored); err != nil {
			return fmt.Errorf("make the anchor: %w", err)
		}
	}
	if l.anchor, err = openAnchor(l.opts.FS, l.dir, *anchored); err != nil {
		return fmt.Errorf("open the anchor: %w", err)
	}
	if size > anchored.Size {
		// These events may only be in a WAL that was never synced; but opening for
		// writing has flushed what it replayed, so they are durable now.
		if err := l.anchor.advance(size, root); err != nil {
			return errors.Join(fmt.Errorf("write the anchor: %w", err), l.anchor.close())
		}
	}
	if was.lacking > 0 {
		if err := l.writeTiles(was.lacking); err != nil {
			return errors.Join(fmt.Errorf("write the tiles of the Merkle tree: %w", err), l.anchor.close())
		}
	}
	view := was.tree.View()
	l.staged = newStaged(was.tree, view)
	l.staged.time = was.time
	l.tree.Store(&view)
	l.durable.Store(size)
	l.written.Store(size)
	l.verifyTo = uint64(was.resumed)
	l.id = was.id
	l.clock = events.NewClock(was.time, l.opts.Now)
	return nil
}

// lastPosition is the position of the last header, or payload; 0 if there is
// none.
func lastPosition(db *database, space byte) (events.Position, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{space}, UpperBound: spaceEnd(space)})
	if err != nil {
		return 0, err
	}
	defer it.Close()
	if !it.Last() {
		return 0, it.Error()
	}
	return positionOf(it.Key())
}

// chain checks that records follow one another as they must.
type chain struct {
	fleet string // "" if it is not known
	last  events.Position
	time  time.Time
	heads map[events.Stream]*head
	lost  uint64 // headers that could not be read
	// index, unless nil, is asked about streams whose head is not in heads: then the
	// chain began behind the first event, or has forgotten.
	index *database
}

// chainHeads is how many heads a chain with an index remembers.
const chainHeads = 100_000

func newChain(fleet string) *chain {
	return &chain{fleet: fleet, heads: make(map[events.Stream]*head)}
}

// lose notes that the next record cannot be read: some stream has a gap then,
// for which the events after it are not to blame.
func (c *chain) lose() {
	c.last++
	c.lost++
}

// check takes the record at the next position. After an error it goes on from
// that record.
func (c *chain) check(rec *events.Record) error {
	h := &rec.Header
	newest, lastTime := c.heads[h.Stream], c.time
	if newest == nil {
		newest = new(head)
		if c.index != nil {
			if len(c.heads) >= chainHeads {
				clear(c.heads)
			}
			var err error
			if *newest, err = c.indexed(h); err != nil {
				return err
			}
		}
		c.heads[h.Stream] = newest
	}
	was := *newest
	c.last, c.time = h.Position, h.Time
	*newest = head{revision: h.Revision, leaf: rec.LeafHash}
	wrong := func(format string, args ...any) error {
		return &events.CorruptError{Position: h.Position, Detail: fmt.Sprintf(format, args...)}
	}
	switch due := was.revision + 1; {
	case c.fleet != "" && h.Fleet != c.fleet:
		return wrong("it is an event of fleet %q", h.Fleet)
	case h.Revision > due && uint64(h.Revision-due) <= c.lost:
		// The events between are among the lost.
	case h.Revision != due:
		return wrong("it is revision %d of stream %s, %d is due", h.Revision, h.Stream, due)
	case h.Prev != was.leaf:
		return wrong("its prev is %q, the leaf hash of revision %d of stream %s is %q", h.Prev, was.revision, h.Stream, was.leaf)
	}
	if h.Time.Before(lastTime) {
		return wrong("its time %s is before the previous event's %s", h.Time, lastTime)
	}
	return nil
}

// indexed is the head that the index has for an event's stream before the event.
func (c *chain) indexed(h *events.Header) (head, error) {
	entry := func(r events.Revision) (events.Position, events.Hash, error) {
		v, found, err := c.index.Get(streamKey(nil, h.Stream, r))
		if err == nil && !found {
			err = fmt.Errorf("the index lacks revision %d of stream %s", r, h.Stream)
		}
		if err != nil {
			return 0, events.Hash{}, &events.CorruptError{Position: h.Position, Detail: err.Error()}
		}
		return parseStreamValue(v)
	}
	switch p, _, err := entry(h.Revision); {
	case err != nil:
		return head{}, err
	case p != h.Position:
		return head{}, &events.CorruptError{Position: h.Position, Detail: fmt.Sprintf("the index has revision %d of stream %s at position %d", h.Revision, h.Stream, p)}
	case h.Revision <= 1:
		return head{}, nil
	}
	_, leaf, err := entry(h.Revision - 1)
	return head{revision: h.Revision - 1, leaf: leaf}, err
}
