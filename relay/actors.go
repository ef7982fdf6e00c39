package relay

import (
	"slices"
	"time"

	"fleetledger/commands"
	"fleetledger/events"
	"fleetledger/events/devicekey"
	"fleetledger/projections"
)

// actorReply is an actor as readers see it.
type actorReply struct {
	ID             string           `json:"id"`
	Kind           events.ActorKind `json:"kind" enum:"human,agent,machine"`
	AuthorityLevel events.Level     `json:"authority_level" doc:"Its own level."`
	EffectiveLevel events.Level     `json:"effective_level" doc:"What counts at a gate: min(own, cap, the parent's effective level)."`
	Scopes         []string         `json:"scopes"`
	Parent         *string          `json:"parent"`
	Cap            *events.Level    `json:"cap"`
	Suspended      bool             `json:"suspended" doc:"It itself; see active."`
	Active         bool             `json:"active" doc:"Neither it nor an actor that it acts under is suspended."`
	RegisteredBy   string           `json:"registered_by"`
	RegisteredAt   time.Time        `json:"registered_at"`
	Tokens         []tokenItem      `json:"tokens,omitzero" doc:"Its tokens in force, when one actor is read."`
}

type tokenItem struct {
	TokenID   string    `json:"token_id"`
	Use       string    `json:"use" enum:"bearer,pairing,device" doc:"A bearer token, a pairing code, or the device that it was redeemed for."`
	ExpiresAt time.Time `json:"expires_at,omitzero" doc:"Of a pairing code."`
	PublicKey string    `json:"public_key,omitzero" doc:"Of a device."`
}

func tokenOf(t projections.Token) tokenItem {
	switch {
	case t.Bearer():
		return tokenItem{TokenID: t.ID, Use: "bearer"}
	case t.Device():
		return tokenItem{TokenID: t.ID, Use: "device", PublicKey: devicekey.PublicKey(t.Key)}
	}
	return tokenItem{TokenID: t.ID, Use: "pairing", ExpiresAt: t.ExpiresAt}
}

func actorAt(auth *projections.Authority, a *projections.Actor) actorReply {
	standing := commands.Standing(auth, a.ID)
	return actorReply{
		ID: a.ID, Kind: a.Kind, AuthorityLevel: a.Level, EffectiveLevel: standing.Level, Scopes: standing.Scopes,
		Parent: orNull(a.Parent), Cap: a.Cap, Suspended: a.Suspended, Active: standing.Active,
		RegisteredBy: a.RegisteredBy, RegisteredAt: a.RegisteredAt,
	}
}

// orNull is a text that null stands for when it is empty.
func orNull(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// registerBody registers an actor. The levels are plain integers here: what they
// may be is for the command to say.
type registerBody struct {
	ID             string           `json:"id" doc:"[a-z0-9][a-z0-9._-]{0,63}"`
	Kind           events.ActorKind `json:"kind" enum:"human,agent,machine"`
	AuthorityLevel *int             `json:"authority_level,omitzero" doc:"0 to 100; may be left out with a parent, whose level it then is." nullable:"false"`
	Scopes         []string         `json:"scopes,omitzero"`
	Parent         string           `json:"parent,omitzero" doc:"The actor that it acts under."`
	Cap            *int             `json:"cap,omitzero" doc:"0 to 100: its level is never above." nullable:"false"`
}

func (b *registerBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	return refuseNull(raw, "authority_level", "cap")
}

// levelIn is a level as a caller writes it. What is no level stays none.
func levelIn(n *int) *events.Level {
	if n == nil {
		return nil
	}
	l := events.Level(*n)
	return &l
}

type registerReply struct {
	Actor   actorReply `json:"actor"`
	Capped  bool       `json:"capped" doc:"It got less than was asked for."`
	Reason  *string    `json:"reason" doc:"Why it was capped."`
	Token   *string    `json:"token" doc:"Its first token, shown this once: null when the request is repeated."`
	Receipt receipt    `json:"receipt"`
}

func (c *call) registerActor(in registerBody) (registerReply, error) {
	res, err := c.ledger.RegisterActor(c.ctx(), c.caller, commands.RegisterActor{
		ID: in.ID, Kind: in.Kind, AuthorityLevel: levelIn(in.AuthorityLevel), Scopes: in.Scopes, Parent: in.Parent, Cap: levelIn(in.Cap),
	})
	e, rec, err := recorded[events.ActorRegistered](res, err)
	if err != nil {
		return registerReply{}, err
	}
	return registerReply{
		Actor: actorReply{
			ID: e.ID, Kind: e.Type, AuthorityLevel: e.AuthorityLevel, EffectiveLevel: e.EffectiveLevel, Scopes: slices.Sorted(slices.Values(e.Scopes)),
			Parent: orNull(e.Parent), Cap: e.Cap, Active: true, RegisteredBy: rec.Header.Actor, RegisteredAt: rec.Header.Time,
		},
		Capped: e.Capped, Reason: orNull(e.Reason), Token: orNull(res.Secret), Receipt: receiptOf(rec),
	}, nil
}

func (c *call) listActors() (list[actorReply], error) {
	out := list[actorReply]{Items: []actorReply{}, Scope: c.scope()}
	p, err := c.page()
	if err != nil {
		return out, err
	}
	auth, err := c.authority()
	if err != nil {
		return out, err
	}
	// In the order of registration, which never changes: a cursor is a count.
	all := auth.Actors()
	first := int(min(p.After, events.Position(len(all))))
	last := min(first+p.Limit, len(all))
	for _, a := range all[first:last] {
		out.Items = append(out.Items, actorAt(auth, a))
	}
	out.NextCursor = cursor(last < len(all), events.Position(last))
	return out, nil
}

func (c *call) getActor() (actorReply, error) {
	auth, err := c.authority()
	if err != nil {
		return actorReply{}, err
	}
	a := auth.Actor(c.path("id"))
	if a == nil {
		return actorReply{}, actorNotFound(c.path("id"))
	}
	var tokens []projections.Token
	if c.at == 0 {
		tokens = c.ledger.State().TokensOf(a.ID)
	} else if tokens, err = projections.LoadTokensOf(c.ctx(), c.ledger.Log(), a.ID, c.at); err != nil {
		return actorReply{}, err
	}
	out := actorAt(auth, a)
	out.Tokens = []tokenItem{}
	for _, t := range tokens {
		out.Tokens = append(out.Tokens, tokenOf(t))
	}
	return out, nil
}

func actorNotFound(id string) error {
	return notFound("ACTOR_NOT_FOUND", "no actor %+q; see GET /v1/actors", id)
}

type changeActorBody struct {
	AuthorityLevel *int     `json:"authority_level,omitzero" nullable:"false"`
	AddScopes      []string `json:"add_scopes,omitzero"`
	RemoveScopes   []string `json:"remove_scopes,omitzero"`
	Suspended      *bool    `json:"suspended,omitzero" nullable:"false"`
}

func (b *changeActorBody) decodeBody(_ string, raw []byte) error {
	if err := events.DecodeStrict(raw, b); err != nil {
		return err
	}
	return refuseNull(raw, "authority_level", "suspended")
}

type changeActorReply struct {
	Actor   actorReply `json:"actor" doc:"As the change left it."`
	Receipt *receipt   `json:"receipt" doc:"Of the first event of the change; null if there was nothing to change."`
}

func (c *call) changeActor(in changeActorBody) (out changeActorReply, err error) {
	id := c.path("id")
	res, err := c.ledger.ChangeActor(c.ctx(), c.caller, commands.ChangeActor{
		ID: id, AuthorityLevel: levelIn(in.AuthorityLevel), AddScopes: in.AddScopes, RemoveScopes: in.RemoveScopes, Suspended: in.Suspended,
	})
	if err != nil {
		return out, withReceipt(res, err)
	}
	if err := waitingIn(res); err != nil {
		return out, err
	}
	auth := c.ledger.State().Authority()
	if len(res.Records) > 0 {
		r := receiptOf(res.Records[0])
		out.Receipt = &r
		if auth, err = c.authorityAfter(res.Records); err != nil {
			return out, err
		}
	}
	out.Actor = actorAt(auth, auth.Actor(id))
	return out, nil
}

// authorityAfter is the authority right after an append.
func (c *call) authorityAfter(recs []events.Record) (*projections.Authority, error) {
	newest := recs[0].Header
	for _, r := range recs {
		if r.Header.Stream == events.AuthorityStream {
			newest = r.Header
		}
	}
	if auth := c.ledger.State().Authority(); auth.Revision == newest.Revision {
		return auth, nil
	}
	return projections.LoadAuthority(c.ctx(), c.ledger.Log(), newest.Position)
}

type issueTokenReply struct {
	TokenID string  `json:"token_id"`
	Actor   string  `json:"actor"`
	Token   *string `json:"token" doc:"Shown this once: null when the request is repeated."`
	Receipt receipt `json:"receipt"`
}

func (c *call) issueToken(none) (issueTokenReply, error) {
	res, err := c.ledger.IssueToken(c.ctx(), c.caller, commands.IssueToken{Actor: c.path("id")})
	e, rec, err := recorded[events.TokenIssued](res, err)
	return issueTokenReply{e.TokenID, e.Actor, orNull(res.Secret), receiptOf(rec)}, err
}

type revokeTokenReply struct {
	TokenID string  `json:"token_id"`
	Actor   string  `json:"actor"`
	Receipt receipt `json:"receipt"`
}

func (c *call) revokeToken(none) (revokeTokenReply, error) {
	e, rec, err := recorded[events.TokenRevoked](c.ledger.RevokeToken(c.ctx(), c.caller,
		commands.RevokeToken{Actor: c.path("id"), TokenID: c.path("token_id")}))
	return revokeTokenReply{e.TokenID, e.Actor, receiptOf(rec)}, err
}
