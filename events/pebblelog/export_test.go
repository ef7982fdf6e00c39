package pebblelog

import "time"

// Forget makes l remember as little as it can, and so look into Pebble. It is called
// before the first append.
func Forget(l *Log) {
	l.tail.limit = 0
	l.staged.heads.limit, l.staged.ids.limit, l.staged.keys.limit = 1, 1, 1
}

// AwaitScrubs waits until l has scrubbed all there is to scrub, by itself.
func AwaitScrubs(l *Log) error {
	for {
		due, err := l.erased()
		if err != nil || len(due) == 0 {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

// HoldScrubs keeps l from scrubbing, until ReleaseScrubs.
func HoldScrubs(l *Log) { l.scrubbing <- struct{}{} }

func ReleaseScrubs(l *Log) { <-l.scrubbing }
