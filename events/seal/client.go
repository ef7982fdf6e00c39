package seal

import (
	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/tlog"

	"fleetledger/events"
)

// TilePath is the path, below the log's address, of tile n of a level of tiles,
// with the first width of its hashes. It is as C2SP tlog-tiles has it.
func TilePath(level int, n uint64, width int) string {
	return torchwood.TilePath(tlog.Tile{H: TileHeight, L: level, N: int64(n), W: width})
}

// EntriesPath is that of the bundle with the leaves of tile n of the lowest level.
func EntriesPath(n uint64, width int) string { return TilePath(-1, n, width) }

// ReadEntry reads the next leaf of a bundle, and returns what follows it.
func ReadEntry(bundle []byte) (leaf, rest []byte, err error) { return torchwood.ReadTileEntry(bundle) }

// Hashes are those of a tile, full or not.
func (r Reader) Hashes(level int, n uint64, width int) ([]events.Hash, error) {
	b, err := r.Tile(tlog.Tile{H: TileHeight, L: level, N: int64(n), W: width})
	if err != nil {
		return nil, err
	}
	return SplitHashes(b), nil
}

// SplitHashes splits the bytes of a tile in its hashes.
func SplitHashes(tile []byte) []events.Hash {
	hashes := make([]events.Hash, len(tile)/len(events.Hash{}))
	for i := range hashes {
		hashes[i] = events.Hash(tile[i*len(events.Hash{}):])
	}
	return hashes
}
