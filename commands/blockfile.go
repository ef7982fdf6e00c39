package commands

import (
	"context"
	"fmt"
	"slices"
	"time"

	"fleetledger/events"
	"fleetledger/projections"
)

// BlockFileFormat names the form of an exported block with its lineage.
const BlockFileFormat = "fleetledger-blocks/1"

// MaxBlockFile bounds how many blocks are imported at once.
const MaxBlockFile = MaxBlockAncestors + 1

// BlockFile is a block with its whole lineage, to be imported by another fleet.
type BlockFile struct {
	Format string `json:"format" enum:"fleetledger-blocks/1"`
	// Blocks are in an order in which they can be published, the exported one last.
	Blocks []FileBlock `json:"blocks" doc:"Ancestors before what stems from them."`
}

// FileBlock is one block of a BlockFile.
type FileBlock struct {
	Hash      events.Hash        `json:"hash"`
	Fields    map[string]string  `json:"fields"`
	Parents   []events.Hash      `json:"parents"`
	Ancestors []events.Hash      `json:"ancestors"`
	Origin    events.BlockOrigin `json:"origin" doc:"Who published it first, and where."`
}

// ExportBlock returns a block with its whole lineage as of position at (0: now).
// Refusals: BLOCK_NOT_FOUND, BLOCK_ERASED.
func (l *Ledger) ExportBlock(ctx context.Context, hash events.Hash, at events.Position) (BlockFile, error) {
	f := BlockFile{Format: BlockFileFormat}
	top, err := l.Block(ctx, hash, at)
	if err != nil {
		return f, err
	}
	list := []*projections.Block{top}
	for _, h := range top.Ancestors {
		b, err := l.Block(ctx, h, at)
		if err != nil {
			return f, err
		}
		list = append(list, b)
	}
	// Whatever a block stems from was published before it.
	slices.SortFunc(list, func(a, b *projections.Block) int { return int(int64(a.Position) - int64(b.Position)) })
	auth := l.state.Authority()
	for _, b := range list {
		if b.Erased {
			return f, refuse(Conflict, "BLOCK_ERASED", "what block %s said was erased: the lineage of %s cannot be given whole", b.Hash, hash).With("hash", b.Hash)
		}
		x := FileBlock{Hash: b.Hash, Fields: b.Fields, Parents: b.Parents, Ancestors: b.Ancestors,
			Origin: events.BlockOrigin{Fleet: auth.Fleet, LogID: auth.LogID, By: b.By, At: b.At}}
		if b.Origin != nil {
			x.Origin = *b.Origin
		}
		f.Blocks = append(f.Blocks, x)
	}
	return f, nil
}

// ImportBlocks publishes the blocks of a file that are not here yet, all or none.
// Here their publisher is the caller: nobody's level is taken on another fleet's
// word.
type ImportBlocks struct {
	BlockFile
}

// ImportBlocks carries out c. A block that is here already is left alone. Refusals:
// INVALID, BLOCK_TAMPERED, FIELD_TOO_LARGE, LINEAGE_TOO_LONG, FILE_TOO_LARGE,
// SECRET_IN_TEXT, PARENT_NOT_HERE, BLOCK_ERASED, and what gates answer.
func (l *Ledger) ImportBlocks(ctx context.Context, caller Caller, c ImportBlocks) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	return l.execute(ctx, caller, func(v view) (decided, error) {
		var fresh []events.BlockPublished
		lineage := lineage{ledger: l, coming: map[events.Hash][]events.Hash{}}
		for i, x := range c.Blocks {
			ancestors, err := lineage.ancestors(ctx, fmt.Sprintf("/blocks/%d/parents", i), x.Parents)
			if err != nil {
				return decided{}, err
			}
			if given := events.SortedHashes(x.Ancestors); !slices.Equal(given, ancestors) {
				return decided{}, tampered(i, x.Hash, "does not stem from what the file says").With("expected", ancestors).With("actual", given)
			}
			here, err := l.blockHere(ctx, x.Hash)
			if err != nil {
				return decided{}, err
			}
			if _, twice := lineage.coming[x.Hash]; here || twice {
				continue
			}
			lineage.coming[x.Hash] = ancestors
			origin := x.Origin
			fresh = append(fresh, events.BlockPublished{Hash: x.Hash, Fields: normalized(x.Fields), Parents: events.SortedHashes(x.Parents), Ancestors: ancestors, Origin: &origin})
		}
		if len(fresh) == 0 {
			return decided{}, nil
		}
		return v.gated([]string{"memory.publish"}, named("blocks.import", c), func(permits []events.Permit, d *decided) {
			for _, b := range fresh {
				b.Permit = permits[0]
				d.publish(v, b)
			}
		})
	})
}

// check refuses a file that no fleet exported.
func (c ImportBlocks) check() error {
	if c.Format != BlockFileFormat {
		return invalid(problem("/format", "UNKNOWN_VALUE", "%q is not %s", c.Format, BlockFileFormat))
	}
	if len(c.Blocks) == 0 {
		return invalid(problem("/blocks", "REQUIRED", "a file holds one block at least"))
	}
	if len(c.Blocks) > MaxBlockFile {
		return tooLarge("FILE_TOO_LARGE", len(c.Blocks), MaxBlockFile, "blocks at once")
	}
	for i, x := range c.Blocks {
		path := fmt.Sprintf("/blocks/%d", i)
		if bad := append(blockProblems(path, x.Fields, x.Parents), x.problems(path)...); len(bad) > 0 {
			return invalid(bad...)
		}
		if got := events.BlockHash(x.Fields, x.Parents); got != x.Hash {
			return tampered(i, x.Hash, "does not have the hash that the file says").With("expected", got).With("actual", x.Hash)
		}
		if err := checkBlock(path, events.BlockPublished{Fields: normalized(x.Fields), Parents: x.Parents}); err != nil {
			return err
		}
		if err := noSecretsInText("the block's origin", text{path + "/origin/fleet", x.Origin.Fleet}, text{path + "/origin/log_id", x.Origin.LogID},
			text{path + "/origin/by", x.Origin.By}); err != nil {
			return err
		}
	}
	return nil
}

func (x FileBlock) problems(path string) (bad []events.Problem) {
	for _, f := range []struct{ name, value string }{{"fleet", x.Origin.Fleet}, {"by", x.Origin.By}} {
		if !events.ValidID(f.value) {
			bad = append(bad, badID(path+"/origin/"+f.name, f.value))
		}
	}
	if err := events.CheckName("log_id", x.Origin.LogID); err != nil {
		bad = append(bad, problem(path+"/origin/log_id", "INVALID", "%v", err))
	}
	if x.Origin.At.IsZero() || x.Origin.At.After(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) {
		bad = append(bad, problem(path+"/origin/at", "INVALID", "is no time at which something can have been published"))
	}
	return bad
}

func tampered(i int, hash events.Hash, why string) *Refusal {
	return refuse(Impossible, "BLOCK_TAMPERED", "block %d of the file, %s, %s: it was changed after it was exported; nothing was imported", i, hash, why).
		With("block", i).With("hash", hash)
}
