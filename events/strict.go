package events

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

const (
	// MaxJSONDepth is how deep objects and arrays of a caller may nest.
	MaxJSONDepth = 64
	// MaxProblems is how many problems a StrictError lists; one more entry, with
	// CodeMoreProblems, counts the rest.
	MaxProblems = 50

	// A path repeats names that the caller chose, up to this length, so that an
	// answer is never much larger than what it answers.
	maxProblemPathBytes   = 512
	maxProblemDetailBytes = 300
)

// The codes of problems. They are stable: callers branch on them.
const (
	CodeSyntax        = "SYNTAX"
	CodeTruncated     = "TRUNCATED"
	CodeTrailingData  = "TRAILING_DATA"
	CodeInvalidUTF8   = "INVALID_UTF8" // also an escaped half of a surrogate pair
	CodeDuplicateName = "DUPLICATE_NAME"
	CodeTooDeep       = "TOO_DEEP"
	CodeUnknownField  = "UNKNOWN_FIELD"
	CodeCaseVariant   = "CASE_VARIANT"
	CodeRequired      = "REQUIRED"
	CodeNull          = "NULL_NOT_ALLOWED"
	CodeWrongType     = "WRONG_TYPE"
	CodeNotAnInteger  = "NOT_AN_INTEGER"
	CodeOutOfRange    = "OUT_OF_RANGE"
	CodeInvalid       = "INVALID" // the type's own decoder refused the value
	CodeMoreProblems  = "MORE_PROBLEMS"
)

// Problem is one thing wrong with a JSON text.
type Problem struct {
	// Path is the JSON Pointer (RFC 6901) of the value; empty for the whole. A
	// path longer than 512 bytes is cut and ends in "…".
	Path string `json:"path"`
	// Code is one of the Code constants.
	Code string `json:"code"`
	// Detail says for people what was found and what to write instead.
	Detail string `json:"detail"`
}

// StrictError lists everything that is wrong with a JSON text, in the order of
// the text. Syntax errors, truncation and too deep nesting end the list: what
// comes after them cannot be judged.
type StrictError struct {
	// Malformed is true when the text is not JSON at all, by RFC 8259 with
	// unique names in UTF-8; false when it is JSON, and not what was asked for.
	Malformed bool
	Problems  []Problem
}

// Error names the first three problems on one line, and counts the others.
func (e *StrictError) Error() string {
	var b strings.Builder
	if e.Malformed {
		b.WriteString("malformed JSON: ")
	} else {
		b.WriteString("JSON not as required: ")
	}
	for i, p := range e.Problems {
		switch {
		case i == 3:
			least := ""
			if e.Problems[len(e.Problems)-1].Code == CodeMoreProblems {
				least = "at least "
			}
			fmt.Fprintf(&b, "; and %s%d more", least, len(e.Problems)-i)
			return b.String()
		case i > 0:
			b.WriteString("; ")
		}
		if p.Path != "" {
			// Quotes appear only where the path holds what would break the line.
			path := strconv.Quote(p.Path)
			if path[1:len(path)-1] == p.Path {
				path = p.Path
			}
			b.WriteString(path + ": ")
		}
		b.WriteString(p.Detail)
	}
	return b.String()
}

// DecodeStrict decodes the one JSON value that data holds into *v, v being a
// non-nil pointer, and otherwise returns a *StrictError that names every problem.
// It is the door for whatever callers send. Fields of *v that data does not name
// keep their values; after an error *v is unspecified.
//
//   - Names must be spelled exactly, occur once, and belong to a field.
//   - A field is required unless its tag says omitzero or omitempty.
//   - null is taken by pointers, jsontext.Value and any, by nothing else.
//   - An integer is an integer token in the type's range: not 50.0, "50", 5e1, -0.
//   - A number for float64 or any must be one that float64 holds; an integer token
//     must come out of it as the same integer.
//   - jsontext.Value and any take whatever is JSON, names that differ in case
//     only included; the former keeps its bytes.
//   - Types with an UnmarshalText, UnmarshalJSON or UnmarshalJSONFrom method judge
//     their own values. Level and Rule are the exception: their methods are
//     lenient, for old logs, and here they are held to their Go types and Level
//     to 0..100.
//
// It panics if v's type is one that no JSON can be held to: see shapeOf.
func DecodeStrict(data []byte, v any) error {
	t := reflect.TypeOf(v)
	if t == nil || t.Kind() != reflect.Pointer || reflect.ValueOf(v).IsNil() {
		panic(fmt.Sprintf("bug: DecodeStrict into %T, not into a pointer", v))
	}
	s := shapeOf(t.Elem())
	var err error
	if strictProblems(data, s, false) == nil {
		if err = json.Unmarshal(data, v, json.RejectUnknownMembers(true)); err == nil {
			return nil
		}
	}
	// Now that the value is refused, the types that judge their own values are
	// asked too, so that one answer names everything.
	if all := strictProblems(data, s, true); all != nil {
		return all
	}
	return &StrictError{Problems: []Problem{invalid(err)}}
}

// ScanStrict holds data to T, a struct or a slice of structs, as DecodeStrict does, but
// has take set the fields: it is handed each member of each struct, in the order of the
// text, i being the index in the slice and value the member's bytes in data. So what is
// decoded all the time is decoded in one pass and without reflection.
//
// Members that T has no field for are handed out too, with any value: take judges
// them, and the values of types that judge their own. ScanStrict returns false when take
// does, or something else is wrong with data, which DecodeStrict names; some members
// were handed out then.
func ScanStrict[T any](data []byte, take func(i int, name []byte, value jsontext.Value) bool) bool {
	w := strictWalks.Get().(*strictWalk)
	defer w.release()
	w.take = take
	return w.walk(data, shapeOf(reflect.TypeFor[T]())) && w.found() == 0
}

// invalid makes a problem of an error of the json package, which mostly wraps
// the words of a type's own decoder.
func invalid(err error) Problem {
	p := Problem{Code: CodeInvalid}
	var syntactic *jsontext.SyntacticError
	var semantic *json.SemanticError
	switch {
	case errors.As(err, &semantic):
		p.Path = cut(string(semantic.JSONPointer), maxProblemPathBytes)
		err = semantic.Err
		if err == nil {
			err = fmt.Errorf("a JSON %v does not belong here", semantic.JSONKind)
		}
	case errors.As(err, &syntactic):
		p.Path = cut(string(syntactic.JSONPointer), maxProblemPathBytes)
	}
	p.Detail = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return utf8.RuneError
		}
		return r
	}, cut(err.Error(), maxProblemDetailBytes))
	return p
}

// excerpt quotes the beginning of a text that a caller wrote, on one line.
func excerpt(text []byte) string { return strconv.Quote(excerptNumber(text)) }

// excerptNumber is the beginning of a number, as it was written.
func excerptNumber(n []byte) string {
	const limit = 64
	return cut(string(n[:min(len(n), limit+1)]), limit)
}

// cut shortens s to at most n bytes, an ellipsis included, and replaces what is
// not UTF-8.
func cut(s string, n int) string {
	if len(s) > n {
		const ellipsis = "…"
		n -= len(ellipsis)
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n] + ellipsis
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
