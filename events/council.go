package events

// CouncilMember is one of the electorate, with the weight frozen for it and
// the inputs that anyone can recompute it from.
type CouncilMember struct {
	Actor      string `json:"actor"`
	Role       string `json:"role"`
	Level      Level  `json:"level"`
	Reputation int    `json:"reputation"`
	Weight     int    `json:"weight"`
}

// Fraction is a threshold as a fraction of integers.
type Fraction struct {
	Num int `json:"num"`
	Den int `json:"den"`
}

// CouncilConvened freezes the electorate of a council.
type CouncilConvened struct {
	CouncilID string          `json:"council_id"`
	Topic     string          `json:"topic"`
	Proposal  string          `json:"proposal"`
	Members   []CouncilMember `json:"members"`
	Phases    []string        `json:"phases"`
	Quorum    Fraction        `json:"quorum"`
	Threshold Fraction        `json:"threshold"`
	Permit    Permit          `json:"permit"`
}

// CouncilPhaseOpened moves a council to its next phase; none is skipped.
type CouncilPhaseOpened struct {
	Phase string `json:"phase"`
}

// ArgumentMade is one argument, kept with the decision whichever way it went.
type ArgumentMade struct {
	Topic  string `json:"topic"`
	Side   string `json:"side"`
	Text   string `json:"text"`
	Permit Permit `json:"permit"`
}

// VoteCast is a vote, sealed until the vote closes. A second one by the same
// member replaces the first and keeps it.
type VoteCast struct {
	Vote   string `json:"vote"`
	Reason string `json:"reason,omitzero"`
	Permit Permit `json:"permit"`
}

// VoteRefused is a vote that is kept and not counted.
type VoteRefused struct {
	Voter      string     `json:"voter"`
	Vote       string     `json:"vote"`
	ReasonCode ReasonCode `json:"reason_code"`
}

// MemberRecused takes a member out: the one whose action is judged.
type MemberRecused struct {
	Member string `json:"member"`
	Reason string `json:"reason"`
}

// CouncilTally counts heads or weights.
type CouncilTally struct {
	For      int `json:"for"`
	Against  int `json:"against"`
	Abstain  int `json:"abstain"`
	Eligible int `json:"eligible"`
}

// CouncilDecided ends a council.
type CouncilDecided struct {
	Passed    bool         `json:"passed"`
	Headcount CouncilTally `json:"headcount"`
	Weight    CouncilTally `json:"weight"`
	Reason    string       `json:"reason"`
}

func (CouncilConvened) Kind() Kind    { return "council.convened" }
func (CouncilPhaseOpened) Kind() Kind { return "council.phase_opened" }
func (ArgumentMade) Kind() Kind       { return "argument.made" }
func (VoteCast) Kind() Kind           { return "vote.cast" }
func (VoteRefused) Kind() Kind        { return "vote.refused" }
func (MemberRecused) Kind() Kind      { return "member.recused" }
func (CouncilDecided) Kind() Kind     { return "council.decided" }
