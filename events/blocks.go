package events

import (
	"slices"
	"time"

	"golang.org/x/text/unicode/norm"
)

// BlockFields are the seven fields of a block, in the order of its hash.
var BlockFields = []string{"focus", "issue", "intent", "motivation", "commitment", "perspective", "mood"}

// AcceptAction is the action of accepting a field from a publisher.
func AcceptAction(field string) string { return "memory.accept." + field }

// blockHashLabel names the definition of BlockHash. It is not changed: another
// definition has another label.
const blockHashLabel = "fleetledger-block/1"

// BlockHash is the content hash of a block. It is SHA-256 over a list of parts,
// each preceded by its length in bytes as eight bytes, big endian:
//
//	"fleetledger-block/1"
//	for each field that the block has, in the order of BlockFields:
//	    its name
//	    its text, in UTF-8 and Unicode's Normalization Form C
//	"parents"
//	each parent's hash, as 64 characters 0-9 and a-f, in ascending order, each once
//
// A field that is absent has no part: absent and empty differ, and a block has no
// empty field. Nothing else goes in, so two who say the same on the same grounds
// have said one block, whoever and wherever they are. Thus the block that says
// {"focus": "café", "mood": "calm"} and has no parent is the 92 bytes
//
//	00 00 00 00 00 00 00 13  fleetledger-block/1
//	00 00 00 00 00 00 00 05  focus
//	00 00 00 00 00 00 00 05  63 61 66 c3 a9
//	00 00 00 00 00 00 00 04  mood
//	00 00 00 00 00 00 00 04  calm
//	00 00 00 00 00 00 00 07  parents
//
// and its hash is
// cbab5f78daaaffd4d3e9c12f1af41a4197f73831e77111079c10e7c41f68fdac
// also when its é was sent as 65 cc 81. testdata/blocks.json has more.
func BlockHash(fields map[string]string, parents []Hash) Hash {
	parts := []string{blockHashLabel}
	for _, name := range BlockFields {
		if text, ok := fields[name]; ok {
			parts = append(parts, name, norm.NFC.String(text))
		}
	}
	parts = append(parts, "parents")
	for _, p := range SortedHashes(parents) {
		parts = append(parts, p.String())
	}
	return SumHash(parts...)
}

// SortedHashes returns hashes in ascending order, each once.
func SortedHashes(list []Hash) []Hash {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b Hash) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out)
}

// BlockPublished is a peer's claim: up to seven fields, and the claims that it
// stems from.
type BlockPublished struct {
	Hash Hash `json:"hash"`
	// Fields holds those of the seven fields that were given, their texts in
	// Normalization Form C.
	Fields map[string]string `json:"fields"`
	// Parents and Ancestors are in ascending order; Ancestors are the parents and
	// theirs, up to the roots.
	Parents   []Hash `json:"parents"`
	Ancestors []Hash `json:"ancestors"`
	// Origin says where an imported block came from, as the imported file has it;
	// nil for one that its publisher wrote here.
	Origin *BlockOrigin `json:"origin,omitzero"`
	Permit Permit       `json:"permit"`
}

// BlockOrigin is who published a block first, and where: another fleet's word.
type BlockOrigin struct {
	Fleet string    `json:"fleet"`
	LogID string    `json:"log_id"`
	By    string    `json:"by"`
	At    time.Time `json:"at"`
}

// BlockAccepted is what one receiver, its actor, took of a block, field by field.
type BlockAccepted struct {
	Hash Hash `json:"hash"`
	// Stored is the content hash of what was taken: of Fields and Parents. It is
	// Hash if that was all of the block, zero if it was nothing.
	Stored Hash `json:"stored"`
	// Fields are the accepted ones; a refused field is absent.
	Fields    map[string]string `json:"fields"`
	Parents   []Hash            `json:"parents"`
	Ancestors []Hash            `json:"ancestors"`
	// Decisions are those about the publisher: memory.accept.<field> for each field
	// of the block, in the order of BlockFields.
	Decisions []Decision `json:"decisions"`
	// Narrowed is what the receiver asked for beyond the rules, nil if nothing.
	Narrowed *Narrowing `json:"narrowed,omitzero"`
	// OwnThought is true when the receiver published the block, or an ancestor:
	// Own names them. What one imported is not one's own thought.
	OwnThought bool   `json:"own_thought"`
	Own        []Hash `json:"own"`
}

// Narrowing is how a receiver takes less than the rules let in.
type Narrowing struct {
	// MinLevels is, by field, the level that a publisher needs.
	MinLevels map[string]Level `json:"min_levels,omitzero"`
	// Refuse names fields that are not taken from anybody.
	Refuse []string `json:"refuse,omitzero"`
}

// Takes reports whether a receiver who narrows by n takes a field from a publisher
// of this level.
func (n *Narrowing) Takes(field string, publisher Level) bool {
	if n == nil {
		return true
	}
	floor, narrowed := n.MinLevels[field]
	return !slices.Contains(n.Refuse, field) && (!narrowed || publisher >= floor)
}

func (BlockPublished) Kind() Kind { return "block.published" }
func (BlockAccepted) Kind() Kind  { return "block.accepted" }
