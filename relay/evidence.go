package relay

import (
	"errors"
	"net/http"

	"fleetledger/commands/evidence"
)

const evidenceType = "application/jsonl"

func (c *call) getEvidence() error {
	s, err := c.sealer()
	if err != nil {
		return err
	}
	t, err := c.ledger.Task(c.ctx(), c.path("id"), 0)
	if err != nil {
		return err
	}
	file, err := evidence.Export(c.ctx(), c.ledger.Log(), s, c.ledger.HeadsProver(), t.ID)
	if large, ok := errors.AsType[*evidence.TooLargeError](err); ok {
		return (&problem{status: http.StatusUnprocessableEntity, code: "EVIDENCE_TOO_LARGE",
			detail: large.Error() + "; audit the log itself: POST /v1/audit"}).
			with("max_events", evidence.MaxEvents).with("max_bytes", evidence.MaxBytes)
	}
	if err != nil {
		return err
	}
	c.sendBytes(http.StatusOK, evidenceType, file)
	return nil
}
