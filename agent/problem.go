package agent

import (
	"fmt"
	"mime"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Problem is a request that the relay did not carry out: its RFC 9457 document
// as an error.
type Problem struct {
	// Status is the HTTP status, Code the relay's stable code for it; Code is
	// empty if the answer was no problem document.
	Status int
	Code   string
	// Detail is one sentence for a person.
	Detail string
	// Facts are the document's other members, by name.
	Facts map[string]jsontext.Value
	// Raw is the document as it came, nil if there was none.
	Raw jsontext.Value
}

func (p *Problem) Error() string {
	text := p.Detail
	var problems []struct {
		Path   string `json:"path"`
		Detail string `json:"detail"`
	}
	if p.Fact("problems", &problems) {
		var list []string
		for _, q := range problems {
			list = append(list, strings.TrimSpace(q.Path+" "+q.Detail))
		}
		if len(list) > 0 {
			text += ": " + strings.Join(list, "; ")
		}
	}
	return text
}

// Fact decodes the fact of this name into v and reports whether it is there and
// fits.
func (p *Problem) Fact(name string, v any) bool {
	raw, ok := p.Facts[name]
	return ok && json.Unmarshal(raw, v) == nil
}

// FactText is a fact that is a string, empty if it is absent or none.
func (p *Problem) FactText(name string) string {
	var s string
	p.Fact(name, &s)
	return s
}

// temporary reports whether the same request may succeed later, unchanged.
func (p *Problem) temporary() bool {
	switch p.Status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return p.Status >= 500
}

// problemFrom reads the answer to a request that failed.
func problemFrom(resp *http.Response, body []byte) *Problem {
	p := &Problem{Status: resp.StatusCode}
	media, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err == nil && media == "application/problem+json" && p.read(body) == nil {
		return p
	}
	// Something between here and the relay answered, or no relay at all.
	p.Detail = fmt.Sprintf("the server answered %s without a problem document: it may be no fleetledger relay", resp.Status)
	return p
}

func (p *Problem) read(body []byte) error {
	var facts map[string]jsontext.Value
	if err := json.Unmarshal(body, &facts); err != nil {
		return err
	}
	p.Facts, p.Raw = facts, body
	p.Code, p.Detail = p.FactText("code"), p.FactText("detail")
	if p.Detail == "" {
		p.Detail = p.FactText("title")
	}
	for _, name := range []string{"type", "title", "status", "code", "detail", "instance"} {
		delete(p.Facts, name)
	}
	return nil
}
