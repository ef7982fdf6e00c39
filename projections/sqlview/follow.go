package sqlview

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"fleetledger/events"
)

const (
	// batchEvents and batchBytes bound a transaction, fillEvents one of a file that
	// nobody waits for.
	batchEvents = 5000
	fillEvents  = 20000
	batchBytes  = 16 << 20
	// gather is how long events are gathered while nobody waits for them.
	gather = 20 * time.Millisecond
	// retryAfter is how long the follower rests after a fault.
	retryAfter = time.Second
)

// run follows the log until ctx ends. Rebuilding goes on beside it.
func (v *View) run(ctx context.Context) {
	built := make(chan *store, 1)
	defer func() {
		v.mu.Lock()
		b := v.building
		v.mu.Unlock()
		if b == nil {
			return
		}
		if s := <-built; s != nil { // it gave up when ctx ended
			v.drop(s)
		}
	}()
	for ctx.Err() == nil {
		v.beginBuilding(ctx, built)
		s := v.following()
		var err error
		switch {
		case s == nil:
			err = v.awaitBuilding(ctx, built)
		default:
			select {
			case n := <-built:
				err = v.swap(ctx, n)
			default:
				err = v.follow(ctx, s)
			}
		}
		v.note(s, err)
		if err != nil && ctx.Err() == nil {
			rest(ctx, retryAfter)
		}
	}
}

func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (v *View) following() *store {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.current
}

// note keeps what went wrong for Status.
func (v *View) note(s *store, err error) {
	switch {
	case err == nil:
		v.mu.Lock()
		if v.current != nil {
			v.fault = ""
		}
		v.mu.Unlock()
	case errors.Is(err, context.Canceled), errors.Is(err, events.ErrClosed), errors.Is(err, errNotBuilt):
	case s != nil && damaged(err):
		v.distrust(s, err)
	default:
		v.mu.Lock()
		known := v.fault == err.Error()
		v.fault = err.Error()
		v.mu.Unlock()
		if !known {
			v.logger.Error("the view cannot follow the log", "error", err)
		}
	}
}

// follow folds what the log has beyond the view, waiting for it if there is
// nothing, and returns.
func (v *View) follow(ctx context.Context, s *store) error {
	v.mu.Lock()
	position := v.position
	v.mu.Unlock()
	if err := s.scrub(); err != nil {
		return err
	}
	if v.log.Durable() <= position {
		waiting, stop := context.WithCancel(ctx)
		defer stop()
		arrived := make(chan error, 1)
		go func() { arrived <- v.log.Wait(waiting, position+1) }()
		select {
		case err := <-arrived:
			if err != nil {
				return err
			}
			// Whoever wrote it is answered now, and may ask for it right away; but a
			// transaction for many events costs little more than for one.
			t := time.NewTimer(gather)
			select {
			case <-t.C:
			case <-v.hurry:
			case <-ctx.Done():
			}
			t.Stop()
		case <-v.hurry: // for a rebuild, or for what is folded already
			stop()
			<-arrived
		}
		return nil
	}
	batch, err := readBatch(ctx, v.log, position, batchEvents)
	if err != nil {
		return err
	}
	parked, err := s.fold.all(batch)
	if err != nil {
		return err
	}
	scrubbed := s.scrub() // before anybody is told that it is folded
	last := batch[len(batch)-1].Header
	v.mu.Lock()
	if v.current == s {
		v.position, v.at, v.parked = last.Position, last.Time, s.fold.parked
		v.wake()
	}
	v.mu.Unlock()
	for _, p := range parked {
		v.logger.Error("an event could not be folded into the view and is parked", "position", p.position, "error", p.why)
	}
	return scrubbed
}

// scrub makes sure that nothing of what was erased is left in the log that SQLite
// keeps beside a store; in the store itself it is overwritten. As long as somebody
// reads what was before, it cannot: then it is tried again.
func (s *store) scrub() error {
	if !s.fold.traces {
		return nil
	}
	var busy, pages, moved int
	if _, err := s.fold.row(`PRAGMA wal_checkpoint(TRUNCATE)`, nil, &busy, &pages, &moved); err != nil {
		return err
	}
	if busy != 0 {
		return errors.New("what was erased lies in the view's files until those who read them are through")
	}
	_, err := s.fold.exec(`UPDATE view SET traces = 0`)
	if err == nil {
		s.fold.traces = false
	}
	return err
}

func readBatch(ctx context.Context, log events.Log, after events.Position, most int) ([]decoded, error) {
	batch := make([]decoded, 0, min(most, int(log.Durable()-after)))
	bytes := 0
	for r, err := range log.ReadAll(ctx, after) {
		if err != nil {
			return nil, err
		}
		batch = append(batch, decode(r))
		if bytes += len(r.Payload); len(batch) == most || bytes >= batchBytes {
			break
		}
	}
	if len(batch) == 0 {
		return nil, fmt.Errorf("position %d is durable and not in the log", after+1)
	}
	return batch, nil
}

type parkedEvent struct {
	position events.Position
	why      error
}

// all folds a batch. If an event does not fit, the batch is folded one by one and
// that event is parked.
func (f *fold) all(batch []decoded) (parked []parkedEvent, err error) {
	parked, err = f.apply(batch)
	if err == nil || storageTrouble(err) || errors.Is(err, errNoWayBack) {
		return parked, err
	}
	for _, r := range batch {
		more, err := f.apply([]decoded{r})
		if err != nil && storageTrouble(err) {
			return parked, err
		}
		if err != nil {
			if err := f.park(r, err); err != nil {
				return parked, err
			}
			more = []parkedEvent{{r.Header.Position, err}}
		}
		parked = append(parked, more...)
	}
	return parked, nil
}

// beginBuilding starts a rebuild if one is wanted or needed and none is under way.
func (v *View) beginBuilding(ctx context.Context, built chan<- *store) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.building != nil || v.current != nil && !v.wanted {
		return
	}
	if v.current != nil && v.unbuilt == "" {
		v.logger.Info("the view is made again", "why", v.why)
	}
	v.wanted = false
	v.number++
	v.building = &building{}
	path := v.path(v.number)
	v.running.Go(func() {
		s, err := v.build(ctx, path)
		if err != nil && ctx.Err() == nil {
			v.noteUnbuilt(fmt.Errorf("make it again: %w", err))
		}
		built <- s
		v.rush()
	})
}

// noteUnbuilt keeps why the view could not be made again. What is followed meanwhile
// does not make that good.
func (v *View) noteUnbuilt(err error) {
	v.mu.Lock()
	known := v.unbuilt != ""
	v.unbuilt = err.Error()
	v.mu.Unlock()
	if !known {
		v.logger.Error("the view could not be made again; it is tried on", "error", err)
	}
}

// build fills a new file up to the log's end. It returns nil if it could not.
func (v *View) build(ctx context.Context, path string) (*store, error) {
	return makeStore(ctx, path, v.log, func(p events.Position) {
		v.mu.Lock()
		v.building.position = p
		v.wake()
		v.mu.Unlock()
	})
}

// makeStore makes a new file and fills it up to the log's end, calling at with how far
// it is. It leaves none if it could not.
func makeStore(ctx context.Context, path string, log events.Log, at func(events.Position)) (*store, error) {
	s, err := filledStore(ctx, path, filling, log, at)
	if errors.Is(err, errNoWayBack) {
		// Rare enough to do it again, with care: what cannot be decoded is no reason.
		return filledStore(ctx, path, fillingWithCare, log, at)
	}
	return s, err
}

func filledStore(ctx context.Context, path, how string, log events.Log, at func(events.Position)) (*store, error) {
	if err := removeStore(path); err != nil {
		return nil, err
	}
	s, err := createStore(ctx, path, how, log)
	if err != nil {
		return nil, errors.Join(err, removeStore(path))
	}
	err = s.fill(ctx, log, at)
	if err == nil {
		err = s.finish(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.close(), removeStore(path))
	}
	return s, nil
}

// fill folds the whole log into a new store, and calls at with how far it is. The log
// is read and decoded beside it.
func (s *store) fill(ctx context.Context, log events.Log, at func(events.Position)) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	batches := make(chan []decoded, 1)
	var failed error // of the reading; read once batches is closed
	go func() {
		defer close(batches)
		for position := events.Position(0); position < log.Durable(); {
			var batch []decoded
			if batch, failed = readBatch(ctx, log, position, fillEvents); failed != nil {
				return
			}
			position = batch[len(batch)-1].Header.Position
			select {
			case batches <- batch:
			case <-ctx.Done():
				failed = ctx.Err()
				return
			}
		}
	}()
	var err error
	for batch := range batches {
		if err != nil {
			continue // the reading ends soon
		}
		if _, err = s.fold.all(batch); err == nil {
			err = s.fold.spillForms(formsAtATime)
		}
		if err != nil {
			stop()
			continue
		}
		at(batch[len(batch)-1].Header.Position)
	}
	if err != nil {
		return err
	}
	return failed
}

// awaitBuilding waits for the rebuild without which there is nothing to follow.
func (v *View) awaitBuilding(ctx context.Context, built <-chan *store) error {
	select {
	case s := <-built:
		return v.swap(ctx, s)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// swap puts a new store in the place of the old one, if it was built. From here on
// the follower brings it up to date: nobody is given less than before, for the
// position moves only when it has caught up with the old one.
func (v *View) swap(ctx context.Context, s *store) error {
	swapped := false
	defer func() {
		v.mu.Lock()
		v.building = nil
		v.wanted = v.wanted || !swapped
		v.mu.Unlock()
	}()
	if s == nil {
		return errNotBuilt
	}
	v.mu.Lock()
	old, least := v.current, v.position
	v.mu.Unlock()
	position, at, parked, err := s.standing(ctx)
	for err == nil && position < least {
		var batch []decoded
		if batch, err = readBatch(ctx, v.log, position, batchEvents); err == nil {
			_, err = s.fold.all(batch)
		}
		if err == nil {
			position, at, parked, err = s.standing(ctx)
		}
	}
	if err == nil {
		_, err = s.fold.exec(`UPDATE view SET complete = 1`)
	}
	if err == nil {
		err = s.scrub()
	}
	if err != nil {
		if err := errors.Join(err, s.close(), removeStore(s.path)); ctx.Err() == nil {
			v.noteUnbuilt(err)
		}
		return errNotBuilt
	}
	swapped = true
	v.mu.Lock()
	v.unbuilt = ""
	v.current, v.position, v.at, v.parked = s, position, at, parked
	v.rebuilds++
	v.wake()
	v.mu.Unlock()
	if old != nil {
		v.running.Go(func() { v.drop(old) })
	}
	return nil
}

// errNotBuilt stands for what noteUnbuilt was told.
var errNotBuilt = errors.New("the view could not be made again")

// standing is how far a store has folded the log.
func (s *store) standing(ctx context.Context) (position events.Position, at time.Time, parked int, err error) {
	var text string
	err = s.fold.conn.QueryRowContext(ctx, `SELECT position, time, (SELECT count(*) FROM parked) FROM view`).Scan(&position, &text, &parked)
	return position, parseTime(text), parked, err
}

// drop closes a store once nobody reads it, and removes its file.
func (v *View) drop(s *store) {
	err := s.close()
	if err == nil || damaged(err) {
		err = removeStore(s.path)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		// The next start removes it.
		v.logger.Warn("an old file of the view could not be removed", "file", s.path, "error", err)
	}
}
