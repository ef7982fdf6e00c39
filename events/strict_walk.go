package events

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// strictWalk goes once through a JSON text. It scans by itself rather than with
// jsontext.Decoder: that one stops at the first duplicate name or broken
// character, and takes twice as long. Nothing is accepted on its word alone, since
// json.Unmarshal reads the same bytes afterwards; of ScanStrict's walk jsontext looks
// at the values, when an event is encoded.
type strictWalk struct {
	data      []byte
	pos       int
	ask       bool                                                // see strictProblems
	take      func(i int, name []byte, value jsontext.Value) bool // nil unless ScanStrict walks
	path      []strictStep
	names     [][]byte // names met in the open objects that are not structs
	problems  []Problem
	more      int // problems beyond MaxProblems
	malformed bool
}

// strictStep is one token of a JSON Pointer.
type strictStep struct {
	name  []byte // nil in an array
	index int
}

// strictWalks keeps walks for reuse, which saves the append path two allocations.
var strictWalks = sync.Pool{New: func() any {
	return &strictWalk{path: make([]strictStep, 0, 8), names: make([][]byte, 0, 2*fewNames)}
}}

// strictProblems walks data, which ought to hold one value of shape s. Only with
// ask are the types that judge for themselves asked: it costs as much as
// decoding, and who finds no other problem decodes anyway.
func strictProblems(data []byte, s *strictShape, ask bool) *StrictError {
	w := strictWalks.Get().(*strictWalk)
	defer w.release()
	w.ask = ask
	w.walk(data, s)
	if len(w.problems) == 0 {
		return nil
	}
	if w.more > 0 {
		w.problems = append(w.problems, Problem{Code: CodeMoreProblems, Detail: fmt.Sprintf("%d more problems are not listed", w.more)})
	}
	return &StrictError{Malformed: w.malformed, Problems: w.problems}
}

// release makes w ready for reuse.
func (w *strictWalk) release() {
	// What names point to, the caller's bytes, must not be kept from the garbage
	// collector.
	clear(w.names[:cap(w.names)])
	clear(w.path[:cap(w.path)])
	*w = strictWalk{path: w.path[:0], names: w.names[:0]}
	strictWalks.Put(w)
}

// walk walks all of data.
func (w *strictWalk) walk(data []byte, s *strictShape) bool {
	w.data = data
	if !w.value(s) {
		return false
	}
	if c, ok := w.peek(); ok {
		w.report(CodeTrailingData, "byte %d is %s: the text must end after its one value", w.pos, showByte(c))
	}
	return true
}

// pointer is the path of the value being walked.
func (w *strictWalk) pointer() string {
	var p jsontext.Pointer
	for _, s := range w.path {
		if len(p) > maxProblemPathBytes {
			break
		}
		if s.name == nil {
			p = p.AppendToken(strconv.Itoa(s.index))
		} else {
			p = p.AppendToken(string(s.name[:min(len(s.name), maxProblemPathBytes+1)]))
		}
	}
	return cut(string(p), maxProblemPathBytes)
}

// report notes a problem with the value being walked.
func (w *strictWalk) report(code, format string, args ...any) {
	switch code {
	case CodeSyntax, CodeTruncated, CodeTrailingData, CodeInvalidUTF8, CodeDuplicateName:
		w.malformed = true
	}
	if len(w.problems) == MaxProblems {
		w.more++
		return
	}
	w.problems = append(w.problems, Problem{w.pointer(), code, cut(fmt.Sprintf(format, args...), maxProblemDetailBytes)})
}

// reportAt notes a problem with the member of that name of the object being
// walked.
func (w *strictWalk) reportAt(name []byte, code, format string, args ...any) {
	w.path = append(w.path, strictStep{name: name})
	w.report(code, format, args...)
	w.path = w.path[:len(w.path)-1]
}

// found is how many problems there are so far.
func (w *strictWalk) found() int { return len(w.problems) + w.more }

// value walks the next value. Like every method of strictWalk that returns a bool
// last, it returns false, with the problem reported, when it cannot go on.
func (w *strictWalk) value(s *strictShape) bool {
	nullable := false
	for s.kind == shapePointer {
		nullable, s = true, s.elem
	}
	c, ok := w.peek()
	if !ok {
		return w.truncated()
	}
	start, before := w.pos, w.found()
	switch token := tokens[c]; token {
	case tokenObject, tokenArray:
		if s.takes&token == 0 {
			w.report(CodeWrongType, "found %s: %s is expected", token, s.want)
			s = verbatimShape
		}
		inner := s
		if s.kind == shapeOwn {
			inner = verbatimShape
		}
		if token == tokenObject {
			ok = w.object(inner)
		} else {
			ok = w.array(inner)
		}
		if !ok {
			return false
		}
	case tokenString:
		raw, _, flaw, ok := w.text()
		switch {
		case !ok:
			return false
		case flaw != "":
			w.report(CodeInvalidUTF8, "the text has %s", flaw)
		case s.takes&tokenString == 0:
			text, _ := jsontext.AppendUnquote(nil, raw)
			if n := jsontext.Value(text); s.kind == shapeInteger && n.Kind() == '0' && n.IsValid() {
				w.report(CodeNotAnInteger, "found the text %s: write an integer without quotes", excerpt(text))
			} else {
				w.report(CodeWrongType, "found the text %s: %s is expected", excerpt(text), s.want)
			}
		}
	case tokenNumber:
		n, integral, ok := w.number()
		if !ok {
			return false
		}
		w.judgeNumber(s, n, integral)
	case tokenBool:
		word := "true"
		if c == 'f' {
			word = "false"
		}
		if !w.literal(word) {
			return false
		}
		if s.takes&tokenBool == 0 {
			w.report(CodeWrongType, "found %s: %s is expected", word, s.want)
		}
	case tokenNull:
		if !w.literal("null") {
			return false
		}
		if !nullable && s.takes&tokenNull == 0 {
			w.report(CodeNull, "null is not allowed here: %s is expected", s.want)
		}
		return true
	default:
		return w.unexpected(c, "a value")
	}
	if w.ask && s.own != nil && w.found() == before {
		w.askType(s.own, w.data[start:w.pos])
	}
	return true
}

// askType lets a type that decodes itself judge raw.
func (w *strictWalk) askType(t reflect.Type, raw []byte) {
	err := json.Unmarshal(raw, reflect.New(t).Interface(), json.RejectUnknownMembers(true))
	if err == nil {
		return
	}
	p := invalid(err)
	w.report(p.Code, "%s", p.Detail)
	if n := len(w.problems); w.more == 0 && p.Path != "" {
		w.problems[n-1].Path = cut(w.problems[n-1].Path+p.Path, maxProblemPathBytes)
	}
}

// judgeNumber reports what is wrong with the number n, of which integral says
// that it has neither fraction nor exponent.
func (w *strictWalk) judgeNumber(s *strictShape, n []byte, integral bool) {
	switch s.kind {
	case shapeInteger:
		if !integral {
			w.report(CodeNotAnInteger, "found %s: write an integer in digits, without fraction or exponent", excerptNumber(n))
			return
		}
		digits, limit := n, s.max
		if n[0] == '-' {
			digits, limit = n[1:], s.min
			if digits[0] == '0' {
				w.report(CodeNotAnInteger, "found -0: write 0")
				return
			}
		}
		if u, err := strconv.ParseUint(string(digits), 10, 64); err == nil && u <= limit {
			return
		}
		low := strconv.FormatUint(s.min, 10)
		if s.min > 0 {
			low = "-" + low
		}
		w.report(CodeOutOfRange, "found %s: an integer from %s to %d is expected", excerptNumber(n), low, s.max)
	case shapeFloat, shapeAny, shapeCanonical:
		if integral && len(n) < 16 {
			return
		}
		if !integral && s.kind != shapeCanonical {
			// Rounding is in the nature of these types.
			if !fitsFloat(n) {
				w.report(CodeOutOfRange, "found %s: a number that a 64-bit float can hold is expected", excerptNumber(n))
			}
			return
		}
		switch form, same, ok := canonicalNumber(n); {
		case !ok:
			w.report(CodeOutOfRange, "found %s: a number that a 64-bit float can hold is expected", excerptNumber(n))
		case !same:
			w.report(CodeOutOfRange, "found %s, which as a 64-bit float is written %s, another number: write that, or a text", excerptNumber(n), form)
		}
	default:
		if s.takes&tokenNumber == 0 {
			w.report(CodeWrongType, "found the number %s: %s is expected", excerptNumber(n), s.want)
		}
	}
}

func (w *strictWalk) array(s *strictShape) bool {
	if !w.enter() {
		return false
	}
	elem := s
	if s.kind == shapeList {
		elem = s.elem
	}
	c, ok := w.peek()
	if ok && c == ']' {
		w.pos++
		return true
	}
	for i := 0; ; i++ {
		w.path = append(w.path, strictStep{index: i})
		ok := w.value(elem)
		w.path = w.path[:len(w.path)-1]
		if !ok {
			return false
		}
		switch c, ok := w.peek(); {
		case !ok:
			return w.truncated()
		case c == ',':
			w.pos++
		case c == ']':
			w.pos++
			return true
		default:
			return w.unexpected(c, "a comma or the end of the array")
		}
	}
}

func (w *strictWalk) object(s *strictShape) bool {
	if !w.enter() {
		return false
	}
	met := strictNames{start: len(w.names)}
	var seen uint64 // bit i: s.fields[i] occurred
	next := 0       // the field after the one met last: mostly the one to come
	handed := w.take != nil && w.outermost()

	c, ok := w.peek()
	if ok && c == '}' {
		w.pos++
		w.missing(s, seen)
		return true
	}
	for {
		c, ok := w.peek()
		if !ok {
			return w.truncated()
		}
		if c != '"' {
			return w.unexpected(c, "a name in double quotes")
		}
		raw, escaped, flaw, ok := w.text()
		if !ok {
			return false
		}
		name := raw[1 : len(raw)-1]
		if escaped || flaw != "" {
			// The error repeats the flaw; the name is needed for paths only.
			name, _ = jsontext.AppendUnquote(make([]byte, 0, len(raw)), raw)
		}
		member := s
		switch {
		case flaw != "":
			w.report(CodeInvalidUTF8, "the name %s has %s", excerpt(name), flaw)
			member = verbatimShape
		case s.kind == shapeStruct:
			i := next
			if i >= len(s.fields) || string(name) != s.fields[i].name {
				var known bool
				if i, known = s.index[string(name)]; !known {
					i = -1
				}
			}
			if i < 0 {
				switch {
				case w.repeated(&met, name):
					w.duplicate(name)
				case !handed:
					w.unknown(s, name)
				}
				member = verbatimShape
				break
			}
			if seen&(1<<i) != 0 {
				w.duplicate(name)
			}
			seen |= 1 << i
			next = i + 1
			member = s.fields[i].shape
		default:
			if w.repeated(&met, name) {
				w.duplicate(name)
			}
			if s.kind == shapeMap {
				member = s.elem
			}
		}
		switch c, ok := w.peek(); {
		case !ok:
			return w.truncated()
		case c != ':':
			return w.unexpected(c, "a colon after the name "+excerpt(name))
		}
		w.pos++
		w.path = append(w.path, strictStep{name: name})
		if handed {
			ok = w.handOut(name, member)
		} else {
			ok = w.value(member)
		}
		w.path = w.path[:len(w.path)-1]
		if !ok {
			return false
		}
		switch c, ok := w.peek(); {
		case !ok:
			return w.truncated()
		case c == ',':
			w.pos++
		case c == '}':
			w.pos++
			w.missing(s, seen)
			w.names = w.names[:met.start]
			return true
		default:
			return w.unexpected(c, "a comma or the end of the object")
		}
	}
}

// outermost reports whether the value being walked is the text's own, or an element of
// its array.
func (w *strictWalk) outermost() bool {
	return len(w.path) == 0 || len(w.path) == 1 && w.path[0].name == nil
}

// handOut walks the value of a member of an outermost object, and hands it to take.
func (w *strictWalk) handOut(name []byte, s *strictShape) bool {
	_, _ = w.peek() // to where the value begins
	start := w.pos
	return w.value(s) && w.found() == 0 && w.take(w.path[0].index, name, w.data[start:w.pos])
}

// enter steps into an object or array.
func (w *strictWalk) enter() bool {
	if len(w.path) >= MaxJSONDepth {
		w.report(CodeTooDeep, "objects and arrays nest deeper than %d levels here: flatten the value", MaxJSONDepth)
		return false
	}
	w.pos++
	return true
}

// missing reports the required fields that did not occur.
func (w *strictWalk) missing(s *strictShape, seen uint64) {
	if s.required&^seen == 0 {
		return
	}
	for i, f := range s.fields {
		if bit := uint64(1) << i; s.required&bit != 0 && seen&bit == 0 {
			w.reportAt([]byte(f.name), CodeRequired, "the field %q is required: add it", f.name)
		}
	}
}

func (w *strictWalk) duplicate(name []byte) {
	w.reportAt(name, CodeDuplicateName, "the name %s occurs more than once in its object: keep one", excerpt(name))
}

// unknown reports a name that no field has, with the spelling that was probably
// meant.
func (w *strictWalk) unknown(s *strictShape, name []byte) {
	if len(w.problems) == MaxProblems {
		w.more++
		return
	}
	for _, f := range s.fields {
		if strings.EqualFold(string(name), f.name) {
			w.reportAt(name, CodeCaseVariant, "the name %s is written %q", excerpt(name), f.name)
			return
		}
	}
	joined := separators.Replace(string(name))
	for _, f := range s.fields {
		if strings.EqualFold(joined, separators.Replace(f.name)) {
			w.reportAt(name, CodeUnknownField, "there is no field %s: did you mean %q?", excerpt(name), f.name)
			return
		}
	}
	w.reportAt(name, CodeUnknownField, "there is no field %s: %s", excerpt(name), s.known)
}

var separators = strings.NewReplacer("_", "", "-", "")

// strictNames are the names met in one object that is not a struct, for finding
// those that repeat: few lie on the walk's stack, many go in a map.
type strictNames struct {
	start int // in strictWalk.names
	many  map[string]struct{}
}

// fewNames are faster compared one by one than hashed.
const fewNames = 16

func (w *strictWalk) repeated(met *strictNames, name []byte) bool {
	if met.many != nil {
		n := len(met.many)
		met.many[string(name)] = struct{}{}
		return len(met.many) == n
	}
	few := w.names[met.start:]
	for _, other := range few {
		if string(other) == string(name) {
			return true
		}
	}
	if len(few) < fewNames {
		w.names = append(w.names, name)
		return false
	}
	met.many = map[string]struct{}{string(name): {}}
	for _, other := range few {
		met.many[string(other)] = struct{}{}
	}
	return false
}
