package evidence

import (
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// Export returns the evidence file of a task whose events are in log, which sealer
// signs and whose heads prover proves; nil if there is no such task. What is too much
// for a file is a *TooLargeError.
func Export(ctx context.Context, log events.Log, sealer *seal.Sealer, prover *seal.HeadsProver, task string) ([]byte, error) {
	if events.CheckName("task id", string(events.TaskStream(task))) != nil {
		return nil, nil
	}
	signed, err := sealer.Checkpoint()
	if err != nil {
		return nil, err
	}
	// The relay's own text: only its numbers are needed.
	c, err := seal.ParseCheckpoint(signed)
	if err != nil {
		return nil, err
	}
	s := selection{ctx: ctx, log: log, end: events.Position(c.Size), have: map[events.Stream]bool{}}
	if err := s.task(task); err != nil || len(s.records) == 0 {
		return nil, err
	}
	heads, err := s.ledger(prover)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(s.records, func(a, b events.Record) int { return cmp.Compare(a.Header.Position, b.Header.Position) })
	head := fileHead{Format: Format, Origin: c.Origin, Fleet: s.records[0].Header.Fleet, TaskID: task, Events: len(s.records), Checkpoint: string(signed), Heads: heads}
	if head.Keys, err = s.keys(sealer.Reader(), c.Size); err != nil {
		return nil, err
	}
	if head.Witnessed, err = s.cosigned(sealer.Reader(), c.Size); err != nil {
		return nil, err
	}
	file, err := appendLine(nil, head)
	if err != nil {
		return nil, err
	}
	prove := sealer.Reader().Inclusions(c.Size)
	for _, r := range s.records {
		e := fileEvent{Leaf: string(r.Leaf), Erased: r.Erased, Proof: []events.Hash{}}
		if !r.Erased {
			e.Salt, e.Payload = hex.EncodeToString(r.Salt[:]), string(r.Payload)
		}
		proof, err := prove(r.Header.Position)
		if err != nil {
			return nil, fmt.Errorf("position %d: %w", r.Header.Position, err)
		}
		for _, h := range proof {
			e.Proof = append(e.Proof, events.Hash(h))
		}
		if file, err = appendLine(file, e); err != nil {
			return nil, fmt.Errorf("position %d: %w", r.Header.Position, err)
		}
		if len(file) > MaxBytes {
			return nil, &TooLargeError{len(s.records), len(file)}
		}
	}
	return file, nil
}

func appendLine(file []byte, v any) ([]byte, error) {
	line, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append(append(file, line...), '\n'), nil
}

// selection collects the events that a task rests on.
type selection struct {
	ctx     context.Context
	log     events.Log
	end     events.Position // of the checkpoint
	have    map[events.Stream]bool
	records []events.Record
	bytes   int
	// witnessed is the newest event with a cosigned checkpoint.
	witnessed *events.Record
}

func (s *selection) task(id string) error {
	if err := s.stream(events.TaskStream(id), s.end); err != nil || len(s.records) == 0 {
		return err
	}
	// With the first event behind the task's last nothing can be missing before it.
	last := s.records[len(s.records)-1].Header.Position
	for _, stream := range []events.Stream{events.AuthorityStream, events.SettingsStream} {
		if err := s.stream(stream, last); err != nil {
			return err
		}
	}
	for _, r := range slices.Clone(s.records) {
		if r.Erased {
			continue
		}
		e, err := events.Decode(r)
		if err != nil {
			return err
		}
		if id := spentBy(e); id != "" {
			if err := s.gateOf(id); err != nil {
				return fmt.Errorf("the gate of approval %s, which position %d rests on: %w", id, r.Header.Position, err)
			}
		}
	}
	return nil
}

// ledger adds the events of the ledger's keys, those that tell who erased what is not
// there any more, and the newest root over the heads of all streams, and proves them
// under it.
func (s *selection) ledger(prover *seal.HeadsProver) (*fileHeads, error) {
	erased := map[events.Position]bool{}
	names := map[events.Stream]bool{events.AuthorityStream: true, events.SettingsStream: true}
	for _, r := range s.records {
		names[r.Header.Stream] = true
		if r.Erased {
			erased[r.Header.Position] = true
		}
	}
	var newest *events.Record
	for r, err := range s.log.ReadStream(s.ctx, events.LedgerStream, 0) {
		if err != nil {
			return nil, err
		}
		if r.Header.Position > s.end {
			break
		}
		switch r.Header.Type {
		case events.HeadsRooted{}.Kind():
			newest = &r
		case events.CheckpointWitnessed{}.Kind():
			s.witnessed = &r
		case events.KeyAdded{}.Kind(), events.KeyRetired{}.Kind():
			s.records = append(s.records, r)
		case events.PayloadErased{}.Kind():
			e, err := events.DecodeAs[events.PayloadErased](r)
			if err != nil {
				return nil, err
			}
			if erased[e.Position] {
				s.records = append(s.records, r)
			}
		}
	}
	if newest == nil {
		return nil, nil
	}
	root, err := events.DecodeAs[events.HeadsRooted](*newest)
	if err != nil {
		return nil, err
	}
	streams := slices.Sorted(maps.Keys(names))
	proofs, err := prover.Prove(s.ctx, root, newest.Header.Position, streams)
	if err != nil {
		return nil, err
	}
	s.records = append(s.records, *newest)
	heads := &fileHeads{Position: newest.Header.Position}
	for i, p := range proofs {
		f := fileProof{Stream: streams[i], Found: fileFound(p.Found), Path: make([]fileStep, len(p.Path))}
		for j, step := range p.Path {
			f.Path[j] = fileStep(step)
		}
		heads.Proofs = append(heads.Proofs, f)
	}
	return heads, nil
}

// keys proves that the last checkpoint of each retired key is of the log of size events.
func (s *selection) keys(r seal.Reader, size uint64) ([]fileKey, error) {
	var keys []fileKey
	for _, rec := range s.records {
		if rec.Header.Type != (events.KeyRetired{}).Kind() {
			continue
		}
		e, err := events.DecodeAs[events.KeyRetired](rec)
		if err != nil {
			return nil, err
		}
		k := fileKey{Position: rec.Header.Position, Proof: []events.Hash{}}
		if e.Size > 0 { // before there was anything a key shows nothing
			proof, err := r.Consistency(uint64(e.Size), size)
			if err != nil {
				return nil, fmt.Errorf("position %d: %w", rec.Header.Position, err)
			}
			for _, h := range proof {
				k.Proof = append(k.Proof, events.Hash(h))
			}
		}
		keys = append(keys, k)
	}
	return keys, nil
}

// stream adds the events of a stream up to a position, and the first behind it.
func (s *selection) stream(name events.Stream, upTo events.Position) error {
	if s.have[name] {
		return nil
	}
	s.have[name] = true
	for r, err := range s.log.ReadStream(s.ctx, name, 0) {
		if err != nil {
			return err
		}
		if r.Header.Position > s.end {
			break
		}
		s.records = append(s.records, r)
		if s.bytes += len(r.Leaf) + len(r.Payload); len(s.records) > MaxEvents || s.bytes > MaxBytes {
			return &TooLargeError{len(s.records), s.bytes}
		}
		if r.Header.Position > upTo {
			break
		}
	}
	return nil
}

// gateOf adds the stream that an approval lies in. An approval has the id of the
// event that asked for it.
func (s *selection) gateOf(approval string) error {
	p, err := s.log.FindID(s.ctx, approval)
	if err != nil {
		return err
	}
	if p == 0 {
		return fmt.Errorf("no event has this id")
	}
	for r, err := range s.log.ReadAll(s.ctx, p-1) {
		if err != nil {
			return err
		}
		return s.stream(r.Header.Stream, s.end)
	}
	return fmt.Errorf("position %d is not there", p)
}

// spentBy is the approval that e was recorded under, if it needed one.
func spentBy(e events.Event) string {
	var p *events.Permit
	switch e := e.(type) {
	case events.ActorRegistered:
		p = e.Permit
	case events.ActorLevelSet:
		p = &e.Permit
	case events.ActorScopesChanged:
		p = &e.Permit
	case events.ActorSuspended:
		p = &e.Permit
	case events.ActorReinstated:
		p = &e.Permit
	case events.RuleWritten:
		p = e.Permit
	case events.RuleRetired:
		p = &e.Permit
	case events.SettingsChanged:
		p = e.Permit
	case events.TaskCancelled:
		p = e.Permit
	case events.ConclusionRecorded:
		p = &e.Permit
	}
	if p == nil {
		return ""
	}
	return p.ApprovalID
}
