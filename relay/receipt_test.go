package relay

import (
	"testing"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// The answer to an append is encoded by hand, as its fields and their tags say.
func TestAppendReplyEncodes(t *testing.T) {
	receipts := []receipt{
		{},
		{Position: 1, EventID: "01939f5e-7a1b-7c3d-8e4f-0123456789ab", Stream: "task-a", Revision: 1, LeafHash: events.SumHash("a")},
		{Position: 1<<64 - 1, EventID: "<&>'~!", Stream: "ext-a/b", Revision: 1<<64 - 1, LeafHash: events.Hash{31: 1}},
	}
	replies := []appendReply{{Receipts: receipts}, {Receipts: receipts[:1]}}
	for i := range receipts {
		replies = append(replies, appendReply{Receipt: &receipts[i]})
	}
	for _, r := range replies {
		got := r.appendTo(nil)
		want, err := json.Marshal(r, jsonOut)
		if err != nil || string(got) != string(want) {
			t.Errorf("%s; want %s, %v", got, want, err)
		}
	}
}
