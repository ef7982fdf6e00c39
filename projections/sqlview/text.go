package sqlview

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"fleetledger/projections"
)

// commandForm is a command line as it is compared: composed (NFC), with single
// spaces.
func commandForm(line string) string {
	return strings.Join(strings.Fields(norm.NFC.String(line)), " ")
}

// commandForms are the ways in which somebody may ask for a command: as one line
// with quotes, as its words, and as the line that a shell was given.
func commandForms(argv []string) []string {
	forms := []string{commandForm(projections.CommandLine(argv))}
	for _, line := range []string{strings.Join(argv, " "), typedLine(argv)} {
		if f := commandForm(line); f != "" && f != forms[0] && f != forms[len(forms)-1] {
			forms = append(forms, f)
		}
	}
	return forms
}

// queryForms are the forms that a pasted command may have been meant as: as it
// stands, as a shell would read it, and both of the line that it gives to a shell.
func queryForms(query string) []string {
	var forms []string
	for line := query; line != ""; {
		forms = append(forms, commandForm(line))
		argv, ok := shellWords(line)
		if !ok {
			break
		}
		forms = append(forms, commandForm(projections.CommandLine(argv)))
		line = typedLine(argv)
	}
	return forms
}

// typedLine is the line that a shell was given, as in sh -c LINE, empty for every
// other command: whoever asks for it pastes it without the sh and its quotes.
func typedLine(argv []string) string {
	if len(argv) != 3 || argv[1] != "-c" && argv[1] != "-lc" {
		return ""
	}
	switch argv[0] {
	case "sh", "bash", "dash", "zsh":
		return argv[2]
	}
	return ""
}

// shellWords splits a simple command into its words as a POSIX shell does. It is
// not ok if a quote is open, or if there is more to the line than words.
func shellWords(line string) (words []string, ok bool) {
	var word strings.Builder
	inWord := false
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t', '\n':
			if inWord {
				words = append(words, word.String())
				word.Reset()
				inWord = false
			}
			continue
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			word.WriteString(line[i+1 : i+1+end])
			i += end + 1
		case '"':
			closed := false
			for i++; i < len(line) && !closed; i++ {
				switch {
				case line[i] == '"':
					closed = true
					i--
				case line[i] == '\\' && i+1 < len(line) && strings.IndexByte("\"\\$`", line[i+1]) >= 0:
					i++
					word.WriteByte(line[i])
				default:
					word.WriteByte(line[i])
				}
			}
			if !closed {
				return nil, false
			}
		case '\\':
			if i+1 == len(line) {
				return nil, false
			}
			i++
			word.WriteByte(line[i])
		case '|', '&', ';', '<', '>', '(', ')':
			return nil, false
		default:
			word.WriteByte(c)
		}
		inWord = true
	}
	if inWord {
		words = append(words, word.String())
	}
	return words, len(words) > 0
}

// hash64 is a hash of texts; equal hashes are compared by the texts.
func hash64(parts ...string) int64 {
	h := sha256.New()
	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}
	return int64(binary.BigEndian.Uint64(h.Sum(nil)))
}

// Marks around a run of a script without spaces: a whole run is a word, a part of
// one a substring. They are letters of no script and no punctuation of commands.
const (
	runBegins = "\u27e6"
	runEnds   = "\u27e7"
)

const (
	// maxToken bounds a token, in bytes; longer ones are cut, here and in queries.
	maxToken = 128
	// maxTokens bounds what is kept of one text.
	maxTokens = 4096
)

// spaceless are the scripts that put no spaces between words.
var spaceless = []*unicode.RangeTable{unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar, unicode.Tibetan, unicode.Bopomofo, unicode.Yi}

// word is a part of a text that stands by itself: its tokens are found beside each
// other or not at all.
type word struct {
	tokens []string
	// spaceless is true for a run of a script without spaces.
	spaceless bool
}

// words cuts a text into words: letters and digits, in lower case and composed;
// each other sign that is no punctuation by itself; and of scripts without spaces
// each letter, as one word together.
func words(text string) []word {
	text = norm.NFC.String(strings.ToLower(norm.NFC.String(text)))
	var out []word
	count := 0
	start := -1 // of the latin word being read
	flush := func(end int) {
		if start >= 0 {
			t := text[start:end]
			if len(t) > maxToken {
				t = t[:maxToken]
				for !utf8.ValidString(t) {
					t = t[:len(t)-1]
				}
			}
			out = append(out, word{tokens: []string{t}})
			count++
		}
		start = -1
	}
	run := false
	for i, r := range text {
		if count >= maxTokens {
			return out
		}
		wordly := unicode.IsLetter(r) || unicode.IsDigit(r) || unicode.IsMark(r) || r == '\u30fc'
		switch {
		case r < utf8.RuneSelf:
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				if start < 0 {
					start = i
				}
			} else {
				flush(i)
			}
			run = false
		case unicode.In(r, spaceless...) && wordly || run && unicode.IsMark(r):
			flush(i)
			if !run {
				out = append(out, word{spaceless: true})
			}
			run = true
			w := &out[len(out)-1]
			w.tokens = append(w.tokens, string(r))
			count++
		case r == '\ufe0f' || r == '\ufe0e' || r == '\u200d' || r == utf8.RuneError:
			flush(i)
			run = false
		case wordly || unicode.IsNumber(r):
			if start < 0 {
				start = i
			}
			run = false
		case unicode.IsSymbol(r):
			flush(i)
			run = false
			out = append(out, word{tokens: []string{string(r)}})
			count++
		default:
			flush(i)
			run = false
		}
	}
	flush(len(text))
	return out
}

// append adds the tokens of w to list, with marks if it is a whole run.
func (w word) append(list []string, whole bool) []string {
	if w.spaceless && whole {
		return append(append(append(list, runBegins), w.tokens...), runEnds)
	}
	return append(list, w.tokens...)
}

// tokensOf is a text as a row of tokens.
func tokensOf(text string) (out []string) {
	for _, w := range words(text) {
		out = w.append(out, true)
	}
	return out
}

// betweenTexts is a token that no text has: nothing is found across it.
const betweenTexts = "\u27e8"

// haystack is what texts say, as a row of tokens with a space around each: what is
// asked for is in them if the needle of its tokens is in it.
func haystack(texts []string, places ...string) string {
	var b strings.Builder
	for i, text := range texts {
		if i > 0 {
			b.WriteString(" " + betweenTexts)
		}
		writeTokens(&b, text)
	}
	for _, p := range places {
		b.WriteByte(' ')
		b.WriteString(p)
	}
	b.WriteByte(' ')
	return b.String()
}

// writeTokens writes the tokens of a text with a space before each.
func writeTokens(b *strings.Builder, text string) {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			for _, t := range tokensOf(text) {
				b.WriteByte(' ')
				b.WriteString(t)
			}
			return
		}
	}
	// What words does, for most texts and in a tenth of the time.
	for i, count := 0, 0; i < len(text) && count < maxTokens; i++ {
		start := i
		for i < len(text) && isASCIIWord(text[i]) {
			i++
		}
		if i == start {
			continue
		}
		count++
		b.WriteByte(' ')
		for _, c := range []byte(text[start:min(i, start+maxToken)]) {
			if c >= 'A' && c <= 'Z' {
				c += 'a' - 'A'
			}
			b.WriteByte(c)
		}
	}
}

func isASCIIWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}

func needle(tokens ...string) string { return " " + strings.Join(tokens, " ") + " " }

// A term is what the full text index has of a text: a token, or two beside each
// other. Of the pairs a phrase is found by, most are rare where its words are not.
type term []string

// indexed is a term as the index has it. The sign between is part of no token.
func (t term) indexed() string { return strings.Join(t, "\u00b7") }

func (t term) needle() string { return needle(t...) }

// termsOf are the terms that a row of tokens is found by: the pairs, or the only one.
func termsOf(tokens []string) (out []term) {
	if len(tokens) == 1 {
		return []term{tokens}
	}
	for i := 1; i < len(tokens); i++ {
		out = append(out, tokens[i-1:i+1])
	}
	return out
}

// indexText is what tried is given of a haystack: each of its terms, once.
func indexText(haystack string) string {
	var b strings.Builder
	b.Grow(3 * len(haystack))
	tokens := strings.Fields(haystack)
	had := make(map[string]bool, 2*len(tokens))
	add := func(t term) {
		text := t.indexed()
		if !had[text] {
			had[text] = true
			b.WriteString(text)
			b.WriteByte(' ')
		}
	}
	for i, t := range tokens {
		switch t {
		case betweenTexts:
			continue
		case runBegins, runEnds:
		default:
			add(term{t})
		}
		if i > 0 && tokens[i-1] != betweenTexts && !strings.HasPrefix(t, placeBegins) {
			add(term{tokens[i-1], t})
		}
	}
	return b.String()
}

// placeBegins begins the tokens of places, and no others.
const placeBegins = "\u27ea"

// machineToken and repoToken stand for where a command ran.
func machineToken(machine string) string {
	return placeBegins + "m" + hex.EncodeToString([]byte(machine))
}

func repoToken(repoKey string) string {
	sum := sha256.Sum256([]byte(repoKey))
	return placeBegins + "r" + hex.EncodeToString(sum[:12])
}

// failed, succeeded and masked are the results of a run.
const (
	resultSucceeded = "succeeded"
	resultFailed    = "failed"
	resultMasked    = "masked"
)

func resultOf(r *projections.Run) string {
	switch {
	case r.Succeeded():
		return resultSucceeded
	case r.ExitedZero():
		return resultMasked
	}
	return resultFailed
}
