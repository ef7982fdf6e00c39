package relay

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"fleetledger/commands"
	"fleetledger/events/seal"
	"fleetledger/relay/witness"
	"fleetledger/testing/witnessstub"
)

// TestWitnesses tells of witnesses: what they cosigned, and what one has against the
// log.
func TestWitnesses(t *testing.T) {
	f := newFleet(t).people()
	f.do("root", "GET", "/log/witnessed", "").want(404, "NOT_WITNESSED")
	if v := f.do("", "GET", "/readyz", "").want(200).get("fleets.0.witnessed"); v != nil {
		t.Errorf("nothing was witnessed, and it tells %v", v)
	}
	w := witnessstub.New(t, "w.test")
	sealer := f.relay.cfg.Seals["default"]
	w.Trust(sealer.Verifiers()[0])
	named, err := witness.Parse(w.Key() + "@" + w.URL)
	if err != nil {
		t.Fatal(err)
	}
	c := witness.New(f.ledger, sealer, witness.Config{Witnesses: []witness.Witness{named}, Quorum: 1, Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(c.Close)
	f.relay.cfg.Witnesses = map[string]*witness.Collector{"default": c}
	f.do("", "GET", "/readyz", "").want(200).has("fleets.0.witnesses.0.witness", "w.test", "fleets.0.witnesses.0.state", "silent")
	c.Ask(t.Context())
	size := f.ledger.State().Witnessed().Size
	f.do("", "GET", "/readyz", "").want(200).has("fleets.0.witnesses.0.state", "agrees", "fleets.0.witnesses.0.size", fmt.Sprint(size),
		"fleets.0.witnessed.size", fmt.Sprint(size), "fleets.0.witnessed.position", fmt.Sprint(size+1))
	signed := f.do("root", "GET", "/log/witnessed", "").want(200).body
	key, err := seal.ParseWitnessKey(w.Key())
	if err != nil {
		t.Fatal(err)
	}
	got, err := seal.VerifyCheckpoint(signed, sealer.Verifiers()...)
	by, wrong := seal.Cosignatures(signed, []seal.WitnessKey{key})
	if err != nil || wrong != nil || len(by) != 1 || int64(got.Size) != size {
		t.Errorf("%+v by %+v: %v, %v", got, by, err, wrong)
	}
	f.do("other:root", "GET", "/log/witnessed", "").want(404, "NOT_WITNESSED")
	m := f.metricsOf("root")
	if m[`fleetledger_witnessed_events{fleet="default"}`] != float64(size) || m[`fleetledger_witness_agrees{fleet="default",witness="w.test"}`] != 1 ||
		m[`fleetledger_witness_faulty{fleet="default",witness="w.test"}`] != 0 || m[`fleetledger_witnessed_timestamp_seconds{fleet="default"}`] == 0 {
		t.Errorf("the metrics are %v", m)
	}
	if _, told := f.metricsOf("other:root")[`fleetledger_witnessed_events{fleet="other"}`]; told {
		t.Error("a fleet without witnesses has metrics of them")
	}

	f.ledger.Contradict(&commands.ContradictedError{Witness: "w.test", Known: 1000, Size: uint64(size)})
	refused := f.do("root", "POST", "/v1/rules", `{"action":"x.y","min_level":3}`).want(503, "WITNESS_CONTRADICTS").
		has("witness", "w.test", "witnessed_size", "1000", "size", fmt.Sprint(size))
	ready := f.do("", "GET", "/readyz", "").want(503, "WITNESS_CONTRADICTS").has("fleets.0.degraded", "WITNESS_CONTRADICTS")
	for _, a := range []answer{refused, ready} {
		if !strings.Contains(string(a.body), "this is an older copy") {
			t.Errorf("it does not say why: %s", a.body)
		}
	}
	f.do("root", "GET", "/v1/events?limit=3", "").want(200)
	f.do("root", "GET", "/log/checkpoint", "").want(200)
	c.Ask(t.Context())
	f.do("root", "POST", "/v1/rules", `{"action":"x.y","min_level":3}`).want(201)
}
