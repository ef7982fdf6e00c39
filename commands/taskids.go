package commands

import (
	"fmt"
	"strconv"
)

// The gate of a target that is allowed at once has no event of its own: the task's
// submission tells of it. So that whoever knows the gate finds the task, its id is
// made from the task's: of a task's UUIDv7 the tenth byte is 0, and its gates have
// the same id but for that byte, the number of the target from 1 on. Older logs have
// gates of version 8 too, numbered from 0.
const (
	versionAt, tenthAt = 14, 21 // in the text of a UUID
	uuidLen            = 36
)

// taskID makes the id of a task of a new UUIDv7.
func taskID(id string) string {
	if len(id) != uuidLen || id[versionAt] != '7' {
		panic("bug: " + id + " is no UUIDv7")
	}
	return id[:tenthAt] + "00" + id[tenthAt+2:]
}

// legGateID is the id of the gate of a task's target i, from 0, if it is allowed at
// once.
func legGateID(task string, i int) string {
	if i >= 0xff {
		panic("bug: a task has more targets than gates have numbers")
	}
	return fmt.Sprintf("%s%02x%s", task[:tenthAt], i+1, task[tenthAt+2:])
}

// taskOfGate is the task that tells of a gate, if that is the gate of a target; ok is
// false for an id that cannot be. A gate that stands alone may have an id like it.
func taskOfGate(gate string) (task string, ok bool) {
	if len(gate) != uuidLen {
		return "", false
	}
	n, err := strconv.ParseUint(gate[tenthAt:tenthAt+2], 16, 8)
	if version := gate[versionAt]; err != nil || version != '8' && (version != '7' || n == 0) {
		return "", false
	}
	return gate[:versionAt] + "7" + gate[versionAt+1:tenthAt] + "00" + gate[tenthAt+2:], true
}
