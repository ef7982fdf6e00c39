package bus

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
)

// WebhookKey signs what a fleet posts to webhooks, as Standard Webhooks 1.0 has it
// for asymmetric keys ("v1a"): Ed25519 over "ID.TIMESTAMP.BODY", in the headers
// webhook-id, webhook-timestamp (Unix seconds) and webhook-signature
// ("v1a,SIGNATURE", base64). So there is no secret to hand over, or to record.
type WebhookKey struct{ private ed25519.PrivateKey }

// Public is the key to verify with, in the form that Standard Webhooks writes it.
func (k *WebhookKey) Public() string {
	return "whpk_" + base64.StdEncoding.EncodeToString(k.private.Public().(ed25519.PublicKey))
}

// sign returns the webhook-signature of a message.
func (k *WebhookKey) sign(id, timestamp string, body []byte) string {
	signed := append([]byte(id+"."+timestamp+"."), body...)
	return "v1a," + base64.StdEncoding.EncodeToString(ed25519.Sign(k.private, signed))
}

const webhookKeyName = "webhook.key"

// OpenWebhookKey reads the key in dir, or makes one there (mode 0600); an empty dir
// makes one that is kept nowhere.
func OpenWebhookKey(dir string) (*WebhookKey, error) {
	name := filepath.Join(dir, webhookKeyName)
	if dir != "" {
		b, err := os.ReadFile(name)
		if err == nil {
			text, sum, _ := strings.Cut(string(b), "\n")
			seed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(strings.TrimPrefix(text, "whsk_")))
			// Files of before have no sum.
			if err != nil || len(seed) != ed25519.SeedSize || sum != "" && sum != sumLine(webhookKeyName, []byte(text)) {
				return nil, fmt.Errorf("%s is not the key of webhooks: restore it from a backup, or remove it, and receivers must be given the new one", name)
			}
			return &WebhookKey{ed25519.NewKeyFromSeed(seed)}, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("key of webhooks: %w", err)
		}
	}
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil || dir == "" {
		return &WebhookKey{private}, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("key of webhooks: %w", err)
	}
	f, err := os.OpenFile(name+".new", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("key of webhooks: %w", err)
	}
	text := "whsk_" + base64.StdEncoding.EncodeToString(private.Seed())
	_, err = f.WriteString(text + "\n" + sumLine(webhookKeyName, []byte(text)))
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(name+".new", name)
	}
	return &WebhookKey{private}, err
}

func webhookRequest(ctx context.Context, url string, m *message.Message, credential string, key *WebhookKey) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(m.Payload))
	if err != nil {
		return nil, err
	}
	timestamp := strconv.FormatInt(time.Now().Unix(), 10)
	req.Header.Set("Content-Type", m.Metadata.Get("Content-Type"))
	req.Header.Set("User-Agent", "fleetledger")
	req.Header.Set("webhook-id", m.UUID)
	req.Header.Set("webhook-timestamp", timestamp)
	req.Header.Set("webhook-signature", key.sign(m.UUID, timestamp, m.Payload))
	if credential != "" {
		req.Header.Set("Authorization", credential)
	}
	return req, nil
}
