package secrets

import "regexp"

// own are the rules that gitleaks has not. What the first group matches is the
// secret.
var own = []struct {
	id       string
	pattern  string
	entropy  float64
	keywords []string
}{
	// The tokens and pairing codes of this ledger: fleet~actor~secret. Whose it was
	// stays readable, for whoever has to revoke it.
	{"fleetledger-token", `~[a-z0-9][a-z0-9._-]{0,63}~([A-Za-z0-9_-]{43}|[a-km-np-z2-9]{26})(?:[^A-Za-z0-9_-]|$)`, 3, []string{"~"}},
	// A private key of which only the end or the beginning is there: the tail of
	// an output begins anywhere.
	{"private-key-end", `((?:\A[A-Za-z0-9+/=]{1,64}` + lineEnd + `)?(?:[A-Za-z0-9+/=]{60,}` + lineEnd + `)*[A-Za-z0-9+/=]{1,76}` + lineEnd + `)` +
		`-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----`, 0, []string{"-----end"}},
	{"private-key-begin", `-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----` + lineEnd + `((?:[A-Za-z0-9+/=]{60,}` + lineEnd + `)*[A-Za-z0-9+/=]{16,})`,
		3, []string{"-----begin"}},
	{"url-password", `[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@'"<>]*:([^\s/:@'"<>]{8,})@[A-Za-z0-9\[]`, 3, []string{"://"}},
}

// lineEnd is that of a file, or of a file in a JSON string.
const lineEnd = `(?:\r?\n|\\n)`

// harmlessValue reports whether a value that only its name makes a secret is
// none: a hash or an id, under a name that does not say more.
func harmlessValue(name, value string) bool {
	if !hashOrID.MatchString(value) {
		return false
	}
	return nameOfHash.MatchString(name) || !nameOfSecret.MatchString(name)
}

var (
	hashOrID     = regexp.MustCompile(`^(?i:[0-9a-f]{40}|[0-9a-f]{64}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})$`)
	nameOfHash   = regexp.MustCompile(`(?i)(?:hash|sha-?\d*|digest|sum|[_. -]ids?|fingerprint|commit|revision)[\s'"]*(?:=|>|:|\|\||\?|,)[\x60'"\s=:>]*$`)
	nameOfSecret = regexp.MustCompile(`(?i)secret|token|passw|cred|api|auth|(?:access|private|encryption|signing|master|session|shared)[ _.-]?key`)
)
