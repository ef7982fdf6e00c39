package kurrentlog_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"fleetledger/events"
	"fleetledger/events/kurrentlog"
	"fleetledger/testing/kurrentstub"
)

// TestTLSAndCredentials takes both from the connection string; without either, nothing
// is read or written.
func TestTLSAndCredentials(t *testing.T) {
	certificate, ca := selfSigned(t)
	c := start(t, kurrentstub.Options{Nodes: 3, User: "relay", Password: "s3cret", TLS: &tls.Config{Certificates: []tls.Certificate{certificate}}})
	trusted := c.ConnectionString() + "&tlsCAFile=" + url.QueryEscape(ca)
	dir := t.TempDir()
	try := func(connection string) error {
		l, err := open(filepath.Join(dir, "a"), kurrentlog.Options{Connection: connection, Fleet: fleet, Patience: time.Second})
		if err != nil {
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("an error shows the password: %v", err)
			}
			return err
		}
		_, err = l.Append(t.Context(), keyed(one("s", "e"), "k"))
		mustClose(t, l)
		return err
	}
	if err := try(trusted); err != nil {
		t.Fatal(err)
	}
	for name, connection := range map[string]string{
		"wrong password":      strings.Replace(trusted, "s3cret", "another", 1),
		"no credentials":      strings.Replace(trusted, "relay:s3cret@", "", 1),
		"unknown authority":   c.ConnectionString(),
		"no TLS, which it is": c.ConnectionString() + "&tls=false",
	} {
		if err := try(connection); !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// selfSigned is a certificate for 127.0.0.1, and the file of its authority.
func selfSigned(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, file
}
