package projections

import (
	"crypto/sha256"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"fleetledger/events"
)

// shapeOf spells out a type with everything that its encoding depends on.
func shapeOf(t reflect.Type, seen map[reflect.Type]bool) string {
	switch t {
	case reflect.TypeFor[time.Time](), reflect.TypeFor[events.Hash](), reflect.TypeFor[jsontext.Value]():
		return t.String()
	}
	if seen[t] {
		return t.String()
	}
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return t.Kind().String() + " of " + shapeOf(t.Elem(), seen)
	case reflect.Map:
		return "map of " + shapeOf(t.Key(), seen) + " to " + shapeOf(t.Elem(), seen)
	case reflect.Struct:
		seen[t] = true
		var b strings.Builder
		for i := range t.NumField() {
			f := t.Field(i)
			fmt.Fprintf(&b, "%s %q %s; ", f.Name, f.Tag, shapeOf(f.Type, seen))
		}
		return t.String() + "{" + b.String() + "}"
	}
	return t.Kind().String()
}

// A snapshot of another shape must have another version: an older program's would
// read as something that it is not. What the fold makes of an event counts too, but
// only its author knows.
func TestSnapshotVersion(t *testing.T) {
	shape := fmt.Sprintf("%x", sha256.Sum256([]byte(shapeOf(reflect.TypeFor[savedState](), map[reflect.Type]bool{}))))[:16]
	known := map[string]string{
		"state/1": "fe78626efd59a769",
		"state/2": "7c20044698d81cef",
		"state/3": "37f6fb4cb08ba1d9",
	}
	if known[snapshotVersion] != shape {
		t.Errorf("what a snapshot holds has the shape %s, version %s had %s: raise snapshotVersion, and add it here", shape, snapshotVersion, known[snapshotVersion])
	}
	var all []string
	for _, s := range known {
		if slices.Contains(all, s) {
			t.Errorf("two versions have the shape %s", s)
		}
		all = append(all, s)
	}
}
