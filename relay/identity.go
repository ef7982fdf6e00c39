package relay

import (
	"net/http"
	"strings"

	"fleetledger/commands"
	"fleetledger/events/devicekey"
	"fleetledger/projections"
)

// authenticate finds out who asks. Nothing of a fleet is known, or told, before.
func (c *call) authenticate() error {
	header := c.r.Header["Authorization"]
	if len(header) != 1 {
		return tokenMissing()
	}
	scheme, shown, _ := strings.Cut(header[0], " ")
	shown = strings.TrimSpace(shown)
	fleet, _, id := commands.SplitToken(shown)
	ledger := c.fleets[fleet]
	var known projections.Token
	var err error
	switch {
	case strings.EqualFold(scheme, "bearer") && shown != "":
		known, err = bearer(ledger, shown, id)
	case strings.EqualFold(scheme, devicekey.Scheme) && shown != "":
		known, err = c.signed(ledger, shown, id)
	default:
		err = tokenMissing()
	}
	if err != nil {
		return err
	}
	c.fleet, c.ledger, c.token = fleet, ledger, known
	if !ledger.State().Authority().Active(known.Actor) {
		return &problem{status: http.StatusForbidden, code: "ACTOR_NOT_ACTIVE",
			detail: known.Actor + " is suspended, or an actor that it acts under is", facts: facts{"actor": known.Actor}}
	}
	return nil
}

func tokenMissing() error {
	return unauthorized("TOKEN_MISSING", "the request needs the header Authorization: Bearer TOKEN, once, or that of a paired device and its signature")
}

// bearer knows the actor of a bearer token.
func bearer(ledger *commands.Ledger, token, id string) (projections.Token, error) {
	if ledger != nil {
		if known, ok := ledger.Authenticate(token); ok {
			return known, nil
		}
		// The name of a device is no secret: shown as a token it stands for nobody.
		if t, _, ok := ledger.State().TokenByID(id); ok && t.Device() {
			return projections.Token{}, signatureRequired()
		}
	}
	return projections.Token{}, unauthorized("TOKEN_UNKNOWN", "the token is not in force on this relay; ask whoever registered you for another")
}

func unauthorized(code, detail string) *problem {
	return &problem{status: http.StatusUnauthorized, code: code, detail: detail, header: [2]string{"WWW-Authenticate", "Bearer"}}
}
