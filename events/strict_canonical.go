package events

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
)

// Canonical returns the form of RFC 8785 (JCS) of the one JSON value in data:
// members sorted, no white space, one spelling for each text and number. It
// returns a *StrictError for what DecodeStrict calls malformed or too deep, and
// for numbers whose decimal value the form would change, since it knows 64-bit
// floats only: 9007199254740993, 1e400, 1e-400, 0.10000000000000001. So values have
// one form exactly when they are equal: same names, same texts, same order of
// elements, and numbers equal as decimals (1, 1.0 and 1e0 are; 0 and -0 are).
func Canonical(data []byte) ([]byte, error) {
	if err := strictProblems(data, canonicalShape, false); err != nil {
		return nil, err
	}
	form := jsontext.Value(bytes.Clone(data))
	if err := form.Canonicalize(); err != nil {
		return nil, &StrictError{Malformed: true, Problems: []Problem{invalid(err)}}
	}
	return form, nil
}

// CanonicalHash is the SHA-256 of Canonical's form: what an approval is bound to.
func CanonicalHash(data []byte) (Hash, error) {
	form, err := Canonical(data)
	if err != nil {
		return Hash{}, err
	}
	return sha256.Sum256(form), nil
}

// canonicalNumber returns the RFC 8785 form of the JSON number n and whether it
// is the same decimal number. ok is false if n is beyond every 64-bit float.
func canonicalNumber(n []byte) (form []byte, same, ok bool) {
	if !fitsFloat(n) {
		return nil, false, false
	}
	v := jsontext.Value(bytes.Clone(n))
	if err := v.Canonicalize(); err != nil {
		panic(fmt.Sprintf("bug: %s was scanned as a number and is none: %v", n, err))
	}
	return v, bytes.Equal(v, n) || parseDecimal(v) == parseDecimal(n), true
}

func fitsFloat(n []byte) bool {
	_, err := strconv.ParseFloat(string(n), 64)
	return err == nil
}

// decimal is the number 0.digits * 10^exp. Without zeros at either end of the
// digits, two are equal exactly when the numbers are.
type decimal struct {
	neg    bool
	digits string
	exp    int64
}

// parseDecimal reads a JSON number; 0 and -0 are the zero decimal.
func parseDecimal(n []byte) decimal {
	var d decimal
	if n[0] == '-' {
		d.neg, n = true, n[1:]
	}
	if i := bytes.IndexAny(n, "eE"); i >= 0 {
		// Beyond 32 bits ParseInt gives the nearest bound: no float's exponent.
		d.exp, _ = strconv.ParseInt(string(n[i+1:]), 10, 32)
		n = n[:i]
	}
	whole, fraction, _ := bytes.Cut(n, []byte("."))
	digits := append(bytes.Clone(whole), fraction...)
	d.exp += int64(len(whole))
	significant := bytes.TrimLeft(digits, "0")
	d.exp -= int64(len(digits) - len(significant))
	d.digits = string(bytes.TrimRight(significant, "0"))
	if d.digits == "" {
		return decimal{}
	}
	return d
}
