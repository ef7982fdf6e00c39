package events

import (
	"encoding"
	"fmt"
	"math"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

type shapeKind uint8

const (
	shapeVerbatim  shapeKind = iota // jsontext.Value, and whatever is skipped
	shapeAny                        // any
	shapeCanonical                  // what Canonical takes
	shapeOwn                        // decided by strictShape.own
	shapePointer
	shapeStruct
	shapeMap
	shapeList
	shapeString
	shapeBool
	shapeInteger
	shapeFloat
)

// strictShape is what JSON a Go type takes. Shapes are shared and never changed
// once shapeOf has returned them.
type strictShape struct {
	kind  shapeKind
	takes strictToken
	// want completes "... is expected".
	want string
	// elem is what a pointer, map or list holds.
	elem *strictShape
	// own is the type, if it decodes its values itself.
	own reflect.Type
	// An integer lies between -min and max.
	min, max uint64

	// Of a struct: at most 64 fields, so that a set of them is one word.
	fields   []strictField
	index    map[string]int
	required uint64
	known    string // the names of the fields, for a person
}

type strictField struct {
	name  string
	shape *strictShape
}

var (
	verbatimShape  = &strictShape{kind: shapeVerbatim, takes: tokenAny}
	anyShape       = &strictShape{kind: shapeAny, takes: tokenAny}
	canonicalShape = &strictShape{kind: shapeCanonical, takes: tokenAny}
)

// shapes holds the *strictShape of each reflect.Type met so far.
var shapes sync.Map

// shapeOf returns t's shape. It panics if no JSON can be held to t: channels,
// functions, non-empty interfaces, complex numbers, float32, time.Duration (put
// the unit in an integer's name instead), arrays other than of bytes, maps
// whose keys are not plain strings; and structs with more than 64 fields, two
// fields of one name, or tag options other than omitzero, omitempty and embed (of
// a struct).
func shapeOf(t reflect.Type) *strictShape {
	if s, ok := shapes.Load(t); ok {
		return s.(*strictShape)
	}
	b := shapeBuilder{}
	b.build(t)
	// Only now are all shapes complete: a type may hold itself.
	for t, s := range b {
		shapes.LoadOrStore(t, s)
	}
	return b[t]
}

// shapeBuilder holds the shapes being built, by their types.
type shapeBuilder map[reflect.Type]*strictShape

var (
	textUnmarshaler     = reflect.TypeFor[encoding.TextUnmarshaler]()
	jsonUnmarshaler     = reflect.TypeFor[json.Unmarshaler]()
	jsonUnmarshalerFrom = reflect.TypeFor[json.UnmarshalerFrom]()
)

func (b shapeBuilder) build(t reflect.Type) *strictShape {
	if s, ok := b[t]; ok {
		return s
	}
	s := new(strictShape)
	b[t] = s
	kind, addressed := t.Kind(), reflect.PointerTo(t)
	switch {
	case t == reflect.TypeFor[jsontext.Value]():
		*s = *verbatimShape
	case t == reflect.TypeFor[Level]():
		*s = strictShape{kind: shapeInteger, takes: tokenNumber, max: 100, want: "an integer from 0 to 100"}
	case t == reflect.TypeFor[Rule]():
		b.structure(s, t)
	case t == reflect.TypeFor[time.Time]():
		*s = strictShape{kind: shapeOwn, takes: tokenString, own: t, want: "a time in RFC 3339, as text,"}
	case t == reflect.TypeFor[time.Duration]():
		panic(fmt.Sprintf("bug: JSON cannot be held to %v", t))
	case kind == reflect.Pointer:
		*s = strictShape{kind: shapePointer, elem: b.build(t.Elem())}
	case addressed.Implements(jsonUnmarshalerFrom), addressed.Implements(jsonUnmarshaler):
		*s = strictShape{kind: shapeOwn, takes: tokenAny &^ tokenNull, own: t, want: "a value"}
	case addressed.Implements(textUnmarshaler):
		*s = strictShape{kind: shapeOwn, takes: tokenString, own: t, want: "a text"}
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8, kind == reflect.Array && t.Elem().Kind() == reflect.Uint8:
		*s = strictShape{kind: shapeOwn, takes: tokenString, own: t, want: "a text in base 64"}
	case kind == reflect.Struct:
		b.structure(s, t)
	case kind == reflect.Map:
		k := t.Key()
		if k.Kind() != reflect.String || reflect.PointerTo(k).Implements(textUnmarshaler) || reflect.PointerTo(k).Implements(jsonUnmarshaler) || reflect.PointerTo(k).Implements(jsonUnmarshalerFrom) {
			panic(fmt.Sprintf("bug: JSON cannot be held to %v: its keys are not plain strings", t))
		}
		*s = strictShape{kind: shapeMap, takes: tokenObject, want: "an object"}
		s.elem = b.build(t.Elem())
	case kind == reflect.Slice:
		*s = strictShape{kind: shapeList, takes: tokenArray, want: "an array"}
		s.elem = b.build(t.Elem())
	case kind == reflect.String:
		*s = strictShape{kind: shapeString, takes: tokenString, want: "a text"}
	case kind == reflect.Bool:
		*s = strictShape{kind: shapeBool, takes: tokenBool, want: "true or false"}
	case kind >= reflect.Int && kind <= reflect.Int64:
		*s = strictShape{kind: shapeInteger, takes: tokenNumber, min: 1 << (t.Bits() - 1), max: 1<<(t.Bits()-1) - 1, want: "an integer"}
	case kind >= reflect.Uint && kind <= reflect.Uint64:
		*s = strictShape{kind: shapeInteger, takes: tokenNumber, max: math.MaxUint64 >> (64 - t.Bits()), want: "an integer"}
	case kind == reflect.Float64:
		*s = strictShape{kind: shapeFloat, takes: tokenNumber, want: "a number"}
	case kind == reflect.Interface && t.NumMethod() == 0:
		*s = *anyShape
	default:
		panic(fmt.Sprintf("bug: JSON cannot be held to %v", t))
	}
	return s
}

func (b shapeBuilder) structure(s *strictShape, t reflect.Type) {
	*s = strictShape{kind: shapeStruct, takes: tokenObject, index: make(map[string]int), want: "an object"}
	b.addFields(s, t, map[reflect.Type]bool{t: true})
	switch names := make([]string, 0, len(s.fields)); {
	case len(s.fields) == 0:
		s.known = "no field is known here"
	default:
		for _, f := range s.fields {
			names = append(names, f.name)
		}
		s.known = "the fields are " + strings.Join(names, ", ")
	}
}

// addFields adds the fields of t, and of the structs embedded in it, to s.
// embedded guards against a struct that embeds itself.
func (b shapeBuilder) addFields(s *strictShape, t reflect.Type, embedded map[reflect.Type]bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag := f.Tag.Get("json")
		if tag == "-" || !f.IsExported() && !f.Anonymous {
			continue
		}
		name, options, _ := strings.Cut(tag, ",")
		optional, embed := false, f.Anonymous && name == ""
		for option := range strings.SplitSeq(options, ",") {
			switch option {
			case "omitzero", "omitempty":
				optional = true
			case "embed":
				embed = true
			case "":
			default:
				panic(fmt.Sprintf("bug: JSON cannot be held to field %s of %v: tag option %q", f.Name, t, option))
			}
		}
		if embed {
			inner := f.Type
			if inner.Kind() == reflect.Pointer {
				inner = inner.Elem()
			}
			if inner.Kind() != reflect.Struct || embedded[inner] {
				panic(fmt.Sprintf("bug: JSON cannot be held to field %s of %v: %v is embedded", f.Name, t, inner))
			}
			embedded[inner] = true
			b.addFields(s, inner, embedded)
			continue
		}
		if name == "" {
			name = f.Name
		}
		if _, twice := s.index[name]; twice || len(s.fields) == 64 || strings.HasPrefix(name, "'") {
			panic(fmt.Sprintf("bug: JSON cannot be held to field %s of %v: name %q occurs twice, is quoted, or is the 65th", f.Name, t, name))
		}
		n := len(s.fields)
		s.index[name] = n
		if !optional {
			s.required |= 1 << n
		}
		s.fields = append(s.fields, strictField{name: name, shape: b.build(f.Type)})
	}
}
