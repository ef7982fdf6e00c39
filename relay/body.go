package relay

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"fleetledger/commands"
	"fleetledger/events"
)

// bodyDecoder is an input that is more than its fields say.
type bodyDecoder interface {
	// decodeBody reads the body, which has one of the operation's media types, or
	// none that the caller named. raw is there until the request is answered: nothing
	// of it is kept for longer.
	decodeBody(media string, raw []byte) error
}

// readBody decodes the body into in, which points to the input of the operation,
// and makes the Caller.
func (c *call) readBody(in any) error {
	c.body = buffers.Get().(*bytes.Buffer)
	if err := c.receive(c.body, int64(c.ledger.State().Settings().BatchBytes)); err != nil {
		return err
	}
	raw := c.body.Bytes()
	if err := c.checkBody(raw); err != nil {
		return err
	}
	if err := c.identify(raw); err != nil {
		return err
	}
	media := ""
	if len(raw) > 0 {
		var err error
		if media, err = c.mediaType(); err != nil {
			return err
		}
	} else if c.op.bodyless {
		raw = []byte("{}")
	}
	if d, ok := in.(bodyDecoder); ok {
		return d.decodeBody(media, raw)
	}
	return events.DecodeStrict(raw, in)
}

// receive reads the whole body, of at most limit bytes.
func (c *call) receive(b *bytes.Buffer, limit int64) error {
	if c.r.ContentLength > limit {
		return bodyTooLarge(limit)
	}
	c.reading = true
	n, err := b.ReadFrom(io.LimitReader(c.r.Body, limit+1))
	if err != nil {
		return bodyUnreadable(n, err)
	}
	if n > limit {
		return bodyTooLarge(limit)
	}
	return nil
}

// bodyUnreadable is why a body ended after n bytes.
func bodyUnreadable(n int64, err error) error {
	var timeout net.Error
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return malformed("BODY_CUT_OFF", "the body ended after %d bytes, before its end; send it again", n)
	case errors.As(err, &timeout) && timeout.Timeout():
		return &problem{status: http.StatusRequestTimeout, code: "BODY_TOO_SLOW", detail: "the body did not come in time; send it again"}
	}
	return malformed("BODY_UNREADABLE", "the body cannot be read; send it again")
}

func bodyTooLarge(limit int64) error {
	return &problem{status: http.StatusRequestEntityTooLarge, code: "BODY_TOO_LARGE",
		detail: fmt.Sprintf("the body is larger than %d bytes; send it in parts", limit), facts: facts{"limit": limit}}
}

// mediaType is the body's content type, empty if the caller names none.
func (c *call) mediaType() (string, error) {
	taken := c.op.media
	if taken == nil {
		taken = []string{"application/json"}
	}
	given := c.r.Header.Get("Content-Type")
	if given == "" || slices.Contains(taken, given) {
		return given, nil
	}
	media, params, err := mime.ParseMediaType(given)
	if charset, named := params["charset"]; err == nil && slices.Contains(taken, media) && (!named || strings.EqualFold(charset, "utf-8")) {
		return media, nil
	}
	return "", &problem{status: http.StatusUnsupportedMediaType, code: "UNSUPPORTED_MEDIA_TYPE",
		detail: fmt.Sprintf("the body is %+q: this path takes %s", given, strings.Join(taken, " or ")), facts: facts{"taken": taken}}
}

// identify makes the Caller: who asks, and how a retry is recognised.
func (c *call) identify(raw []byte) error {
	c.caller = commands.Caller{Actor: c.token.Actor, ApprovalID: c.r.Header.Get("Approval-Id")}
	if id := c.caller.ApprovalID; id != "" || len(c.r.Header["Approval-Id"]) > 0 {
		if err := events.CheckName("Approval-Id", id); err != nil || len(c.r.Header["Approval-Id"]) != 1 {
			return malformed("APPROVAL_ID_INVALID", "the header Approval-Id does not hold the id of one approval")
		}
	}
	keys := c.r.Header["Idempotency-Key"]
	if len(keys) == 0 {
		// Nobody will compare it; it only tells this request from others.
		_, _ = rand.Read(c.caller.Request[:]) // never fails
		return nil
	}
	if len(keys) != 1 || !isUUID(keys[0]) {
		return malformed("IDEMPOTENCY_KEY_INVALID", "the header Idempotency-Key is not one UUID such as 01939f5e-7a1b-7c3d-8e4f-0123456789ab")
	}
	// The hash stays in the header when the payload is erased. With the client's key
	// in it, which the log does not hold, nobody can test a guess of the body.
	key := strings.ToLower(keys[0])
	c.caller.Request = sha256.Sum256(append([]byte(key), raw...))
	c.caller.Key = events.SumHash(c.token.Actor, c.r.Method, c.r.URL.Path, c.caller.ApprovalID, key)
	return nil
}

// none is the input of a command without one.
type none struct{}

// refuseNull refuses null for members that may be absent, where null would be
// taken for absence. raw was decoded before, so it is an object.
func refuseNull(raw []byte, names ...string) error { return refuseNullAt("", raw, names...) }

// refuseNullAt is refuseNull for the object at a path of the body.
func refuseNullAt(path string, raw []byte, names ...string) error {
	var members map[string]jsontext.Value
	if err := events.DecodeStrict(raw, &members); err != nil {
		return err
	}
	var bad []events.Problem
	for _, name := range names {
		if members[name].Kind() == jsontext.KindNull {
			bad = append(bad, events.Problem{Path: path + "/" + name, Code: events.CodeNull, Detail: "null is not allowed here: leave the field out"})
		}
	}
	if bad != nil {
		return invalidFields(bad...)
	}
	return nil
}

// isUUID takes none of the other spellings that uuid.Validate does: one id must have one
// form.
func isUUID(s string) bool { return len(s) == 36 && uuid.Validate(s) == nil }
