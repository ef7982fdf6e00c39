package relay

import (
	"net/http"
	"strings"

	"fleetledger/commands"
	"fleetledger/projections"
)

// authenticate finds out who asks. Nothing of a fleet is known, or told, before.
func (c *call) authenticate() error {
	const scheme = "bearer "
	header := c.r.Header["Authorization"]
	if len(header) != 1 || len(header[0]) < len(scheme) || !strings.EqualFold(header[0][:len(scheme)], scheme) {
		return unauthorized("TOKEN_MISSING", "the request needs the header Authorization: Bearer TOKEN, once")
	}
	token := strings.TrimSpace(header[0][len(scheme):])
	fleet := commands.TokenFleet(token)
	ledger := c.fleets[fleet]
	var known projections.Token
	ok := false
	if ledger != nil {
		known, ok = ledger.Authenticate(token)
	}
	if !ok {
		return unauthorized("TOKEN_UNKNOWN", "the token is not in force on this relay; ask whoever registered you for another")
	}
	c.fleet, c.ledger, c.token = fleet, ledger, known
	if !ledger.State().Authority().Active(known.Actor) {
		return &problem{status: http.StatusForbidden, code: "ACTOR_NOT_ACTIVE",
			detail: known.Actor + " is suspended, or an actor that it acts under is", facts: facts{"actor": known.Actor}}
	}
	return nil
}

func unauthorized(code, detail string) *problem {
	return &problem{status: http.StatusUnauthorized, code: code, detail: detail, header: [2]string{"WWW-Authenticate", "Bearer"}}
}
