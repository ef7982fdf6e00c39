package projections

import (
	"cmp"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	jsonv1 "github.com/go-json-experiment/json/v1"

	"fleetledger/events"
)

// snapshotVersion is to be raised whenever the fold or this encoding changes: a
// state of another version is not taken up, and the log is folded from its beginning.
const snapshotVersion = "state/3"

// durations are written in nanoseconds.
var durations = jsonv1.FormatDurationAsNano(true)

// savedState is a State as EncodeSnapshot writes it: what is folded, and nothing
// that follows from it.
type savedState struct {
	Authority  savedAuthority
	Settings   Settings
	Collective savedCollective
	Tokens     []savedToken
	Tasks      []*Task     // open
	Approvals  []*Approval // pending
	Denials    map[string][]time.Time
	Erasures   []Erasure
	LedgerAt   events.Revision
	Rooted     Rooted
	Witnessed  Witnessed
	Newest     Newest
	Duty       events.DutyTaken
	Asked      []Asked
	TokensAt   events.Revision
}

type savedAuthority struct {
	Fleet, LogID string
	Revision     events.Revision
	Actors       []*Actor // in the order of registration
	Rules        []Rule
}

type savedCollective struct {
	Revision events.Revision
	Begun    bool
	List     []*Section
	Unread   map[events.Position]SectionChange
}

type savedToken struct {
	Hash events.Hash
	Token
}

// SnapshotVersion implements events.Snapshotter.
func (s *State) SnapshotVersion() string { return snapshotVersion }

// EncodeSnapshot implements events.Snapshotter.
func (s *State) EncodeSnapshot() (events.Position, []byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	saved := savedState{
		Authority:  savedAuthority{s.authority.Fleet, s.authority.LogID, s.authority.Revision, s.authority.Actors(), s.authority.Rules},
		Settings:   s.settings,
		Collective: savedCollective{s.collective.Revision, s.collective.begun, s.collective.list, s.collective.unread},
		Denials:    s.denials, LedgerAt: s.ledgerAt, Rooted: s.rooted, Witnessed: s.witnessed, Newest: s.newest, Duty: s.duty, Asked: s.asked, TokensAt: s.tokensRevision,
	}
	for hash, t := range s.tokens {
		saved.Tokens = append(saved.Tokens, savedToken{hash, t})
	}
	slices.SortFunc(saved.Tokens, func(a, b savedToken) int { return cmp.Compare(a.ID, b.ID) })
	for _, id := range slices.Sorted(maps.Keys(s.tasks)) {
		saved.Tasks = append(saved.Tasks, s.tasks[id])
	}
	for _, id := range slices.Sorted(maps.Keys(s.approvals)) {
		saved.Approvals = append(saved.Approvals, s.approvals[id])
	}
	for _, p := range slices.Sorted(maps.Keys(s.erasures)) {
		saved.Erasures = append(saved.Erasures, s.erasures[p])
	}
	b, err := json.Marshal(saved, json.Deterministic(true), durations)
	return s.position, b, err
}

// RestoreSnapshot implements events.Snapshotter.
func (s *State) RestoreSnapshot(p events.Position, state []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.position != 0 {
		return errors.New("the state is in use")
	}
	var saved savedState
	if err := json.Unmarshal(state, &saved, json.RejectUnknownMembers(true), durations); err != nil {
		return err
	}
	n := NewState()
	n.position, n.settings = p, saved.Settings
	n.authority = &Authority{Fleet: saved.Authority.Fleet, LogID: saved.Authority.LogID, Revision: saved.Authority.Revision, Rules: saved.Authority.Rules, actors: map[string]*Actor{}}
	for _, a := range saved.Authority.Actors {
		n.authority.actors[a.ID] = a
		n.authority.order = append(n.authority.order, a.ID)
	}
	n.collective = &Collective{Revision: saved.Collective.Revision, begun: saved.Collective.Begun, list: saved.Collective.List, unread: saved.Collective.Unread}
	for _, t := range saved.Tokens {
		n.tokens[t.Hash], n.tokenIDs[t.ID] = t.Token, t.Hash
	}
	for _, t := range saved.Tasks {
		if t == nil || t.ID == "" {
			return errors.New("a task without an id")
		}
		n.offer(t.ID, t, nil)
		n.tasks[t.ID] = t
	}
	for _, a := range saved.Approvals {
		n.approvals[a.ApprovalID] = a
	}
	maps.Copy(n.denials, saved.Denials)
	for _, e := range saved.Erasures {
		n.erasures[e.Position] = e
	}
	n.ledgerAt, n.rooted, n.witnessed, n.newest = saved.LedgerAt, saved.Rooted, saved.Witnessed, saved.Newest
	n.duty, n.asked, n.tokensRevision = saved.Duty, saved.Asked, saved.TokensAt
	s.position, s.authority, s.settings, s.collective = n.position, n.authority, n.settings, n.collective
	s.tokens, s.tokenIDs, s.tasks, s.approvals, s.offers = n.tokens, n.tokenIDs, n.tasks, n.approvals, n.offers
	s.denials, s.asked, s.erasures, s.duty, s.tokensRevision = n.denials, n.asked, n.erasures, n.duty, n.tokensRevision
	s.ledgerAt, s.rooted, s.witnessed, s.newest = n.ledgerAt, n.rooted, n.witnessed, n.newest
	s.next.mu.Lock()
	defer s.next.mu.Unlock()
	s.next.authority, s.next.settings, s.next.collective = s.authority, s.settings, s.collective
	return nil
}
