package commands

import (
	"fmt"
	"strconv"
)

// The gate of a target that is allowed at once has no event of its own: the task's
// submission tells of it. So that whoever knows the gate finds the task, its id is
// made from the task's: of a task's UUIDv7 the tenth byte is 0, and its gates have
// the same id but for that byte, the number of the target, and the version, 8.
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
	if i > 0xff {
		panic("bug: a task has more targets than gates have numbers")
	}
	return fmt.Sprintf("%s8%s%02x%s", task[:versionAt], task[versionAt+1:tenthAt], i, task[tenthAt+2:])
}

// taskOfGate is the task that tells of a gate if any does; ok is false for an id that
// legGateID does not make.
func taskOfGate(gate string) (task string, ok bool) {
	if len(gate) != uuidLen || gate[versionAt] != '8' {
		return "", false
	}
	if _, err := strconv.ParseUint(gate[tenthAt:tenthAt+2], 16, 8); err != nil {
		return "", false
	}
	return gate[:versionAt] + "7" + gate[versionAt+1:tenthAt] + "00" + gate[tenthAt+2:], true
}
