package evidence

import (
	"fmt"
	"strings"

	"fleetledger/events"
)

// tell says in words what was established, and what a file cannot show.
func (v *verifier) tell() {
	r := &v.report
	yes := func(format string, args ...any) { r.Established = append(r.Established, fmt.Sprintf(format, args...)) }
	no := func(format string, args ...any) {
		r.NotEstablished = append(r.NotEstablished, fmt.Sprintf(format, args...))
	}
	if v.signed {
		if k := v.followed; k == nil {
			yes("a key given signed the checkpoint of %s over %d events", r.Origin, r.Size)
		} else {
			yes("key %s signed the checkpoint of %s over %d events: it follows from a key given, which signed, or led to one that signed, that position %d of this log added it", k.ID(), r.Origin, r.Size, k.Added)
		}
		if r.Proved > 0 {
			yes("%d of the file's %d events are in that log, at their positions, exactly as their headers are here", r.Proved, r.Events)
		}
	}
	if !r.OK {
		no("whatever the findings are about")
	} else {
		yes("%d payloads are those that their headers commit to", r.Events-r.Erased)
		for _, s := range r.Streams {
			if v.complete[s.Stream] {
				yes("of stream %s nothing is missing, changed or moved up to revision %d, and it has no other event up to position %d", s.Stream, s.Revision, v.rootAt)
			} else {
				yes("of stream %s nothing is missing, changed or moved up to revision %d", s.Stream, s.Revision)
			}
		}
		if v.unfounded {
			yes("%d decisions, made again from these events, come out as recorded", r.DecisionsRederived)
		} else {
			yes("%d decisions, made again from these events, come out as recorded, the task's verdict included if it has one", r.DecisionsRederived)
		}
		for _, e := range r.Erasures {
			yes("the payload at position %d was erased by %s, as position %d says: %s", e.Position, e.By, e.Told, e.Reason)
		}
	}
	if r.Erased > 0 {
		no("what %d payloads said, at positions %s: they were erased in the log, or left out of the file", r.Erased, v.erasedPositions())
		no("that whoever erased them was entitled to: an audit of the log shows it")
	}
	if r.OK && v.unfounded {
		no("that the task's verdict, and the gates that let it in at once, were decided rightly: what they rest on was erased")
	}
	v.tellEnds(no)
	if v.followed != nil {
		no("that whoever changed the key was entitled to: an audit of the log shows it")
	} else if v.signed {
		no("that the key given was not retired before: a file may leave that out; an audit of the log shows it")
	}
	v.tellWitnessed(yes, no)
	no("that leases lapsed rightly: heartbeats are not recorded; and that the relay's clock was right")
	no("that a machine did what its report says: it says so itself")
}

// tellEnds says what may follow on what the file has.
func (v *verifier) tellEnds(no func(format string, args ...any)) {
	r := &v.report
	if v.complete[events.TaskStream(r.TaskID)] {
		no("that the task has no event behind position %d, where the heads of all streams were last rooted", v.rootAt)
		no("that the root over all streams that the relay recorded at position %d is right: an audit of the log makes it again", r.RootedAt)
	} else {
		for _, s := range r.Streams {
			if s.Stream == events.TaskStream(r.TaskID) {
				no("that the task has no event after revision %d of its stream: no root over the heads of all streams is in the file, so later ones may have been left out; the relay records one now and then: export it again", s.Revision)
			}
		}
	}
	if !v.knownToTheEnd(events.SettingsStream) {
		no("that no settings were changed while the task ran but those in the file")
	}
	if !v.knownToTheEnd(events.AuthorityStream) {
		no("that no authority was changed while the task ran after what the file has; each decision names the revision that it rests on")
	}
}

// erasedPositions lists the first few of them.
func (v *verifier) erasedPositions() string {
	const most = 10
	var words []string
	n := 0
	for _, r := range v.records {
		if !r.Erased {
			continue
		}
		if n++; n <= most {
			words = append(words, fmt.Sprint(r.Header.Position))
		}
	}
	if n > most {
		words = append(words, fmt.Sprintf("and %d more", n-most))
	}
	return strings.Join(words, ", ")
}
