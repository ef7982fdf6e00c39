package devicekey_test

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"fmt"
	"strings"

	"fleetledger/events/devicekey"
)

// The key is that of RFC 8032, 7.1, test 1. Another implementation that signs the
// same claims in the same order of members gets the same bytes: Ed25519 has no
// randomness.
func Example() {
	seed, _ := hex.DecodeString("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
	key := ed25519.NewKeyFromSeed(seed)
	body := []byte(`{"action":"deploy.staging"}`)
	claims := devicekey.Claims{
		Method: "POST", Host: "ledger.example", Path: "/v1/gates?min_position=7", Body: devicekey.BodyHash(body),
		IssuedAt: 1767323045, ID: "0b6a5e1c-8f7d-4c3e-9a2b-1d0c9e8f7a6b", Nonce: "YmVnaW4tYWZ0ZXItbm9vbg",
	}
	signature, err := devicekey.Sign(key, "default~m1~01a22ecf-060e-7b2a-bbf1-deacdd3a8d9e", claims)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("public_key", devicekey.PublicKey(key.Public().(ed25519.PublicKey)))
	for i, part := range strings.Split(signature, ".") {
		fmt.Println([]string{"protected", "payload", "signature"}[i], part)
	}
	read, err := devicekey.Verify(key.Public().(ed25519.PublicKey), "default~m1~01a22ecf-060e-7b2a-bbf1-deacdd3a8d9e", signature)
	fmt.Println(read == claims, err, bytes.Equal(seed, key.Seed()))
	// Output:
	// public_key 11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo
	// protected eyJhbGciOiJFZERTQSIsImtpZCI6ImRlZmF1bHR-bTF-MDFhMjJlY2YtMDYwZS03YjJhLWJiZjEtZGVhY2RkM2E4ZDllIiwidHlwIjoiZmxlZXRsZWRnZXItcmVxdWVzdCtqd3QifQ
	// payload eyJodG0iOiJQT1NUIiwiaG9zdCI6ImxlZGdlci5leGFtcGxlIiwicGF0aCI6Ii92MS9nYXRlcz9taW5fcG9zaXRpb249NyIsImJvZHkiOiJtMXRJUnVaMzlzbVo2dE93SjhSN1pONWNBUEpVYnJaM2t0OWpiRTV1Y2tBIiwiaWF0IjoxNzY3MzIzMDQ1LCJqdGkiOiIwYjZhNWUxYy04ZjdkLTRjM2UtOWEyYi0xZDBjOWU4ZjdhNmIiLCJub25jZSI6IlltVm5hVzR0WVdaMFpYSXRibTl2YmcifQ
	// signature CjmkW3vfsm3swFsSSCp1WOy7k88OmsA9QMUbc9bIuazEIeNrwtKgiGWYfYOpXfL9w9yCsKvaVrAIEfl6YkAGCg
	// true <nil> true
}
