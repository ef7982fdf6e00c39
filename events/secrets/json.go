package secrets

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
)

// JSONFinding is a secret in a JSON value.
type JSONFinding struct {
	Rule string
	// Path is the JSON Pointer of the text that holds it. If a name holds it, it is
	// that of the object, since a path with this name would tell it: InName is true.
	Path   jsontext.Pointer
	InName bool
}

// FindInJSON returns the secrets in the texts and names of raw, a valid JSON value:
// those that a text shows alone, and those that the name before it gives away. Each
// place is told once for each rule.
func FindInJSON(raw jsontext.Value) []JSONFinding {
	// Mostly there is none, and no text is written with escapes that could hide one.
	found, _ := find([]byte(raw))
	escaped := bytes.IndexByte(raw, '\\') >= 0
	if len(found) == 0 && !escaped {
		return nil
	}
	var out []JSONFinding
	add := func(f JSONFinding) {
		f.Path = tellable(f.Path)
		for _, x := range out {
			if x == f {
				return
			}
		}
		out = append(out, f)
	}
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true))
	name := ""
	for {
		kind := d.PeekKind()
		from := int(d.InputOffset())
		token, err := d.ReadToken()
		if err != nil {
			return out // the end
		}
		if kind != jsontext.KindString {
			if kind == jsontext.KindNumber { // of digits only, it can be one to its name
				addWithin(add, found, from, int(d.InputOffset()), JSONFinding{Path: d.StackPointer()})
			}
			continue
		}
		place := JSONFinding{Path: d.StackPointer()}
		holder, length := d.StackIndex(d.StackDepth())
		isName := holder == jsontext.KindBeginObject && length%2 == 1
		if isName {
			place = JSONFinding{Path: place.Path.Parent(), InName: true}
		}
		addWithin(add, found, from, int(d.InputOffset()), place)
		text := token.String()
		if escaped && bytes.IndexByte(raw[from:d.InputOffset()], '\\') >= 0 {
			for _, f := range Find(text) {
				place.Rule = f.Rule
				add(place)
			}
			if holder == jsontext.KindBeginObject && !isName && !strings.Contains(text, `"`) {
				for _, f := range Find(`"` + name + `": "` + text + `"`) {
					place.Rule = f.Rule
					add(place)
				}
			}
		}
		if isName {
			name = text
		}
	}
}

// tellable is a path as far as no name in it holds a secret.
func tellable(p jsontext.Pointer) jsontext.Pointer {
	told := jsontext.Pointer("")
	for name := range p.Tokens() {
		if len(Find(name)) > 0 {
			break
		}
		told = told.AppendToken(name)
	}
	return told
}

// addWithin adds the findings that lie in raw[from:to].
func addWithin(add func(JSONFinding), found []Finding, from, to int, place JSONFinding) {
	for _, f := range found {
		if f.Start < to && f.End > from {
			place.Rule = f.Rule
			add(place)
		}
	}
}
