package relay

import (
	"bytes"
	"strconv"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/projections"
)

// pairBody makes a pairing code. The levels are plain integers here, as those of
// registerBody.
type pairBody struct {
	ID             string   `json:"id" doc:"The machine: [a-z0-9][a-z0-9._-]{0,63}. It is registered if it is not yet."`
	Kind           string   `json:"kind,omitzero" enum:"machine" doc:"May be left out: a device is a machine's."`
	AuthorityLevel *int     `json:"authority_level,omitzero" doc:"0 to 100; if left out its parent's, or 0." nullable:"false"`
	Scopes         []string `json:"scopes,omitzero" doc:"At most one."`
	Parent         string   `json:"parent,omitzero" doc:"The actor that it acts under."`
	Cap            *int     `json:"cap,omitzero" doc:"0 to 100: its level is never above." nullable:"false"`
	ExpiresS       *int     `json:"expires_s,omitzero" doc:"How long the code can be redeemed, in seconds, to 604800; 900 if left out." nullable:"false"`
}

func (b *pairBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	if b.Kind != "" && b.Kind != string(events.Machine) {
		return invalidFields(events.Problem{Path: "/kind", Code: "UNKNOWN_KIND", Detail: "is " + strconv.Quote(b.Kind) + ": a device is paired for a machine"})
	}
	return refuseNull(raw, "authority_level", "cap", "expires_s")
}

type pairReply struct {
	PairingID string  `json:"pairing_id" doc:"What DELETE /v1/actors/{id}/tokens/{token_id} takes to end the code, and later the device."`
	Code      *string `json:"code" doc:"Shown this once: null when the request is repeated."`
	Machine   string  `json:"machine"`
	// Actor is the machine as it is registered.
	Actor     actorReply `json:"actor"`
	ExpiresAt time.Time  `json:"expires_at"`
	Receipt   receipt    `json:"receipt" doc:"Of the code; the registration, if there was one, is in the same append."`
}

func (c *call) pairMachine(in pairBody) (pairReply, error) {
	expires := commands.StandardPairingSeconds
	if in.ExpiresS != nil {
		if expires = *in.ExpiresS; expires == 0 {
			expires = -1 // which is refused; 0 would be the standard
		}
	}
	res, err := c.ledger.PairMachine(c.ctx(), c.caller, commands.PairMachine{
		ID: in.ID, AuthorityLevel: levelIn(in.AuthorityLevel), Scopes: in.Scopes, Parent: in.Parent, Cap: levelIn(in.Cap), ExpiresSeconds: expires,
	})
	e, rec, err := recorded[events.TokenIssued](res, err)
	if err != nil {
		return pairReply{}, err
	}
	auth, err := projections.LoadAuthority(c.ctx(), c.ledger.Log(), rec.Header.Position)
	if err != nil {
		return pairReply{}, err
	}
	return pairReply{e.TokenID, orNull(res.Secret), e.Actor, actorAt(auth, auth.Actor(e.Actor)), e.ExpiresAt, receiptOf(rec)}, nil
}

type redeemBody struct {
	Code      string `json:"code"`
	PublicKey string `json:"public_key" doc:"A raw Ed25519 public key, 32 bytes, in base64url without padding."`
}

type redeemReply struct {
	Device  string  `json:"device" doc:"How the device names itself, in Authorization: DPoP DEVICE and as kid of its signatures."`
	Fleet   string  `json:"fleet"`
	Machine string  `json:"machine"`
	Receipt receipt `json:"receipt"`
}

// maxRedeemBody bounds what somebody whom nobody knows may send.
const maxRedeemBody = 4 << 10

// redeemPairing is open: the code says who asks.
func (c *call) redeemPairing() error {
	b := buffers.Get().(*bytes.Buffer)
	defer release(b)
	if err := c.receive(b, maxRedeemBody); err != nil {
		return err
	}
	if _, err := c.mediaType(); err != nil {
		return err
	}
	var in redeemBody
	if err := events.DecodeStrict(b.Bytes(), &in); err != nil {
		return err
	}
	fleet, actor, _ := commands.SplitToken(in.Code)
	c.fleet, c.ledger = "", nil // of a token that was shown: it has no part in this
	c.token.Actor = actor
	if err := c.identify(b.Bytes()); err != nil {
		return err
	}
	ledger := c.fleets[fleet]
	if ledger == nil {
		return unauthorized("PAIRING_INVALID", "the pairing code is not in force: it names no fleet of this relay; ask for another")
	}
	e, rec, err := recorded[events.DevicePaired](ledger.RedeemPairing(c.ctx(), c.caller, commands.RedeemPairing{Code: in.Code, PublicKey: in.PublicKey}))
	if err != nil {
		return err
	}
	c.fleet, c.ledger = fleet, ledger
	out := redeemReply{Device: fleet + "~" + e.Actor + "~" + e.TokenID, Fleet: fleet, Machine: e.Actor, Receipt: receiptOf(rec)}
	c.reply(c.success(out), out)
	return nil
}
