package commands

import (
	"testing"

	"github.com/google/uuid"
)

func TestGatesOfTasks(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		task := taskID(uuid.Must(uuid.NewV7()).String())
		if u, err := uuid.Parse(task); err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
			t.Fatalf("the task's id %s is no UUIDv7: %v", task, err)
		}
		for i := range MaxTargets {
			gate := legGateID(task, i)
			if u, err := uuid.Parse(gate); err != nil || u.Version() != 7 || u.Variant() != uuid.RFC4122 {
				t.Fatalf("the gate's id %s is no UUIDv7: %v", gate, err)
			}
			if seen[gate] {
				t.Fatalf("gate %s is there twice", gate)
			}
			seen[gate] = true
			if got, ok := taskOfGate(gate); !ok || got != task {
				t.Fatalf("gate %s of task %s is taken for one of %q", gate, task, got)
			}
		}
		if got, ok := taskOfGate(task); ok {
			t.Fatalf("task %s is taken for a gate of %s", task, got)
		}
	}
	// As older logs have it.
	if got, ok := taskOfGate("01a22fb7-b22d-8cfd-ba00-0adaa9521aea"); !ok || got != "01a22fb7-b22d-7cfd-ba00-0adaa9521aea" {
		t.Errorf("a gate of version 8 is taken for one of %q", got)
	}
	for _, id := range []string{"", "x", "01a22fb7-b22d-4cfd-ba01-0adaa9521aea", "01a22fb7-b22d-7cfd-ba00-0adaa9521aea", "00000000-0000-8000-80zz-000000000001", "00000000-0000-8000-8000-0000000000012"} {
		if got, ok := taskOfGate(id); ok {
			t.Errorf("%q is taken for a gate of %s", id, got)
		}
	}
}
