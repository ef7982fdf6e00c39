package pebblelog_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/google/uuid"

	"fleetledger/events"
	"fleetledger/events/pebblelog"
)

// BenchmarkAppend measures durable appends of one event of 512 bytes, and, in
// the same run, what Pebble alone does: with one value of that size a call (raw),
// and with the same entries that an event takes (same). Only numbers of one run
// compare: disks have moods.
//
//	go test -run '^$' -bench Append -benchtime 3s -count 3 ./events/pebblelog
func BenchmarkAppend(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("pebblelog/%d", writers), func(b *testing.B) { benchLog(b, writers, 1, false) })
		b.Run(fmt.Sprintf("raw/%d", writers), func(b *testing.B) { benchRaw(b, writers, false) })
		b.Run(fmt.Sprintf("same/%d", writers), func(b *testing.B) { benchRaw(b, writers, true) })
	}
	b.Run("pebblelog/64-keyed", func(b *testing.B) { benchLog(b, 64, 1, true) })
	b.Run("pebblelog/64x100", func(b *testing.B) { benchLog(b, 64, 100, false) })
}

func benchLog(b *testing.B, writers, batch int, keyed bool) {
	l, err := pebblelog.Open(b.TempDir(), pebblelog.Options{Fleet: "bench", Logger: quiet()})
	if err != nil {
		b.Fatal(err)
	}
	payload := make([]byte, 512)
	for i := range payload {
		payload[i] = byte(rand.IntN(256))
	}
	run(b, writers, func(w, i int) error {
		var a events.Append
		if keyed {
			a.Key, a.Request = events.SumHash(fmt.Sprint(w, i)), events.SumHash("request")
		}
		for range batch {
			id := uuid.Must(uuid.NewV7()).String()
			a.Drafts = append(a.Drafts, events.NewDraft(events.Intent{
				ID: id, Stream: events.TaskStream(fmt.Sprint("w", w)), Type: "task.reported", Schema: 1, Actor: "bench",
				Correlation: id, Causation: id, Key: a.Key, Request: a.Request,
			}, [events.SaltBytes]byte{byte(i)}, payload))
		}
		_, err := l.Append(context.Background(), a)
		return err
	})
	b.ReportMetric(float64(b.N*batch)/b.Elapsed().Seconds(), "events/s")
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
}

func benchRaw(b *testing.B, writers int, same bool) {
	opts := &pebble.Options{
		FormatMajorVersion: pebble.FormatNewest, MemTableSize: 64 << 20, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, L0StopWritesThreshold: 20, Logger: silent{},
	}
	opts.Levels[0].FilterPolicy = bloom.FilterPolicy(10)
	db, err := pebble.Open(b.TempDir(), opts)
	if err != nil {
		b.Fatal(err)
	}
	value := make([]byte, 512)
	for i := range value {
		value[i] = byte(rand.IntN(256))
	}
	header := value[:490] // of a leaf, as hex digits and names compress
	var position atomic.Uint64
	run(b, writers, func(w, _ int) error {
		p := binary.BigEndian.AppendUint64(nil, position.Add(1))
		if !same {
			return db.Set(append([]byte{'h'}, p...), value, pebble.Sync)
		}
		batch := db.NewBatch()
		entry := func(key string, value []byte) { _ = batch.Set([]byte(key), value, nil) }
		entry("h"+string(p), header)
		entry("p"+string(p), value)
		entry(fmt.Sprintf("stask-w%d\x00%s", w, p), header[:40])
		entry("i"+uuid.Must(uuid.NewV7()).String(), p)
		if err := batch.Commit(pebble.Sync); err != nil {
			return err
		}
		return batch.Close()
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
	if err := db.Close(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkRead opens a log of 100,000 events, reads it to its end, and audits
// it.
func BenchmarkRead(b *testing.B) {
	const n = 100_000
	dir := b.TempDir()
	opts := pebblelog.Options{Fleet: "bench", Logger: quiet()}
	open := func() *pebblelog.Log {
		l, err := pebblelog.Open(dir, opts)
		if err != nil {
			b.Fatal(err)
		}
		return l
	}
	l := open()
	for range n / 1000 {
		var a events.Append
		for i := range 1000 {
			a.Drafts = append(a.Drafts, draft(events.TaskStream(fmt.Sprint(i)), 512))
		}
		if _, err := l.Append(context.Background(), a); err != nil {
			b.Fatal(err)
		}
	}
	if err := l.Close(); err != nil {
		b.Fatal(err)
	}
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			if err := open().Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("all", func(b *testing.B) {
		l := open()
		defer l.Close()
		for b.Loop() {
			for _, err := range l.ReadAll(context.Background(), 0) {
				if err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	})
	b.Run("audit", func(b *testing.B) {
		for b.Loop() {
			_, err := pebblelog.ReadForAudit(dir, opts, pebblelog.Head{}, events.CheckOptions{}, func(_ *events.Checked, err error) error { return err })
			if err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*n/b.Elapsed().Seconds(), "events/s")
	})
}

// run has writers make b.N calls together, and reports the slowest in a hundred.
func run(b *testing.B, writers int, call func(w, i int) error) {
	b.ReportAllocs()
	var (
		wg    sync.WaitGroup
		next  atomic.Int64
		mu    sync.Mutex
		times []time.Duration
	)
	b.ResetTimer()
	for w := range writers {
		wg.Go(func() {
			var own []time.Duration
			for {
				i := int(next.Add(1))
				if i > b.N {
					break
				}
				start := time.Now()
				if err := call(w, i); err != nil {
					b.Error(err)
					return
				}
				own = append(own, time.Since(start))
			}
			mu.Lock()
			times = append(times, own...)
			mu.Unlock()
		})
	}
	wg.Wait()
	b.StopTimer()
	if len(times) > 0 {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
	}
}

type silent struct{}

func (silent) Infof(string, ...any)  {}
func (silent) Errorf(string, ...any) {}
func (silent) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}
