package relay

import (
	"net/http"
	"slices"
	"time"

	"fleetledger/commands"
	"fleetledger/commands/gate"
	"fleetledger/events"
	"fleetledger/projections"
)

// ruleBody is a rule to write. What it holds is judged by gate.ParseRule.
type ruleBody struct {
	Action              string        `json:"action" doc:"A name, or a prefix \"a.*\", which matches a.x and a.x.y but not a."`
	MinLevel            events.Level  `json:"min_level" minimum:"0" maximum:"100"`
	MatchingExemptLevel *events.Level `json:"matching_exempt_level,omitzero" nullable:"true" doc:"From this level on the scope is not asked for; min_level still is."`
	Scope               *string       `json:"scope,omitzero" nullable:"true" doc:"Only its members are allowed at once."`
	Why                 *string       `json:"why,omitzero" nullable:"true" doc:"What it is for, for people."`

	rule events.Rule
}

var malformedCodes = []string{events.CodeSyntax, events.CodeTruncated, events.CodeTrailingData, events.CodeInvalidUTF8, events.CodeDuplicateName}

func (b *ruleBody) decodeBody(_ string, raw []byte) error {
	rule, problems := gate.ParseRule(raw)
	if len(problems) == 0 {
		b.rule = rule
		return nil
	}
	if slices.ContainsFunc(problems, func(p events.Problem) bool { return slices.Contains(malformedCodes, p.Code) }) {
		return &events.StrictError{Malformed: true, Problems: problems}
	}
	return &problem{status: http.StatusUnprocessableEntity, code: "RULE_MALFORMED",
		detail: "the rule is malformed: it would deny everything that it covers", facts: facts{"problems": problems}}
}

type writeRuleReply struct {
	RuleID  string      `json:"rule_id"`
	Rule    events.Rule `json:"rule"`
	Receipt receipt     `json:"receipt"`
}

func (c *call) writeRule(in ruleBody) (writeRuleReply, error) {
	e, rec, err := recorded[events.RuleWritten](c.ledger.WriteRule(c.ctx(), c.caller, commands.WriteRule{Rule: in.rule}))
	return writeRuleReply{e.RuleID, e.Rule, receiptOf(rec)}, err
}

type ruleItem struct {
	RuleID    string          `json:"rule_id"`
	Rule      events.Rule     `json:"rule"`
	WrittenBy string          `json:"written_by"`
	WrittenAt time.Time       `json:"written_at"`
	Position  events.Position `json:"position"`
}

func (c *call) listRules() (list[ruleItem], error) {
	out := list[ruleItem]{Items: []ruleItem{}, Scope: c.scope()}
	p, err := c.page()
	if err != nil {
		return out, err
	}
	auth, err := c.authority()
	if err != nil {
		return out, err
	}
	// In the order of evaluation, which is that of their positions.
	first := slices.IndexFunc(auth.Rules, func(r projections.Rule) bool { return r.Position > p.After })
	if first < 0 {
		return out, nil
	}
	last := min(first+p.Limit, len(auth.Rules))
	for _, r := range auth.Rules[first:last] {
		out.Items = append(out.Items, ruleItem{r.ID, r.Rule, r.WrittenBy, r.WrittenAt, r.Position})
	}
	out.NextCursor = cursor(last < len(auth.Rules), auth.Rules[last-1].Position)
	return out, nil
}

type retireRuleReply struct {
	RuleID  string  `json:"rule_id"`
	Receipt receipt `json:"receipt"`
}

func (c *call) retireRule(none) (retireRuleReply, error) {
	e, rec, err := recorded[events.RuleRetired](c.ledger.RetireRule(c.ctx(), c.caller, commands.RetireRule{RuleID: c.path("id")}))
	return retireRuleReply{e.RuleID, receiptOf(rec)}, err
}
