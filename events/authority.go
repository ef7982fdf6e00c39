package events

import (
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Verdict is what a gate says.
type Verdict string

const (
	Allow         Verdict = "allow"
	NeedsApproval Verdict = "needs_approval"
	Deny          Verdict = "deny"
)

// ReasonCode says why, for programs.
type ReasonCode string

const (
	ReasonExempt         ReasonCode = "EXEMPT"
	ReasonMeetsMinimum   ReasonCode = "MEETS_MINIMUM"
	ReasonOutOfScope     ReasonCode = "OUT_OF_SCOPE"
	ReasonBelowMinimum   ReasonCode = "BELOW_MINIMUM"
	ReasonRuleMalformed  ReasonCode = "RULE_MALFORMED"
	ReasonLevelUnusable  ReasonCode = "ACTOR_LEVEL_UNUSABLE"
	ReasonNoRule         ReasonCode = "NO_RULE"
	ReasonActorNotActive ReasonCode = "ACTOR_NOT_ACTIVE"
)

// Evaluated is one rule as it was evaluated for one actor. RuleID is nil for
// the two verdicts that no rule gives: NO_RULE and ACTOR_NOT_ACTIVE.
type Evaluated struct {
	RuleID     *string    `json:"rule_id"`
	Verdict    Verdict    `json:"verdict"`
	ReasonCode ReasonCode `json:"reason_code"`
	Reason     string     `json:"reason"`
	Exempt     bool       `json:"exempt"`
}

// Decision is what a gate decided, with all that a third party needs to decide
// it again.
type Decision struct {
	Verdict Verdict `json:"verdict"`
	Action  string  `json:"action"`
	Actor   string  `json:"actor"`
	// Level is the actor's effective level at the time.
	Level  Level    `json:"level"`
	Scopes []string `json:"scopes"`
	// Evaluated are the rules looked at, in order, the decisive one last.
	Evaluated []Evaluated `json:"evaluated"`
	// Decisive is the one rule that decided; nil when allowed.
	Decisive *Evaluated `json:"decisive"`
	// AuthorityRevision is the revision of the authority stream it was decided at.
	AuthorityRevision Revision `json:"authority_revision"`
}

// ActorKind says what an actor is.
type ActorKind string

const (
	Human   ActorKind = "human"
	Agent   ActorKind = "agent"
	Machine ActorKind = "machine"
)

// Permit is what every command records about its gate: the decision and, if
// it stood on an approval, which one was spent for it.
type Permit struct {
	Decision   Decision `json:"decision"`
	ApprovalID string   `json:"approval_id,omitzero"`
}

// Encode returns p as it is in the payload of an event.
func (p Permit) Encode() (jsontext.Value, error) { return json.Marshal(p, json.Deterministic(true)) }

// FleetFounded starts a log. What it founds (root, rules, settings) follows in
// the same append.
type FleetFounded struct {
	Fleet string `json:"fleet"`
	// LogID is random: two fleets of the same name are told apart by it.
	LogID string `json:"log_id"`
}

// ActorRegistered adds an actor.
type ActorRegistered struct {
	ID   string    `json:"id"`
	Type ActorKind `json:"kind"`
	// AuthorityLevel is the level given, after reduction to parent and cap.
	AuthorityLevel Level `json:"authority_level"`
	// AskedLevel is what the caller asked for; nil if nothing was asked.
	AskedLevel *Level   `json:"asked_level,omitzero"`
	Scopes     []string `json:"scopes"`
	Parent     string   `json:"parent,omitzero"`
	Cap        *Level   `json:"cap,omitzero"`
	// EffectiveLevel is the effective level at registration.
	EffectiveLevel Level  `json:"effective_level"`
	Capped         bool   `json:"capped"`
	Reason         string `json:"reason,omitzero"`
	// Permit is nil for root, which no gate let in.
	Permit *Permit `json:"permit,omitzero"`
}

// ActorLevelSet changes an actor's own level.
type ActorLevelSet struct {
	ID             string `json:"id"`
	AuthorityLevel Level  `json:"authority_level"`
	Permit         Permit `json:"permit"`
}

// ActorScopesChanged adds and removes memberships.
type ActorScopesChanged struct {
	ID      string   `json:"id"`
	Added   []string `json:"added"`
	Removed []string `json:"removed"`
	Permit  Permit   `json:"permit"`
}

// ActorSuspended denies an actor, and with it all its descendants.
type ActorSuspended struct {
	ID     string `json:"id"`
	Permit Permit `json:"permit"`
}

// ActorReinstated ends a suspension.
type ActorReinstated struct {
	ID     string `json:"id"`
	Permit Permit `json:"permit"`
}

// RuleWritten adds a rule at the end of the list.
type RuleWritten struct {
	RuleID string `json:"rule_id"`
	Rule   Rule   `json:"rule"`
	// Permit is nil for the founding rules.
	Permit *Permit `json:"permit,omitzero"`
}

// RuleRetired takes a rule out of the list. It stays in the log.
type RuleRetired struct {
	RuleID string `json:"rule_id"`
	Permit Permit `json:"permit"`
}

// TokenIssued makes a bearer token known by its hash; the token itself is shown
// once and stored nowhere.
type TokenIssued struct {
	TokenID string `json:"token_id"`
	Actor   string `json:"actor"`
	// TokenHash is the SHA-256 of the token's text.
	TokenHash Hash `json:"token_hash"`
	// Use is empty for a bearer token.
	Use TokenUse `json:"use,omitzero"`
	// ExpiresAt ends a pairing code that was not redeemed.
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	Permit    *Permit   `json:"permit,omitzero"`
}

// TokenUse says what a token that is no bearer token is good for.
type TokenUse string

// PairingToken is the use of a pairing code: to pair one device key, once.
const PairingToken TokenUse = "pairing"

// TokenRevoked ends a token.
type TokenRevoked struct {
	TokenID string  `json:"token_id"`
	Actor   string  `json:"actor"`
	Permit  *Permit `json:"permit,omitzero"`
}

// DevicePaired registers a machine's Ed25519 device key. It uses up the pairing
// code whose token id it names, and which is from then on the id of the device:
// what ends the token (token.revoked) ends the key.
type DevicePaired struct {
	TokenID string `json:"token_id"`
	Actor   string `json:"actor"`
	// PublicKey is the raw key in base64url without padding (RFC 8037 "x").
	PublicKey string `json:"public_key"`
}

// SettingsChanged sets the fleet's settings; absent members keep their value.
type SettingsChanged struct {
	Settings SettingsPatch `json:"settings"`
	// Permit is nil for the founding settings.
	Permit *Permit `json:"permit,omitzero"`
}

// SettingsPatch names the settings to change.
type SettingsPatch struct {
	Output             *string `json:"output,omitzero"`
	SeparationOfDuties *bool   `json:"separation_of_duties,omitzero"`
	HeartbeatSeconds   *int    `json:"heartbeat_s,omitzero"`
	HeartbeatsMissed   *int    `json:"heartbeats_missed,omitzero"`
	GraceSeconds       *int    `json:"grace_s,omitzero"`
	ApprovalSeconds    *int    `json:"approval_expires_s,omitzero"`

	ApprovalsPerMinute      *int `json:"approvals_per_minute,omitzero"`
	ApprovalsPending        *int `json:"approvals_pending,omitzero"`
	FleetApprovalsPerMinute *int `json:"fleet_approvals_per_minute,omitzero"`
	FleetApprovalsPending   *int `json:"fleet_approvals_pending,omitzero"`
	DenialsPerMinute        *int `json:"denials_per_minute,omitzero"`

	PayloadBytes *int `json:"payload_bytes,omitzero"`
	BatchEvents  *int `json:"batch_events,omitzero"`
	BatchBytes   *int `json:"batch_bytes,omitzero"`
	ArgvItems    *int `json:"argv_items,omitzero"`
	ArgvBytes    *int `json:"argv_bytes,omitzero"`
	TailBytes    *int `json:"tail_bytes,omitzero"`
}

func (FleetFounded) Kind() Kind       { return "fleet.founded" }
func (ActorRegistered) Kind() Kind    { return "actor.registered" }
func (ActorLevelSet) Kind() Kind      { return "actor.level_set" }
func (ActorScopesChanged) Kind() Kind { return "actor.scopes_changed" }
func (ActorSuspended) Kind() Kind     { return "actor.suspended" }
func (ActorReinstated) Kind() Kind    { return "actor.reinstated" }
func (RuleWritten) Kind() Kind        { return "rule.written" }
func (RuleRetired) Kind() Kind        { return "rule.retired" }
func (TokenIssued) Kind() Kind        { return "token.issued" }
func (TokenRevoked) Kind() Kind       { return "token.revoked" }
func (DevicePaired) Kind() Kind       { return "device.paired" }
func (SettingsChanged) Kind() Kind    { return "settings.changed" }
