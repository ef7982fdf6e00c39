package relay

import (
	"encoding/hex"
	"net/http"

	"github.com/go-json-experiment/json"

	"fleetledger/events"
)

// payloadsType is JSON Lines.
const payloadsType = "application/jsonl"

// payloadLine is what a header commits to: SHA-256 over salt and payload.
type payloadLine struct {
	Position events.Position `json:"position"`
	Salt     string          `json:"salt,omitzero"`
	Payload  string          `json:"payload,omitzero"`
	Erased   bool            `json:"erased,omitzero"`
}

// getPayloads hands out payloads with their salts, byte for byte, for who verifies
// the log's leaves.
func (c *call) getPayloads() error {
	limit, err := c.limit()
	if err != nil {
		return err
	}
	after, _, err := c.position("after")
	if err != nil {
		return err
	}
	var body []byte
	n := 0
	for r, err := range c.ledger.Log().ReadAll(c.ctx(), after) {
		if err != nil {
			return err
		}
		line := payloadLine{Position: r.Header.Position, Erased: r.Erased}
		if !r.Erased {
			line.Salt, line.Payload = hex.EncodeToString(r.Salt[:]), string(r.Payload)
		}
		text, err := json.Marshal(line)
		if err != nil {
			return err
		}
		body = append(append(body, text...), '\n')
		if n++; n == limit || len(body) > maxPageBytes {
			break
		}
	}
	c.sendBytes(http.StatusOK, payloadsType, body)
	return nil
}
