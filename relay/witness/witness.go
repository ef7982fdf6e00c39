// Package witness has witnesses cosign the checkpoints of a log, over HTTP as C2SP
// tlog-witness has it, and records what they cosigned.
//
// A witness remembers of each log the newest checkpoint that it cosigned, and cosigns
// only what extends it. So it tells too, of a log whose directory was rolled back or
// copied, that there was more, or other: while one does, nothing is recorded here.
//
// All of it goes on beside the commits: none waits for a witness.
package witness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"fleetledger/commands"
	"fleetledger/events/seal"
)

// Witness is a witness that is asked: its key, and the address below which it takes
// checkpoints.
type Witness struct {
	Key seal.WitnessKey
	URL string
}

// Parse reads NAME+HASH+KEY@URL.
func Parse(text string) (Witness, error) {
	// A name may hold any @, the base64 of a key none.
	name := strings.IndexByte(text, '+')
	hash := strings.IndexByte(text[name+1:], '+') + name + 1
	at := strings.IndexByte(text[hash+1:], '@') + hash + 1
	if name < 0 || hash <= name || at <= hash {
		return Witness{}, fmt.Errorf("%+q is not of the form NAME+HASH+KEY@URL", text)
	}
	key, err := seal.ParseWitnessKey(text[:at])
	if err != nil {
		return Witness{}, err
	}
	u, err := url.Parse(text[at+1:])
	switch {
	case err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https":
		return Witness{}, fmt.Errorf("%+q is not the address of a witness: it looks like https://witness.example.org", text[at+1:])
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return Witness{}, fmt.Errorf("the address of witness %s has more than a host and a path", key.Name())
	}
	return Witness{key, strings.TrimSuffix(u.String(), "/")}, nil
}

// fault is an answer that is none: told is for everybody, cause for the operator.
type fault struct {
	told  string
	cause error
}

func (f *fault) Error() string {
	if f.cause == nil {
		return f.told
	}
	return f.told + ": " + f.cause.Error()
}

func (f *fault) Unwrap() error { return f.cause }

const (
	// maxAnswer bounds what is read of an answer: a cosignature has about 150 bytes.
	maxAnswer = 64 << 10
	// maxShown bounds what of an answer is shown to the operator.
	maxShown = 200
	// maxAsks bounds how often a witness may say that it knows another size.
	maxAsks = 3
)

// log is the log that is to be cosigned.
type log struct {
	signed []byte
	seal.Checkpoint
	tree seal.Reader
	// now is how many events are durable by now.
	now func() uint64
}

// newest is the log that s signs, as it is now.
func newest(s *seal.Sealer) (log, error) {
	l := log{now: func() uint64 { return s.Reader().Size() }}
	var err error
	if l.signed, err = s.Checkpoint(); err == nil {
		l.Checkpoint, err = seal.ParseCheckpoint(l.signed)
	}
	l.tree = s.Reader() // after it, and so with its tree
	return l, err
}

func newClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxResponseHeaderBytes = 16 << 10
	return &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Check asks a witness to cosign the log that s signs, once. It returns a
// *commands.ContradictedError if the witness knows the log otherwise, and another error
// if it does not say.
func Check(ctx context.Context, w Witness, s *seal.Sealer) error {
	l, err := newest(s)
	if err != nil {
		return err
	}
	client := newClient()
	defer client.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	_, err = add(ctx, client, w, l, 0)
	return err
}

// cosigned is the answer of a witness, which adds a cosignature by its key.
type cosigned struct {
	lines []byte
	by    seal.Cosignature
}

// add asks a witness, which is believed to know old events, to cosign, and returns its
// answer. An error is a *fault, or a *commands.ContradictedError: it knows the log
// otherwise.
func add(ctx context.Context, client *http.Client, w Witness, l log, old uint64) (cosigned, error) {
	if old > l.Size {
		old = l.Size // it is not to be asked from more than it is asked to
	}
	for range maxAsks {
		body, err := l.tree.WitnessRequest(old, l.signed)
		if err != nil {
			return cosigned{}, &fault{"this log cannot prove that it grew", err}
		}
		status, answer, err := post(ctx, client, w.URL+"/add-checkpoint", body)
		if err != nil {
			return cosigned{}, err
		}
		contradicts := &commands.ContradictedError{Witness: w.Key.Name(), Known: old, Size: l.Size}
		switch status {
		case http.StatusOK:
			_, by, err := seal.AddCosignature(l.signed, answer, w.Key)
			if err != nil {
				return cosigned{}, &fault{"it answered without a cosignature by its key", err}
			}
			return cosigned{answer, by}, nil
		case http.StatusConflict:
			known, ok := parseSize(answer)
			switch {
			case old == l.Size && (!ok || known == old):
				return cosigned{}, contradicts // the same size, and another root
			case !ok || known == old:
				return cosigned{}, &fault{"it answered 409 without a size that it knows", shown(answer)}
			case known > l.now():
				contradicts.Known, contradicts.Size = known, l.now()
				return cosigned{}, contradicts
			case known > l.Size:
				return cosigned{}, &fault{"it has cosigned a newer checkpoint than it was asked to", nil}
			}
			old = known
		case http.StatusUnprocessableEntity:
			if old > 0 {
				return cosigned{}, contradicts
			}
			return cosigned{}, &fault{"it refused the proof, which is empty", shown(answer)}
		case http.StatusNotFound:
			return cosigned{}, &fault{"it does not know the log " + l.Origin + ": its operator is to add it", shown(answer)}
		case http.StatusForbidden:
			return cosigned{}, &fault{"it does not know the key that signs the log " + l.Origin + ": its operator is to add it", shown(answer)}
		default:
			return cosigned{}, &fault{"it answered " + strconv.Itoa(status), shown(answer)}
		}
	}
	return cosigned{}, &fault{"it says another size each time that it is asked", nil}
}

func post(ctx context.Context, client *http.Client, address string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return 0, nil, &fault{"its address is none", err}
	}
	req.Header.Set("Content-Type", "text/plain; charset=utf-8")
	resp, err := client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		answer, err = io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return 0, nil, &fault{"it did not answer in time", err}
	case err != nil:
		return 0, nil, &fault{"it cannot be reached", err}
	case len(answer) > maxAnswer:
		return 0, nil, &fault{fmt.Sprintf("it answered with more than %d bytes", maxAnswer), nil}
	}
	return resp.StatusCode, answer, nil
}

// parseSize reads a text/x.tlog.size.
func parseSize(answer []byte) (uint64, bool) {
	text := strings.TrimSuffix(string(answer), "\n")
	n, err := strconv.ParseInt(text, 10, 64)
	return uint64(n), err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}

// shown is the beginning of an answer.
func shown(answer []byte) error {
	text := strings.TrimSpace(string(answer[:min(len(answer), maxShown)]))
	if text == "" {
		return nil
	}
	return fmt.Errorf("%+q", text)
}
