package devicekey

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-json-experiment/json"
)

// Scheme is that of the Authorization header which names a device, and Header the
// one that holds the signature.
const (
	Scheme = "DPoP"
	Header = "Dpop" // as net/http spells DPoP
)

// Type is the typ of a signature's protected header.
const Type = "fleetledger-request+jwt"

// The bounds of a signature's time against the relay's.
const (
	MaxAge   = 60 * time.Second
	MaxAhead = 30 * time.Second
)

// MaxSignatureBytes bounds the text of a signature: a path of 8 KiB has room.
const MaxSignatureBytes = 16 << 10

// Claims are what a signature says of its request.
type Claims struct {
	Method string `json:"htm"`
	Host   string `json:"host"`
	Path   string `json:"path"`
	Body   string `json:"body"`
	// IssuedAt is in seconds since 1970.
	IssuedAt int64  `json:"iat"`
	ID       string `json:"jti"`
	Nonce    string `json:"nonce,omitzero"`
}

// BodyHash is the claim about a body.
func BodyHash(body []byte) string {
	sum := sha256.Sum256(body)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// Host is a host as claims name it: in small letters, without the port that the
// scheme has anyway.
func Host(hostport string) string {
	h := strings.ToLower(hostport)
	if host, port, err := net.SplitHostPort(h); err == nil && (port == "80" || port == "443") {
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		return host
	}
	return h
}

// Path is the path and query of u as claims name them.
func Path(u *url.URL) string {
	p := u.EscapedPath()
	if u.RawQuery != "" || u.ForceQuery {
		p += "?" + u.RawQuery
	}
	return p
}

// PublicKey is a public key as it is paired.
func PublicKey(k ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(k) }

// Sign returns the signature of a request by a device.
func Sign(key ed25519.PrivateKey, device string, c Claims) (string, error) {
	payload, err := json.Marshal(c)
	if err != nil {
		return "", err
	}
	options := (&jose.SignerOptions{}).WithType(Type).WithHeader("kid", device)
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.EdDSA, Key: key}, options)
	if err != nil {
		return "", err
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		return "", err
	}
	return jws.CompactSerialize()
}

// Verify reads the signature of a device that has key. What the claims say is still
// to be compared with the request.
func Verify(key ed25519.PublicKey, device, signature string) (Claims, error) {
	var c Claims
	if len(signature) > MaxSignatureBytes {
		return c, fmt.Errorf("it has %d bytes, at most %d are read", len(signature), MaxSignatureBytes)
	}
	jws, err := jose.ParseSignedCompact(signature, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return c, errors.New("it is no JWS in compact form with the algorithm EdDSA")
	}
	h := jws.Signatures[0].Protected
	if typ, _ := h.ExtraHeaders[jose.HeaderType].(string); typ != Type {
		return c, fmt.Errorf("its typ is %+q, not %q", typ, Type)
	}
	if h.KeyID != device {
		return c, fmt.Errorf("its kid is %+q, and Authorization names %+q", h.KeyID, device)
	}
	payload, err := jws.Verify(key)
	if err != nil {
		return c, errors.New("it was not made with the key of this device")
	}
	if err := json.Unmarshal(payload, &c, json.RejectUnknownMembers(true)); err != nil {
		return c, fmt.Errorf("its payload is not as it should be: %w", err)
	}
	if len(c.ID) < 16 || len(c.ID) > 64 || strings.ContainsFunc(c.ID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return c, errors.New("its jti is not 16 to 64 visible ASCII characters")
	}
	return c, nil
}

// Differs names the first claim that is not that of want: a request as it came.
// Times, jti and nonce are not compared, and the body only if want has it.
func (c Claims) Differs(want Claims) string {
	switch {
	case c.Method != want.Method:
		return "htm"
	case Host(c.Host) != want.Host:
		return "host"
	case c.Path != want.Path:
		return "path"
	case want.Body != "" && c.Body != want.Body:
		return "body"
	}
	return ""
}
