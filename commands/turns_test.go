package commands

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
)

func TestTurnsAreTakenOneAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var line turns
		first, err := line.take(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := line.take(t.Context(), "b") // another stream's is its own
		if err != nil {
			t.Fatal(err)
		}
		other()

		inside := 0
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() {
				release, err := line.take(t.Context(), "a")
				if err != nil {
					t.Error(err)
				}
				if inside++; inside != 1 {
					t.Errorf("%d have the turn", inside)
				}
				inside--
				release()
			})
		}
		gone, leave := context.WithCancel(t.Context())
		all.Go(func() {
			if _, err := line.take(gone, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("whoever left the queue: %v", err)
			}
		})
		synctest.Wait()
		leave()
		synctest.Wait()
		first()
		all.Wait()
		if len(line.lines) != 0 {
			t.Errorf("queues are kept: %v", line.lines)
		}
	})
}
