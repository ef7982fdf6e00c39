package kurrentlog

// Taken is how many appends other relays have handed over.
func (l *Log) Taken() uint64 { return l.taken.Load() }

// FollowedAt is where appends are handed to, "" if they are not.
func (l *Log) FollowedAt() string { return l.leader.Load().at() }

// Swallow makes a log that takes appends of others and answers them with what answer
// says, or never if that is nil: a relay that lies, or hangs.
func Swallow(p *Peers, fleet string, admitted string, answer func() error) (stop func()) {
	l, err := connect(Options{Connection: "kurrentdb://127.0.0.1:1?tls=false", Fleet: fleet})
	if err != nil {
		panic(err)
	}
	p.add(l)
	l.Admit(admitted)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			waiting, _ := l.queue.take(nil)
			for _, r := range waiting {
				if answer != nil {
					r.err = answer()
					r.done <- struct{}{}
				}
			}
			select {
			case <-l.queue.ready:
			case <-l.life.Done():
				return
			}
		}
	}()
	return func() { l.end(nil); <-done; l.cluster.close() }
}
