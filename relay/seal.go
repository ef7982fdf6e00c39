package relay

import (
	"errors"
	"fmt"
	"net/http"

	"fleetledger/events"
	"fleetledger/events/seal"
)

// sealer signs and serves the tree of the caller's log.
func (c *call) sealer() (*seal.Sealer, error) {
	s := c.cfg.Seals[c.fleet]
	if r, ok := errors.AsType[*events.ReadOnlyError](c.ledger.Degraded()); ok && s == nil {
		p := readOnly(r)
		p.detail += "; it signs and proves nothing meanwhile"
		return nil, p
	}
	if s == nil {
		return nil, notFound("LOG_NOT_SEALED", "this relay has no key to sign the log of fleet %s with", c.fleet)
	}
	return s, nil
}

const textType = "text/plain; charset=utf-8"

func (c *call) getCheckpoint() error {
	s, err := c.sealer()
	if err != nil {
		return err
	}
	signed, err := s.Checkpoint()
	if err != nil {
		return err
	}
	c.sendBytes(http.StatusOK, textType, signed)
	return nil
}

// getWitnessed answers with the newest cosigned checkpoint in the log.
func (c *call) getWitnessed() error {
	w := c.ledger.State().Witnessed()
	if w.Told == 0 {
		return notFound("NOT_WITNESSED", "no checkpoint of this fleet that witnesses have cosigned is recorded; the operator names witnesses with fleetledger serve --witness")
	}
	c.sendBytes(http.StatusOK, textType, []byte(w.Checkpoint))
	return nil
}

func (c *call) getTile() error {
	s, err := c.sealer()
	if err != nil {
		return err
	}
	name := c.path("*")
	tile, full, err := s.Tile(c.ctx(), "tile/"+name)
	if errors.Is(err, seal.ErrBeyond) {
		return notFound("TILE_NOT_FOUND", "there is no tile %+q, or not yet; GET /log/checkpoint says how large the log is", name)
	}
	if err != nil {
		return err
	}
	if full {
		// It is of the token's fleet, and another token may ask for the same path.
		c.w.Header().Set("Vary", "Authorization")
		c.w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	c.sendBytes(http.StatusOK, "application/octet-stream", tile)
	return nil
}

func (c *call) getProof() error {
	s, err := c.sealer()
	if err != nil {
		return err
	}
	p, err := digits(c.path("position"), 64)
	if err != nil || p == 0 {
		return malformed("POSITION_MALFORMED", "%+q is no position: it is an integer in digits, from 1 on", c.path("position"))
	}
	size, given, err := c.position("size")
	if err != nil {
		return err
	}
	switch head := c.ledger.Log().Durable(); {
	case events.Position(p) > head:
		return notFound("EVENT_NOT_FOUND", "position %d is not recorded yet: the newest is %d", p, head).with("position", p).with("head", head)
	case size > head:
		return sizeImpossible("the log has %d events, not %d", head, size).with("size", size).with("head", head)
	case given && uint64(size) < p:
		return sizeImpossible("position %d is not among the first %d events", p, size).with("size", size).with("position", p)
	}
	proof, err := s.Proof(events.Position(p), uint64(size))
	if err != nil {
		return err
	}
	c.sendBytes(http.StatusOK, textType, proof)
	return nil
}

func sizeImpossible(format string, args ...any) *problem {
	return &problem{status: http.StatusUnprocessableEntity, code: "SIZE_IMPOSSIBLE", detail: fmt.Sprintf(format, args...)}
}
