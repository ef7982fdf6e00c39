package agent

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"fleetledger/events/devicekey"
)

// Device is a machine's paired device: who it is, and the key that shows it.
type Device struct {
	// Name is FLEET~MACHINE~ID, as the relay gave it.
	Name string
	Key  ed25519.PrivateKey
}

// Machine is the id of the machine that the device is of.
func (d Device) Machine() string {
	_, rest, _ := strings.Cut(d.Name, "~")
	machine, _, _ := strings.Cut(rest, "~")
	return machine
}

// deviceFile is how a device is kept in a state directory: with mode 0600, and
// never sent.
type deviceFile struct {
	Device string `json:"device,omitzero"`
	// PrivateKey is the key's seed (RFC 8032) in base64url without padding.
	PrivateKey string `json:"private_key"`
	// CodeSHA256 is the hash of the code that it was, or is to be, paired by, and
	// RedeemKey the Idempotency-Key of that: a redemption whose answer was lost is
	// repeated, also by the next start.
	CodeSHA256 string `json:"code_sha256"`
	RedeemKey  string `json:"redeem_key"`
}

const (
	deviceName    = "device.json"
	newDeviceName = "device.new.json" // while its code is being redeemed
)

// LoadDevice reads the device of a state directory. Without one it fails with
// fs.ErrNotExist.
func LoadDevice(dir string) (Device, error) {
	f, err := readDevice(filepath.Join(dir, deviceName))
	if err != nil {
		return Device{}, err
	}
	return f.device()
}

func (f deviceFile) device() (Device, error) {
	seed, err := base64.RawURLEncoding.DecodeString(f.PrivateKey)
	if err != nil || len(seed) != ed25519.SeedSize {
		return Device{}, errors.New("the device's private key is not one")
	}
	return Device{Name: f.Device, Key: ed25519.NewKeyFromSeed(seed)}, nil
}

func readDevice(name string) (deviceFile, error) {
	var f deviceFile
	b, err := os.ReadFile(name)
	if err != nil {
		return f, err
	}
	if err := json.Unmarshal(b, &f); err != nil {
		return f, fmt.Errorf("%s does not hold a device: %w", name, err)
	}
	return f, nil
}

// Pair makes a device of this machine: it redeems a pairing code at the relay at
// base for a key that it makes, and keeps both in the state directory dir, which is
// made if need be. With a code that this directory was paired by before it returns
// the device that came of it; with another one the new device takes the place of
// the old, which the relay knows until its token is revoked.
func Pair(ctx context.Context, base, code, dir string) (Device, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Device{}, fmt.Errorf("state directory: %w", err)
	}
	sum := sha256.Sum256([]byte(code))
	hash := hex.EncodeToString(sum[:])
	kept, err := readDevice(filepath.Join(dir, deviceName))
	if err == nil && kept.CodeSHA256 == hash {
		return kept.device()
	}
	f, err := readDevice(filepath.Join(dir, newDeviceName))
	if err != nil && !errors.Is(err, fs.ErrNotExist) || f.CodeSHA256 != hash {
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			return Device{}, err
		}
		f = deviceFile{PrivateKey: base64.RawURLEncoding.EncodeToString(key.Seed()), CodeSHA256: hash, RedeemKey: uuid.NewString()}
		// Before the code is redeemed: a crash between would lose the key to a code
		// that is used up.
		if err := f.write(dir, newDeviceName); err != nil {
			return Device{}, err
		}
	}
	d, err := f.device()
	if err != nil {
		return d, err
	}
	client, err := NewClient(base, "")
	if err != nil {
		return d, err
	}
	resp, err := client.Do(ctx, Request{
		Method: http.MethodPost, Path: Path("v1", "pairings", "redeem"), Key: f.RedeemKey,
		Body: struct {
			Code      string `json:"code"`
			PublicKey string `json:"public_key"`
		}{code, devicekey.PublicKey(d.Key.Public().(ed25519.PublicKey))},
	})
	if err != nil {
		return d, err
	}
	var answer struct {
		Device string `json:"device"`
	}
	if err := resp.Decode(&answer); err != nil {
		return d, err
	}
	f.Device, d.Name = answer.Device, answer.Device
	if err := f.write(dir, deviceName); err != nil {
		return d, err
	}
	// If it stays, the next pairing writes over it.
	_ = os.Remove(filepath.Join(dir, newDeviceName))
	return d, nil
}

// write keeps f, whole or not at all.
func (f deviceFile) write(dir, name string) error {
	b, err := json.Marshal(f)
	if err != nil {
		return err
	}
	return writeFile(filepath.Join(dir, name), append(b, '\n'), true)
}

// writeFile makes a file that is there whole or not at all, also after a loss of
// power if durable is true.
func writeFile(name string, content []byte, durable bool) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.new") // of mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil && durable {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), name)
	}
	if err != nil {
		_ = os.Remove(f.Name()) // of no use to anybody
		return err
	}
	if !durable {
		return nil
	}
	return syncDir(filepath.Dir(name))
}

// leftAfter is how old a file is at least that a write has left half done. Several
// programs may be at work in a directory, and a write takes moments.
const leftAfter = time.Hour

// removeLeft removes from the files of dir what a writeFile left that was cut off:
// nobody was told that it is kept.
func removeLeft(dir string, files []os.DirEntry) {
	for _, f := range files {
		if left, _ := filepath.Match("*.json.*.new", f.Name()); !left {
			continue
		}
		if info, err := f.Info(); err == nil && time.Since(info.ModTime()) > leftAfter {
			_ = os.Remove(filepath.Join(dir, f.Name())) // if it stays, the next look removes it
		}
	}
}

// signer signs a client's requests. Methods may be called concurrently.
type signer struct {
	device Device

	mu    sync.Mutex
	ahead time.Duration // how far the relay's clock is ahead of this machine's
	nonce string        // what the relay last asked for
}

// sign adds to a request who makes it, and the signature.
func (s *signer) sign(req *http.Request, base *url.URL, body []byte) error {
	s.mu.Lock()
	now, nonce := time.Now().Add(s.ahead), s.nonce
	s.mu.Unlock()
	signature, err := devicekey.Sign(s.device.Key, s.device.Name, devicekey.Claims{
		Method: req.Method, Host: devicekey.Host(req.URL.Host),
		Path: strings.TrimPrefix(devicekey.Path(req.URL), base.EscapedPath()),
		Body: devicekey.BodyHash(body), IssuedAt: now.Unix(), ID: uuid.NewString(), Nonce: nonce,
	})
	if err != nil {
		return fmt.Errorf("sign a request: %w", err)
	}
	req.Header.Set("Authorization", devicekey.Scheme+" "+s.device.Name)
	req.Header.Set(devicekey.Header, signature)
	return nil
}

// correct learns from a refusal what makes the next signature hold, and reports
// whether the request is worth another try. One that was expired was not carried
// out; one that was replayed may have been, by a try whose answer was lost, so it
// must be repeatable.
func (s *signer) correct(p *Problem, repeatable bool) bool {
	switch p.Code {
	case "SIGNATURE_EXPIRED":
		at, err := time.Parse(time.RFC3339Nano, p.FactText("server_time"))
		if err != nil {
			return false
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ahead, s.nonce = time.Until(at), p.FactText("nonce")
		return true
	case "SIGNATURE_REPLAYED":
		return repeatable
	}
	return false
}

// send makes a request, and makes it once more if its signature did not hold for
// a reason that passes. An answer that is a refusal is a *Problem.
func (c *Client) send(ctx context.Context, r Request, body []byte, header func(http.Header)) (*http.Response, error) {
	for try := 1; ; try++ {
		resp, err := c.sendOnce(ctx, r, body, header)
		p, refused := errors.AsType[*Problem](err)
		if !refused || c.signer == nil || try > 1 || !c.signer.correct(p, r.repeatable()) {
			return resp, err
		}
	}
}

func (c *Client) sendOnce(ctx context.Context, r Request, body []byte, header func(http.Header)) (*http.Response, error) {
	req, err := c.request(ctx, r, body)
	if err != nil {
		return nil, err
	}
	if header != nil {
		header(req.Header)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unreachable(err)
	}
	if resp.StatusCode < 300 {
		return resp, nil
	}
	defer resp.Body.Close()
	var b bytes.Buffer
	// A body that cannot be read makes a problem without a document.
	_, _ = b.ReadFrom(http.MaxBytesReader(nil, resp.Body, maxProblem))
	p := problemFrom(resp, b.Bytes())
	p.addRetryAfter(resp.Header)
	return nil, p
}

// maxProblem bounds the answer that tells of a problem.
const maxProblem = 1 << 20
