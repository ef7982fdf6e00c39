package relay

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
	"fleetledger/projections/sqlview"
)

// blockFields are the seven fields of a block; one that is absent is absent.
type blockFields struct {
	Focus       *string `json:"focus,omitzero" nullable:"false"`
	Issue       *string `json:"issue,omitzero" nullable:"false"`
	Intent      *string `json:"intent,omitzero" nullable:"false"`
	Motivation  *string `json:"motivation,omitzero" nullable:"false"`
	Commitment  *string `json:"commitment,omitzero" nullable:"false"`
	Perspective *string `json:"perspective,omitzero" nullable:"false"`
	Mood        *string `json:"mood,omitzero" nullable:"false"`
}

// byName is where each field is, in the order of events.BlockFields.
func (f *blockFields) byName() []**string {
	return []**string{&f.Focus, &f.Issue, &f.Intent, &f.Motivation, &f.Commitment, &f.Perspective, &f.Mood}
}

func (f *blockFields) texts() map[string]string {
	out := map[string]string{}
	for i, text := range f.byName() {
		if *text != nil {
			out[events.BlockFields[i]] = **text
		}
	}
	return out
}

func fieldsOut(texts map[string]string) blockFields {
	var f blockFields
	for i, to := range f.byName() {
		if text, ok := texts[events.BlockFields[i]]; ok {
			*to = &text
		}
	}
	return f
}

type publishBlockBody struct {
	Fields  blockFields   `json:"fields" doc:"One at least."`
	Parents []events.Hash `json:"parents,omitzero" doc:"Hashes of the blocks that it stems from. Each must be here."`
}

func (b *publishBlockBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	var members map[string]jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return err
	}
	return refuseNullAt("/fields", members["fields"], events.BlockFields...)
}

// blockReply is a peer's claim. Its texts are data that somebody wrote, never
// instructions.
type blockReply struct {
	Hash        events.Hash         `json:"hash" doc:"The content hash, over fields and parents: see POST /v1/blocks."`
	Fields      *blockFields        `json:"fields" doc:"Those that were given. Null if the block was erased."`
	Parents     []events.Hash       `json:"parents" doc:"In ascending order."`
	Ancestors   []events.Hash       `json:"ancestors" doc:"The parents and theirs, up to the roots, in ascending order."`
	PublishedBy string              `json:"published_by" doc:"Whose level is tested. Of an imported block, who imported it."`
	PublishedAt time.Time           `json:"published_at"`
	Origin      *events.BlockOrigin `json:"origin" doc:"Where an imported block came from, by the word of its file; null for one published here."`
	Erased      bool                `json:"erased"`
	Position    events.Position     `json:"position"`
}

func blockOut(b *projections.Block) blockReply {
	out := blockReply{Hash: b.Hash, Parents: orEmpty(b.Parents), Ancestors: orEmpty(b.Ancestors), PublishedBy: b.By, PublishedAt: b.At,
		Origin: b.Origin, Erased: b.Erased, Position: b.Position}
	if !b.Erased {
		f := fieldsOut(b.Fields)
		out.Fields = &f
	}
	return out
}

func orEmpty[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

type publishBlockReply struct {
	Hash    events.Hash `json:"hash"`
	Block   blockReply  `json:"block"`
	Receipt *receipt    `json:"receipt" doc:"Null if the block was here already: published_by says who said it first."`
}

func (r publishBlockReply) httpStatus() int {
	if r.Receipt == nil {
		return http.StatusOK
	}
	return http.StatusCreated
}

func (c *call) publishBlock(in publishBlockBody) (out publishBlockReply, err error) {
	fields := in.Fields.texts()
	res, err := c.ledger.PublishBlock(c.ctx(), c.caller, commands.PublishBlock{Fields: fields, Parents: orEmpty(in.Parents)})
	if err == nil && len(res.Records) == 0 {
		b, err := c.ledger.Block(c.ctx(), events.BlockHash(fields, in.Parents), 0)
		if err != nil {
			return out, err
		}
		return publishBlockReply{Hash: b.Hash, Block: blockOut(b)}, nil
	}
	e, rec, err := recorded[events.BlockPublished](res, err)
	if err != nil {
		return out, err
	}
	r := receiptOf(rec)
	e.Hash, _ = events.BlockOfStream(rec.Header.Stream) // also of one that was erased since
	return publishBlockReply{e.Hash, blockOut(projections.BlockOf(rec, e)), &r}, nil
}

type narrowBody struct {
	MinLevels map[string]events.Level `json:"min_levels,omitzero" doc:"By field, the level that its publisher needs, beyond what the rules ask for."`
	Refuse    []string                `json:"refuse,omitzero" doc:"Fields that are not taken, whoever published them."`
}

type acceptBlockBody struct {
	Narrow narrowBody `json:"narrow,omitzero" doc:"How the receiver takes less than the rules let in. Nothing lets in more."`
}

// fieldDecision is what became of one field.
type fieldDecision struct {
	Field      string            `json:"field"`
	Accepted   bool              `json:"accepted"`
	Verdict    events.Verdict    `json:"verdict" doc:"Of the rules, about the publisher."`
	ReasonCode events.ReasonCode `json:"reason_code"`
	Reason     string            `json:"reason"`
	Narrowed   bool              `json:"narrowed" doc:"The rules allow it, and the receiver does not."`
	Decision   events.Decision   `json:"decision"`
}

// acceptanceReply is what one receiver took of a block.
type acceptanceReply struct {
	AcceptanceID string            `json:"acceptance_id"`
	Hash         events.Hash       `json:"hash" doc:"Of the block."`
	StoredHash   *events.Hash      `json:"stored_hash" nullable:"true" doc:"The content hash of what was taken, with the block's parents: hash itself if it was all of it, null if it was nothing."`
	Fields       blockFields       `json:"fields" doc:"What was taken. A refused field is absent."`
	Parents      []events.Hash     `json:"parents"`
	Ancestors    []events.Hash     `json:"ancestors"`
	OwnThought   bool              `json:"own_thought" doc:"The receiver published the block, or one that it stems from."`
	Own          []events.Hash     `json:"own" doc:"Which of them."`
	Decisions    []fieldDecision   `json:"decisions" doc:"One for each field that the block has."`
	Narrowed     *events.Narrowing `json:"narrowed"`
	By           string            `json:"by"`
	At           time.Time         `json:"at"`
	Position     events.Position   `json:"position"`
}

func acceptanceOut(x projections.Acceptance) acceptanceReply {
	out := acceptanceReply{
		AcceptanceID: x.EventID, Hash: x.Hash, Fields: fieldsOut(x.Fields), Parents: orEmpty(x.Parents), Ancestors: orEmpty(x.Ancestors),
		OwnThought: x.OwnThought, Own: orEmpty(x.Own), Decisions: []fieldDecision{}, Narrowed: x.Narrowed, By: x.By, At: x.At, Position: x.Position,
	}
	if !x.Stored.IsZero() {
		out.StoredHash = &x.Stored
	}
	for _, dec := range x.Decisions {
		i := slices.IndexFunc(events.BlockFields, func(name string) bool { return events.AcceptAction(name) == dec.Action })
		if i < 0 {
			continue // no command records such a decision
		}
		name := events.BlockFields[i]
		_, accepted := x.Fields[name]
		code, reason := reasonOf(dec)
		out.Decisions = append(out.Decisions, fieldDecision{Field: name, Accepted: accepted, Verdict: dec.Verdict, ReasonCode: code, Reason: reason,
			Narrowed: dec.Verdict == events.Allow && !accepted, Decision: dec})
	}
	return out
}

// reasonOf is why a gate decided as it did: the decisive rule's reason, or the last
// of those that allowed it.
func reasonOf(dec events.Decision) (events.ReasonCode, string) {
	if dec.Decisive != nil {
		return dec.Decisive.ReasonCode, dec.Decisive.Reason
	}
	if n := len(dec.Evaluated); n > 0 {
		return dec.Evaluated[n-1].ReasonCode, dec.Evaluated[n-1].Reason
	}
	return "", ""
}

// AcceptanceReply and BlockReply are the replies under names that can be embedded
// for all to see.
type (
	AcceptanceReply = acceptanceReply
	BlockReply      = blockReply
)

type acceptBlockReply struct {
	AcceptanceReply
	Receipt receipt `json:"receipt"`
}

func (c *call) acceptBlock(in acceptBlockBody) (out acceptBlockReply, err error) {
	hash, err := c.blockHash()
	if err != nil {
		return out, err
	}
	e, rec, err := recorded[events.BlockAccepted](c.ledger.AcceptBlock(c.ctx(), c.caller, commands.AcceptBlock{
		Hash: hash, Narrow: events.Narrowing{MinLevels: in.Narrow.MinLevels, Refuse: in.Narrow.Refuse},
	}))
	if err != nil {
		return out, err
	}
	h := rec.Header
	e.Hash = hash // also of one that was erased since
	return acceptBlockReply{
		acceptanceOut(projections.Acceptance{BlockAccepted: e, Position: h.Position, EventID: h.ID, By: h.Actor, At: h.Time}), receiptOf(rec),
	}, nil
}

// blockHash is the block that the path names.
func (c *call) blockHash() (h events.Hash, err error) {
	text := c.path("hash")
	if h.UnmarshalText([]byte(text)) != nil || h.IsZero() {
		return h, notFound("BLOCK_NOT_FOUND", "%+q names no block: a block's hash has 64 characters 0-9 and a-f", text)
	}
	return h, nil
}

const acceptancesShown = 50

type blockShownReply struct {
	BlockReply
	Acceptances    []acceptanceReply `json:"acceptances" doc:"The newest 50, newest first; all are events of the block's stream."`
	AcceptancesAll int               `json:"acceptances_total"`
	Scope          scope             `json:"scope"`
}

func (c *call) getBlock() (out blockShownReply, err error) {
	hash, err := c.blockHash()
	if err != nil {
		return out, err
	}
	b, err := c.ledger.Block(c.ctx(), hash, c.at)
	if err != nil {
		return out, err
	}
	out = blockShownReply{BlockReply: blockOut(b), Acceptances: []acceptanceReply{}, Scope: c.scope()}
	out.Scope.Stream = events.BlockStream(hash)
	list, all, err := projections.LoadAcceptances(c.ctx(), c.ledger.Log(), hash, c.at, acceptancesShown)
	for _, x := range list {
		out.Acceptances = append(out.Acceptances, acceptanceOut(x))
	}
	out.AcceptancesAll = all
	return out, err
}

func (c *call) listBlocks() (list[blockReply], error) {
	out := list[blockReply]{Items: []blockReply{}, Scope: c.scope()}
	page, err := c.page()
	if err != nil {
		return out, err
	}
	f := sqlview.BlockFilter{PublishedBy: c.q("published_by"), AcceptedBy: c.q("accepted_by")}
	out.Scope.PublishedBy, out.Scope.AcceptedBy, out.Scope.Parent = f.PublishedBy, f.AcceptedBy, c.q("parent")
	if out.Scope.Parent != "" {
		if f.Parent.UnmarshalText([]byte(out.Scope.Parent)) != nil {
			return out, parameterInvalid("parent", "is no block's hash: 64 characters 0-9 and a-f")
		}
	}
	found, more, err := c.view().Blocks(c.ctx(), page, f)
	if err != nil {
		return out, c.viewError(err)
	}
	for _, b := range found {
		out.Items = append(out.Items, blockOut(&b))
	}
	if more {
		out.NextCursor = cursor(more, found[len(found)-1].Position)
	}
	return out, nil
}

func (c *call) exportBlock() (commands.BlockFile, error) {
	hash, err := c.blockHash()
	if err != nil {
		return commands.BlockFile{}, err
	}
	return c.ledger.ExportBlock(c.ctx(), hash, c.at)
}

type importBlocksBody struct{ commands.BlockFile }

func (b *importBlocksBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	for i, x := range b.Blocks {
		for name := range x.Fields {
			if !slices.Contains(events.BlockFields, name) {
				return invalidFields(events.Problem{Path: fmt.Sprintf("/blocks/%d/fields", i), Code: events.CodeUnknownField,
					Detail: fmt.Sprintf("%+q is none of %v", name, events.BlockFields)})
			}
		}
	}
	return nil
}

type importBlocksReply struct {
	Imported []events.Hash `json:"imported"`
	Here     []events.Hash `json:"here" doc:"Those that were here already."`
	Receipt  *receipt      `json:"receipt" doc:"Of the first imported block; null if all were here."`
}

func (c *call) importBlocks(in importBlocksBody) (importBlocksReply, error) {
	out := importBlocksReply{Imported: []events.Hash{}, Here: []events.Hash{}}
	res, err := c.ledger.ImportBlocks(c.ctx(), c.caller, commands.ImportBlocks{BlockFile: in.BlockFile})
	if err == nil {
		err = waitingIn(res)
	}
	if err != nil {
		return out, withReceipt(res, err)
	}
	for _, rec := range res.Records {
		if rec.Header.Type != (events.BlockPublished{}).Kind() {
			continue
		}
		if out.Receipt == nil {
			r := receiptOf(rec)
			out.Receipt = &r
		}
		if hash, ok := events.BlockOfStream(rec.Header.Stream); ok {
			out.Imported = append(out.Imported, hash)
		}
	}
	for _, x := range in.Blocks {
		if !slices.Contains(out.Imported, x.Hash) && !slices.Contains(out.Here, x.Hash) {
			out.Here = append(out.Here, x.Hash)
		}
	}
	return out, nil
}
