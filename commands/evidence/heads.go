package evidence

import (
	"maps"
	"slices"

	"fleetledger/commands/audit"
	"fleetledger/events"
	"fleetledger/events/seal"
)

// checkTold checks the payloads of the ledger's own events. That they are in the log
// was checked before; what is between them is not in the file.
func (v *verifier) checkTold() {
	for _, r := range v.told {
		if err := r.Verify(); err != nil {
			v.find(audit.Payload, r.Header.Position, r.Header.Stream, "%v", err)
		} else if r.Erased {
			v.find(audit.Payload, r.Header.Position, r.Header.Stream, "the payload of %s is not there: it is never erased", r.Header.Type)
		}
	}
}

// erasures holds every payload that is not there against the event that tells who
// erased it: one that was only left out has none.
func (v *verifier) erasures() {
	told := map[events.Position]Erasure{}
	of := map[events.Position]events.PayloadErased{}
	for _, r := range v.told {
		if r.Header.Type != (events.PayloadErased{}).Kind() {
			continue
		}
		e, err := events.DecodeAs[events.PayloadErased](r)
		if err != nil {
			v.find(audit.Kind, r.Header.Position, r.Header.Stream, "%v", err)
			continue
		}
		if e.Position >= r.Header.Position {
			v.find(audit.Order, r.Header.Position, r.Header.Stream, "it tells of position %d, which is not before it", e.Position)
		}
		of[e.Position] = e
		told[e.Position] = Erasure{Position: e.Position, By: r.Header.Actor, At: r.Header.Time, Reason: e.Reason, Told: r.Header.Position}
	}
	for _, r := range v.records {
		h := r.Header
		e, found := of[h.Position]
		switch {
		case r.Erased && !found:
			v.find(audit.Payload, h.Position, h.Stream, "its payload is not there, and no event here says that it was erased")
		case r.Erased && (e.EventID != h.ID || e.Stream != h.Stream || e.Type != h.Type || !h.Type.Erasable()):
			v.find(audit.Payload, h.Position, h.Stream, "its payload is not there, and what is said to have been erased is another")
		case r.Erased:
			v.report.Erasures = append(v.report.Erasures, told[h.Position])
		case found:
			v.find(audit.Payload, h.Position, h.Stream, "it is said to have been erased at position %d, and its payload is there", told[h.Position].Told)
		}
		delete(told, h.Position)
	}
	for _, p := range slices.Sorted(maps.Keys(told)) {
		v.find(Foreign, told[p].Told, events.LedgerStream, "it tells of position %d, which is not in the file", p)
	}
}

// heads holds the streams of the file against the root over the heads of all streams.
func (v *verifier) heads() {
	root, told := v.root()
	if told == 0 {
		return
	}
	heads := map[events.Stream]events.StreamHead{}
	shown := v.shownStreams()
	last := events.Stream("")
	for _, p := range v.head.Heads.Proofs {
		if _, ok := shown[p.Stream]; !ok || p.Stream <= last {
			v.find(Malformed, told, p.Stream, "the proof of a head is of a stream that is not in the file, or it is out of order")
			return
		}
		last = p.Stream
		proof := seal.HeadProof{Found: events.StreamHead(p.Found), Path: make([]seal.HeadStep, len(p.Path))}
		for i, s := range p.Path {
			proof.Path[i] = seal.HeadStep(s)
		}
		head, err := seal.CheckHead(root.Root, p.Stream, proof)
		if err != nil {
			v.find(audit.Heads, told, p.Stream, "the head of the stream at position %d is not proved: %v", root.At, err)
			return
		}
		heads[p.Stream] = head
	}
	v.complete = map[events.Stream]bool{}
	for _, s := range slices.Sorted(maps.Keys(shown)) {
		head, ok := heads[s]
		if !ok {
			v.find(Malformed, told, s, "the head of the stream is not proved")
			continue
		}
		v.compare(root.At, told, s, head, shown[s])
	}
	v.report.RootedAt, v.rootAt = told, root.At
	if v.complete[events.TaskStream(v.head.TaskID)] {
		v.report.CompleteTo = root.At
	}
}

// root is the root over the heads of all streams that the file has, and the position
// of its event, 0 if it has none.
func (v *verifier) root() (root events.HeadsRooted, told events.Position) {
	for _, r := range v.told {
		h := r.Header
		if h.Type != (events.HeadsRooted{}).Kind() {
			continue
		}
		if v.head.Heads == nil || v.head.Heads.Position != h.Position {
			v.find(Foreign, h.Position, h.Stream, "nothing in the file is proved under this root")
			continue
		}
		e, err := events.DecodeAs[events.HeadsRooted](r)
		switch {
		case err != nil:
			v.find(audit.Kind, h.Position, h.Stream, "%v", err)
		case h.Actor != events.RelayActor || e.At == 0 || e.At >= h.Position:
			v.find(audit.Heads, h.Position, h.Stream, "%s rooted the heads of position %d: only the relay does, and of a position before", h.Actor, e.At)
		default:
			root, told = e, h.Position
		}
	}
	if told == 0 && v.head.Heads != nil {
		v.find(Malformed, v.head.Heads.Position, events.LedgerStream, "the root that the head names is not in the file")
	}
	return root, told
}

// shownStreams are the events of each stream whose head is to be proved.
func (v *verifier) shownStreams() map[events.Stream][]events.Record {
	shown := map[events.Stream][]events.Record{events.AuthorityStream: nil, events.SettingsStream: nil}
	for _, r := range v.records {
		shown[r.Header.Stream] = append(shown[r.Header.Stream], r)
	}
	return shown
}

// compare compares what the file has of a stream with its head at a position.
func (v *verifier) compare(at, told events.Position, s events.Stream, head events.StreamHead, have []events.Record) {
	n := 0
	for n < len(have) && have[n].Header.Position <= at {
		n++
	}
	switch {
	case int(head.Revision) < n, int(head.Revision) == n && n > 0 && have[n-1].LeafHash != head.LeafHash:
		v.find(audit.Heads, told, s, "the root over all streams at position %d has another head than revision %d as it is here", at, n)
	case int(head.Revision) == n:
		v.complete[s] = true
	case s == events.AuthorityStream || s == events.SettingsStream:
		// These go on behind the task; what the file has goes up to the first event
		// there, so that nothing can be missing before it.
		if n == len(have) && (n == 0 || have[n-1].Header.Position < v.taskEnd()) {
			v.missing(at, s, head, n)
		}
	default:
		v.missing(at, s, head, n)
	}
}

func (v *verifier) missing(at events.Position, s events.Stream, head events.StreamHead, n int) {
	v.find(Missing, at, s, "the stream had revision %d at position %d, and the file shows it to revision %d: what comes after was left out", head.Revision, at, n)
}

// taskEnd is the position of the task's last event in the file.
func (v *verifier) taskEnd() (end events.Position) {
	for _, r := range v.records {
		if r.Header.Stream == events.TaskStream(v.head.TaskID) {
			end = r.Header.Position
		}
	}
	return end
}

// knownToTheEnd reports whether the file shows a stream up to the task's last event:
// by an event behind it, or because the stream has no other up to a root behind it.
func (v *verifier) knownToTheEnd(s events.Stream) bool {
	end := v.taskEnd()
	for _, r := range v.records {
		if r.Header.Stream == s && r.Header.Position > end {
			return true
		}
	}
	return v.complete[s] && v.rootAt >= end
}
