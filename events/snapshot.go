package events

// A Snapshotter is a Fold whose published state can be written down and taken up
// again, so that a start need not fold what lies before.
type Snapshotter interface {
	Fold

	// SnapshotVersion names what the state is a fold of and how it is encoded. A
	// snapshot of another version is not taken up.
	SnapshotVersion() string

	// EncodeSnapshot returns the published state and the position that it is of. The
	// same state gives the same bytes. It may be called concurrently with Stage and
	// publish.
	EncodeSnapshot() (Position, []byte, error)

	// RestoreSnapshot makes an unused fold what EncodeSnapshot told of. After an error
	// it is unused still.
	RestoreSnapshot(p Position, state []byte) error
}
