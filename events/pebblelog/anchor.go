package pebblelog

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2/vfs"

	"fleetledger/events"
)

const (
	anchorName    = "anchor"
	anchorSlots   = 2
	anchorSlotLen = 4096
	anchorFormat  = 1
	anchorSummed  = 80 // the bytes that the sum covers, which follows them
)

var anchorMagic = []byte("FLANCHOR")

// Head is one record of the anchor file: how much of the log was acknowledged.
type Head struct {
	Generation uint64
	Size       uint64      // the number of events
	Root       events.Hash // the Merkle root at that size
	log        logID
}

// errSlotEmpty: a slot that was never written.
var errSlotEmpty = errors.New("never written")

func (h Head) encode(b []byte) {
	clear(b)
	copy(b, anchorMagic)
	binary.BigEndian.PutUint32(b[8:], anchorFormat)
	copy(b[16:], h.log[:])
	binary.BigEndian.PutUint64(b[32:], h.Generation)
	binary.BigEndian.PutUint64(b[40:], h.Size)
	copy(b[48:], h.Root[:])
	sum := sha256.Sum256(b[:anchorSummed])
	copy(b[anchorSummed:], sum[:])
}

func decodeHead(slot int, b []byte) (Head, error) {
	sum := sha256.Sum256(b[:anchorSummed])
	switch {
	case bytes.Equal(b, make([]byte, len(b))):
		return Head{}, errSlotEmpty
	case !bytes.Equal(b[:len(anchorMagic)], anchorMagic):
		return Head{}, errors.New("does not begin like an anchor record")
	case !bytes.Equal(sum[:], b[anchorSummed:anchorSummed+len(sum)]):
		return Head{}, errors.New("its checksum does not fit")
	}
	if v := binary.BigEndian.Uint32(b[8:]); v != anchorFormat {
		return Head{}, fmt.Errorf("has format %d, this program reads %d", v, anchorFormat)
	}
	h := Head{
		Generation: binary.BigEndian.Uint64(b[32:]),
		Size:       binary.BigEndian.Uint64(b[40:]),
		Root:       events.Hash(b[48:anchorSummed]),
		log:        logID(b[16:32]),
	}
	if h.Generation%anchorSlots != uint64(slot) {
		return Head{}, fmt.Errorf("holds record number %d, which belongs in the other slot", h.Generation)
	}
	return h, nil
}

// readAnchor reads both slots and returns the newest valid record, nil if there
// is none, and what is wrong with each slot that has none. err is for a file
// that cannot be read, not for what is in it.
func readAnchor(fsys vfs.FS, path string) (newest *Head, slots [anchorSlots]error, err error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		slots[0], slots[1] = err, err
		return nil, slots, nil
	}
	if err != nil {
		return nil, slots, err
	}
	defer f.Close()
	for i := range slots {
		b := make([]byte, anchorSlotLen)
		if _, err := f.ReadAt(b, int64(i)*anchorSlotLen); err != nil {
			if !errors.Is(err, io.EOF) {
				return nil, slots, err
			}
			slots[i] = errors.New("the file ends before it does")
			continue
		}
		h, err := decodeHead(i, b)
		if err != nil {
			slots[i] = err
			continue
		}
		if newest == nil || h.Generation > newest.Generation {
			newest = &h
		}
	}
	return newest, slots, nil
}

// ReadHead is what the anchor of the log in dir vouches for, nil if it has no valid
// record. The log need not be whole, nor its directory unused.
func ReadHead(dir string) (*Head, error) {
	head, _, err := readAnchor(vfs.Default, vfs.Default.PathJoin(dir, anchorName))
	return head, err
}

// createAnchor makes the anchor file, with h in it, and makes it durable. A
// crash leaves either no anchor or a whole one.
func createAnchor(fsys vfs.FS, dir string, h Head) error {
	return writeFileDurably(fsys, dir, anchorName, h.file())
}

// file is an anchor file whose only record is h.
func (h Head) file() []byte {
	b := make([]byte, anchorSlots*anchorSlotLen)
	slot := h.Generation % anchorSlots * anchorSlotLen
	h.encode(b[slot : slot+anchorSlotLen])
	return b
}

// writeFileDurably makes the file dir/name with this content, whole or not at
// all.
func writeFileDurably(fsys vfs.FS, dir, name string, content []byte) error {
	path := fsys.PathJoin(dir, name)
	f, err := fsys.Create(path+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := fsys.Rename(path+".new", path); err != nil {
		return err
	}
	return syncDir(fsys, dir)
}

func syncDir(fsys vfs.FS, dir string) error {
	d, err := fsys.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// anchor is the open anchor file. Only the finisher writes it.
type anchor struct {
	file vfs.File
	head Head
	buf  [anchorSlotLen]byte
}

// openAnchor opens the anchor file whose newest record is head.
func openAnchor(fsys vfs.FS, dir string, head Head) (*anchor, error) {
	f, err := fsys.OpenReadWrite(fsys.PathJoin(dir, anchorName), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return &anchor{file: f, head: head}, nil
}

// advance records that the log is durable up to size, with this root, and
// returns when that is on disk. It writes over the older slot: until the sync is
// done the newer one stands.
func (a *anchor) advance(size uint64, root events.Hash) error {
	next := Head{Generation: a.head.Generation + 1, Size: size, Root: root, log: a.head.log}
	next.encode(a.buf[:])
	if _, err := a.file.WriteAt(a.buf[:], int64(next.Generation%anchorSlots)*anchorSlotLen); err != nil {
		return err
	}
	if err := a.file.SyncData(); err != nil {
		return err
	}
	a.head = next
	return nil
}

func (a *anchor) close() error { return a.file.Close() }
