package kurrentstub

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/EventStore/EventStore-Client-Go/v4/protos/shared"
	"github.com/EventStore/EventStore-Client-Go/v4/protos/streams"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// stream is one stream of the cluster. Its fields are guarded by the cluster's mu.
type stream struct {
	events []event // events[i] has revision i
	ids    map[uuid.UUID]uint64
	gone   bool // tombstoned
	// scavenged is how many of the first events are removed.
	scavenged uint64
}

type event struct {
	id       uuid.UUID
	system   map[string]string
	data     []byte
	metadata []byte
	commit   uint64
	created  time.Time
}

// limits are what a stream's metadata cuts off.
type limits struct {
	MaxAge   int64  `json:"$maxAge,omitzero"`
	MaxCount uint64 `json:"$maxCount,omitzero"`
	Before   uint64 `json:"$tb,omitzero"`
}

// first is the first revision of s that can be read. c.mu is held.
func (c *Cluster) first(name string, s *stream, now time.Time) uint64 {
	meta := c.streams["$$"+name]
	if meta == nil || len(meta.events) == 0 {
		return s.scavenged
	}
	var l limits
	if err := json.Unmarshal(meta.events[len(meta.events)-1].data, &l); err != nil {
		return s.scavenged
	}
	first := max(l.Before, s.scavenged)
	if n := uint64(len(s.events)); l.MaxCount > 0 && n > l.MaxCount {
		first = max(first, n-l.MaxCount)
	}
	if l.MaxAge > 0 {
		for first < uint64(len(s.events)) && now.Sub(s.events[first].created) > time.Duration(l.MaxAge)*time.Second {
			first++
		}
	}
	return first
}

// proposal is an append as it came in.
type proposal struct {
	stream   string
	revision int64 // the exact revision expected; -1: no stream; -2: another expectation
	events   []event
	bytes    int
}

const (
	noStream = -1
	anyway   = -2
)

// Append implements the append of one client: a header, then the events.
func (n *node) Append(ss streams.Streams_AppendServer) error {
	c := n.c
	fault := c.fault(opAppend)
	if fault == faultEarly {
		return status.Error(codes.Unavailable, "the server is too busy to listen")
	}
	p, err := c.receive(ss)
	if err != nil {
		return err
	}
	md, _ := metadata.FromIncomingContext(ss.Context())
	c.mu.Lock()
	leader := c.leader
	c.mu.Unlock()
	if fault == faultNotLeader {
		return c.notLeader(ss, leader)
	}
	// A node that does not lead forwards, unless the client says that it will not
	// have it.
	if lead := md.Get("requires-leader"); n.index != leader && len(lead) > 0 && lead[0] == "true" {
		return c.notLeader(ss, leader)
	}
	switch fault {
	case faultReset:
		n.wrapped.reset()
		return status.Error(codes.Unavailable, "reset before the write")
	case faultStall:
		c.stall(ss.Context())
		return status.Error(codes.Unavailable, "stalled before the write")
	}
	resp, err := c.write(p, ss.SetTrailer)
	if err != nil {
		return err
	}
	switch fault {
	case faultDrop:
		n.wrapped.reset()
		return status.Error(codes.Unavailable, "reset after the write")
	case faultStallAfter:
		c.stall(ss.Context())
		return status.Error(codes.Unavailable, "stalled after the write")
	}
	return ss.SendAndClose(resp)
}

// receive reads a proposal to its end.
func (c *Cluster) receive(ss streams.Streams_AppendServer) (proposal, error) {
	var p proposal
	for {
		req, err := ss.Recv()
		switch {
		case errors.Is(err, io.EOF) && p.stream == "":
			return p, status.Error(codes.InvalidArgument, "no options")
		case errors.Is(err, io.EOF):
			return p, nil
		case err != nil:
			return p, err
		}
		if o := req.GetOptions(); o != nil {
			p.stream = string(o.GetStreamIdentifier().GetStreamName())
			p.revision = anyway
			switch e := o.ExpectedStreamRevision.(type) {
			case *streams.AppendReq_Options_Revision:
				p.revision = int64(e.Revision)
			case *streams.AppendReq_Options_NoStream:
				p.revision = noStream
			}
			continue
		}
		m := req.GetProposedMessage()
		if m == nil || p.stream == "" {
			return p, status.Error(codes.InvalidArgument, "a message came before the options")
		}
		e := event{id: uuidOf(m.GetId()), system: m.GetMetadata(), data: m.GetData(), metadata: m.GetCustomMetadata()}
		p.bytes += len(e.data) + len(e.metadata) + 2*len(e.system["type"])
		if p.bytes > c.opts.MaxAppendBytes {
			ss.SetTrailer(metadata.Pairs("exception", "maximum-append-size-exceeded", "maximum-append-size", fmt.Sprint(c.opts.MaxAppendBytes)))
			return p, status.Errorf(codes.InvalidArgument, "Maximum Append Size of %d Exceeded.", c.opts.MaxAppendBytes)
		}
		p.events = append(p.events, e)
	}
}

// write appends p, all of it or nothing.
func (c *Cluster) write(p proposal, trailer func(metadata.MD)) (*streams.AppendResp, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[p.stream]
	if s == nil {
		s = &stream{ids: map[uuid.UUID]uint64{}}
	}
	if s.gone {
		return nil, deleted(p.stream, trailer)
	}
	current := int64(len(s.events)) - 1
	if p.revision != anyway && p.revision != current {
		if p.revision < current && s.holds(p.events, p.revision+1) {
			return success(p.revision+int64(len(p.events)), s.events[p.revision+int64(len(p.events))].commit), nil
		}
		return wrongVersion(p.revision, current), nil
	}
	if p.revision == anyway && len(p.events) > 0 {
		if at, ok := s.ids[p.events[0].id]; ok && s.holds(p.events, int64(at)) {
			last := int64(at) + int64(len(p.events)) - 1
			return success(last, s.events[last].commit), nil
		}
	}
	if len(p.events) == 0 {
		return success(current, c.commit), nil
	}
	c.streams[p.stream] = s
	now := time.Now()
	for _, e := range p.events {
		c.commit += uint64(len(e.data)+len(e.metadata)) + 100
		e.commit, e.created = c.commit, now
		s.ids[e.id] = uint64(len(s.events))
		s.events = append(s.events, e)
	}
	c.appends++
	close(c.grown)
	c.grown = make(chan struct{})
	return success(int64(len(s.events))-1, c.commit), nil
}

// holds reports whether exactly these events, by their ids, lie from revision at on.
func (s *stream) holds(events []event, at int64) bool {
	if at < 0 || int(at)+len(events) > len(s.events) {
		return false
	}
	for i, e := range events {
		if s.events[int(at)+i].id != e.id {
			return false
		}
	}
	return true
}

func deleted(name string, trailer func(metadata.MD)) error {
	trailer(metadata.Pairs("exception", "stream-deleted", "stream-name", name))
	return status.Errorf(codes.FailedPrecondition, "Event stream '%s' is deleted.", name)
}

func success(revision int64, commit uint64) *streams.AppendResp {
	ok := &streams.AppendResp_Success{
		PositionOption: &streams.AppendResp_Success_Position{Position: &streams.AppendResp_Position{CommitPosition: commit, PreparePosition: commit}},
	}
	if revision < 0 {
		ok.CurrentRevisionOption = &streams.AppendResp_Success_NoStream{NoStream: &shared.Empty{}}
	} else {
		ok.CurrentRevisionOption = &streams.AppendResp_Success_CurrentRevision{CurrentRevision: uint64(revision)}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_Success_{Success: ok}}
}

func wrongVersion(expected, current int64) *streams.AppendResp {
	w := &streams.AppendResp_WrongExpectedVersion{}
	if current < 0 {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentNoStream{CurrentNoStream: &shared.Empty{}}
	} else {
		w.CurrentRevisionOption = &streams.AppendResp_WrongExpectedVersion_CurrentRevision{CurrentRevision: uint64(current)}
	}
	if expected < 0 {
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedNoStream{ExpectedNoStream: &shared.Empty{}}
	} else {
		w.ExpectedRevisionOption = &streams.AppendResp_WrongExpectedVersion_ExpectedRevision{ExpectedRevision: uint64(expected)}
	}
	return &streams.AppendResp{Result: &streams.AppendResp_WrongExpectedVersion_{WrongExpectedVersion: w}}
}

// Tombstone ends a stream for ever.
func (n *node) Tombstone(_ context.Context, req *streams.TombstoneReq) (*streams.TombstoneResp, error) {
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	name := string(req.GetOptions().GetStreamIdentifier().GetStreamName())
	if n.c.streams[name] == nil {
		n.c.streams[name] = &stream{ids: map[uuid.UUID]uint64{}}
	}
	n.c.streams[name].gone = true
	return &streams.TombstoneResp{PositionOption: &streams.TombstoneResp_NoPosition{NoPosition: &shared.Empty{}}}, nil
}

// Delete ends what a stream holds so far, as a real server does: by its metadata. What
// is appended later goes on after it.
func (n *node) Delete(_ context.Context, req *streams.DeleteReq) (*streams.DeleteResp, error) {
	name := string(req.GetOptions().GetStreamIdentifier().GetStreamName())
	n.c.mu.Lock()
	size := 0
	if s := n.c.streams[name]; s != nil {
		size = len(s.events)
	}
	n.c.mu.Unlock()
	n.c.SetMetadata(name, fmt.Appendf(nil, `{"$tb":%d}`, size))
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	return &streams.DeleteResp{PositionOption: &streams.DeleteResp_Position_{Position: &streams.DeleteResp_Position{CommitPosition: n.c.commit, PreparePosition: n.c.commit}}}, nil
}

// Read implements reads and subscriptions of one stream.
func (n *node) Read(req *streams.ReadReq, ss streams.Streams_ReadServer) error {
	o := req.GetOptions()
	so := o.GetStream()
	if so == nil {
		return status.Error(codes.Unimplemented, "only single streams are read here")
	}
	name := string(so.GetStreamIdentifier().GetStreamName())
	if o.GetSubscription() != nil {
		return n.subscribe(name, so, ss)
	}
	c := n.c
	lag := uint64(0)
	switch c.fault(opRead) {
	case faultReset:
		n.wrapped.reset()
		return status.Error(codes.Unavailable, "reset before the read")
	case faultStall:
		c.stall(ss.Context())
		return status.Error(codes.Unavailable, "stalled before the read")
	case faultUnknown:
		// Newer servers say such things too, and the client has no case for them.
		if err := ss.Send(&streams.ReadResp{Content: &streams.ReadResp_LastStreamPosition{LastStreamPosition: 1}}); err != nil {
			return err
		}
	case faultLag:
		lag = 3
	}
	c.mu.Lock()
	s := c.streams[name]
	if s == nil {
		c.mu.Unlock()
		return ss.Send(&streams.ReadResp{Content: &streams.ReadResp_StreamNotFound_{
			StreamNotFound: &streams.ReadResp_StreamNotFound{StreamIdentifier: so.GetStreamIdentifier()}}})
	}
	if s.gone {
		c.mu.Unlock()
		return deleted(name, ss.SetTrailer)
	}
	first, all := c.first(name, s, time.Now()), s.events
	c.mu.Unlock()
	all = all[:uint64(len(all))-min(lag, uint64(len(all)))]

	count := o.GetCount()
	if o.GetReadDirection() == streams.ReadReq_Options_Backwards {
		at := int64(len(all)) - 1
		if r, ok := so.RevisionOption.(*streams.ReadReq_Options_StreamOptions_Revision); ok && r.Revision < math.MaxInt64 {
			at = min(at, int64(r.Revision))
		}
		for ; at >= int64(first) && count > 0; at, count = at-1, count-1 {
			if err := ss.Send(all[at].resp(name, uint64(at))); err != nil {
				return err
			}
		}
		return nil
	}
	at := first
	if r, ok := so.RevisionOption.(*streams.ReadReq_Options_StreamOptions_Revision); ok {
		at = max(at, r.Revision)
	}
	for ; at < uint64(len(all)) && count > 0; at, count = at+1, count-1 {
		if err := ss.Send(all[at].resp(name, at)); err != nil {
			return err
		}
	}
	return nil
}

// subscribe sends what there is after a revision and then what comes.
func (n *node) subscribe(name string, so *streams.ReadReq_Options_StreamOptions, ss streams.Streams_ReadServer) error {
	c := n.c
	next := uint64(0)
	switch r := so.RevisionOption.(type) {
	case *streams.ReadReq_Options_StreamOptions_Revision:
		next = r.Revision + 1 // it starts after the one it names
	case *streams.ReadReq_Options_StreamOptions_End:
		c.mu.Lock()
		if s := c.streams[name]; s != nil {
			next = uint64(len(s.events))
		}
		c.mu.Unlock()
	}
	err := ss.Send(&streams.ReadResp{Content: &streams.ReadResp_Confirmation{
		Confirmation: &streams.ReadResp_SubscriptionConfirmation{SubscriptionId: uuid.NewString()}}})
	told := false
	for err == nil {
		c.mu.Lock()
		var more []event
		gone := false
		if s := c.streams[name]; s != nil {
			gone = s.gone
			next = max(next, c.first(name, s, time.Now()))
			if next < uint64(len(s.events)) {
				more = s.events[next:]
			}
		}
		grown := c.grown
		c.mu.Unlock()
		if gone {
			return deleted(name, ss.SetTrailer)
		}
		for _, e := range more {
			switch c.fault(opSubscription) {
			case faultReset:
				n.wrapped.reset()
				return status.Error(codes.Unavailable, "the subscription was dropped")
			case faultStall:
				c.stall(ss.Context())
			}
			if err := ss.Send(e.resp(name, next)); err != nil {
				return err
			}
			next++
		}
		if len(more) > 0 {
			told = false
			continue
		}
		if !told {
			told = true
			if err := ss.Send(&streams.ReadResp{Content: &streams.ReadResp_CaughtUp_{CaughtUp: &streams.ReadResp_CaughtUp{}}}); err != nil {
				return err
			}
		}
		select {
		case <-grown:
		case <-ss.Context().Done():
			return status.FromContextError(ss.Context().Err()).Err()
		}
	}
	return err
}

// resp is an event as it is read.
func (e event) resp(name string, revision uint64) *streams.ReadResp {
	system := map[string]string{}
	for k, v := range e.system {
		system[k] = v
	}
	system["created"] = fmt.Sprint(e.created.UnixNano() / 100)
	return &streams.ReadResp{Content: &streams.ReadResp_Event{Event: &streams.ReadResp_ReadEvent{
		Event: &streams.ReadResp_ReadEvent_RecordedEvent{
			Id:               protoID(e.id),
			StreamIdentifier: &shared.StreamIdentifier{StreamName: []byte(name)},
			StreamRevision:   revision,
			PreparePosition:  e.commit, CommitPosition: e.commit,
			Metadata: system, CustomMetadata: e.metadata, Data: e.data,
		},
		Position: &streams.ReadResp_ReadEvent_CommitPosition{CommitPosition: e.commit},
	}}}
}

func uuidOf(id *shared.UUID) uuid.UUID {
	if s := id.GetStructured(); s != nil {
		var u uuid.UUID
		binary.BigEndian.PutUint64(u[:8], uint64(s.MostSignificantBits))
		binary.BigEndian.PutUint64(u[8:], uint64(s.LeastSignificantBits))
		return u
	}
	u, _ := uuid.Parse(id.GetString_()) // the zero id if it is none
	return u
}

func protoID(u uuid.UUID) *shared.UUID {
	return &shared.UUID{Value: &shared.UUID_Structured_{Structured: &shared.UUID_Structured{
		MostSignificantBits:  int64(binary.BigEndian.Uint64(u[:8])),
		LeastSignificantBits: int64(binary.BigEndian.Uint64(u[8:])),
	}}}
}
