package relay

import (
	"testing"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// A receipt is encoded by hand, as its fields and their tags say.
func TestReceiptEncodes(t *testing.T) {
	type plain receipt // has no methods
	for _, r := range []receipt{
		{},
		{Position: 1, EventID: "01939f5e-7a1b-7c3d-8e4f-0123456789ab", Stream: "task-a", Revision: 1, LeafHash: events.SumHash("a")},
		{Position: 1<<64 - 1, EventID: "<&>'~!", Stream: "ext-a/b", Revision: 1<<64 - 1, LeafHash: events.Hash{31: 1}},
	} {
		got, err := json.Marshal(r, jsonOut)
		want, wantErr := json.Marshal(plain(r), jsonOut)
		if err != nil || wantErr != nil || string(got) != string(want) {
			t.Errorf("%s, %v; want %s, %v", got, err, want, wantErr)
		}
	}
}
