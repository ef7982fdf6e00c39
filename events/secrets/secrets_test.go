package secrets

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// made is a string of n characters that look random and are the same in every
// run. Keys are put together here, so that no scanner takes this file for a leak.
func made(seed string, n int, alphabet string) string {
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		for _, c := range sha256.Sum256(fmt.Append(nil, seed, i)) {
			b.WriteByte(alphabet[int(c)%len(alphabet)])
		}
	}
	return b.String()[:n]
}

const (
	alnum  = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
	lowers = "abcdefghijklmnopqrstuvwxyz0123456789"
	b64url = alnum + "-_"
)

var (
	githubPAT  = "ghp_" + made("pat", 36, alnum)
	fleetToken = "default~ana~" + made("token", 43, b64url)
	pemBody    = func() string {
		var lines []string
		for i := range 25 {
			lines = append(lines, made(fmt.Sprint("pem", i), 64, alnum+"+/"))
		}
		return strings.Join(append(lines, made("end", 22, alnum)+"=="), "\n") + "\n"
	}()
	pem = "-----BEGIN RSA " + "PRIVATE KEY-----\n" + pemBody + "-----END RSA " + "PRIVATE KEY-----"
)

func TestFind(t *testing.T) {
	jwt := "ey" + made("j1", 40, alnum) + ".ey" + made("j2", 60, alnum) + "." + made("j3", 43, alnum)
	awsSecret := made("aws", 40, alnum+"+/")
	for _, tt := range []struct {
		name, before, secret, after, rule string
	}{
		{"GitHub, alone", "", githubPAT, "", "github-pat"},
		{"GitHub, in a URL", "https://x:", githubPAT, "@github.com/a/b.git", "github-pat"},
		{"GitHub, in JSON", `{"t":"`, githubPAT, `"}`, "github-pat"},
		{"GitHub, coloured", "\x1b[31m", githubPAT, "\x1b[0m", "github-pat"},
		{"GitHub, in another alphabet", "токен İ ", githubPAT, " конец", "github-pat"},
		{"GitHub, which somebody would let through", "", githubPAT, " # gitleaks:allow", "github-pat"},
		{"GitHub, fine-grained", "", "github_pat_" + made("fine", 82, alnum+"_"), "", "github-fine-grained-pat"},
		{"GitLab", "", "glpat-" + made("gl", 20, alnum), "", "gitlab-pat"},
		{"AWS id", "aws_access_key_id=", "AKIA" + made("id", 16, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"), "\n", "aws-access-token"},
		{"AWS secret", "AWS_SECRET_ACCESS_KEY=", awsSecret, "\n", "generic-api-key"},
		{"Slack", "", "xoxb-" + made("s1", 12, "123456789") + "-" + made("s2", 12, "123456789") + "-" + made("s3", 24, alnum), "", "slack-bot-token"},
		{"Stripe", "", "sk_live_" + made("stripe", 24, alnum), "", "stripe-access-token"},
		{"npm", "//registry/:_authToken=", "npm_" + made("npm", 36, lowers), "", "npm-access-token"},
		{"Google", "key=", "AIza" + made("gcp", 35, alnum), "", "gcp-api-key"},
		{"JWT", "Cookie: s=", jwt, ";", "jwt"},
		{"a name and a value", "API_TOKEN: ", made("generic", 32, lowers), "\n", "generic-api-key"},
		{"a name and a value, far into a long line", strings.Repeat(`{"a":1},`, 300) + `{"api_key":"`, made("generic", 32, lowers), `"}` + strings.Repeat(`,{"a":1}`, 300), "generic-api-key"},
		{"a digest's form under a secret's name", "client_secret=", made("hex", 40, "0123456789abcdef"), "", "generic-api-key"},
		{"curl -u", "curl -u ", "ana:" + made("pw", 14, alnum), " https://example.org", "curl-auth-user"},
		{"curl -H", `curl -H "Authorization: Bearer `, made("bearer", 30, alnum), `" https://example.org`, "curl-auth-header"},
		{"a header", "> Authorization: Bearer ", made("bearer", 30, alnum), "\r\n> Accept: */*", "authorization-header"},
		{"a header in a program", `headers={'Authorization': 'Basic `, made("basic", 24, alnum), `'}`, "authorization-header"},
		{"a header in JSON in JSON", `"{\"authorization\":\"token `, made("bearer", 30, alnum), `\"}"`, "authorization-header"},
		{"a header with a token of known form", "Authorization: Bearer ", githubPAT, "", "github-pat"},
		{"a bearer token alone", "Bearer ", made("bearer", 30, alnum), "", "bearer-token"},
		{"a bearer token in what a program logs", "auth: using bearer ", made("bearer", 24, lowers), ", expires in 1h\n", "bearer-token"},
		{"a bearer token of hexadecimal digits", "Bearer ", made("bearer", 32, "0123456789abcdef"), "\n", "bearer-token"},
		{"a bearer token that is an id", "Bearer ", "0d7c2a1e-93f4-4b6d-8a57-c1e2f3a4b5d6", "", "bearer-token"},
		{"a bearer token of base64", "\tBEARER  ", made("bearer", 43, alnum+"+/") + "=", " ", "bearer-token"},
		{"a bearer token of letters alone", "Bearer ", "qXrVbKpzTWmyLdHsNcGf", "", "bearer-token"},
		{"a bearer token in a program", `send("bearer", ` + "`Bearer ", made("bearer", 30, alnum), "`)", "bearer-token"},
		{"a bearer token in a URL", "https://example.org/?auth=Bearer%20", made("bearer", 30, alnum), "&x=1", "bearer-token"},
		{"a bearer token as a value", `{"bearer": "`, made("bearer", 30, alnum), `"}`, "bearer-token"},
		{"a bearer token in JSON in JSON", `"{\"Bearer\":\"`, made("bearer", 30, alnum), `\"}"`, "bearer-token"},
		{"a bearer token for curl", "curl --oauth2-bearer ", made("bearer", 30, alnum), " https://example.org", "bearer-token"},
		{"a bearer token longer than most", "Bearer ", made("bearer", 3000, b64url), "\n", "bearer-token"},
		{"a name and a password in base64", "sent Basic ", base64.StdEncoding.EncodeToString([]byte("ana:" + made("pw", 14, alnum))), "", "basic-credentials"},
		{"a bearer token of known form", "Bearer ", githubPAT, "", "github-pat"},
		{"a name and a value in JSON in JSON", `{"msg":"{\"api_key\":\"`, made("inner", 32, lowers), `\"}"}`, "generic-api-key"},
		{"deeper", `"{\\\"api_key\\\": \\\"`, made("inner", 32, lowers), `\\\"}"`, "generic-api-key"},
		{"a key in which a word happens to be", "password=", "xK4test9PqRw7ZtVbN2m", "\n", "generic-api-key"},
		{"a password in a URL", "postgres://app:", made("pw", 14, alnum), "@db.example.org/x", "url-password"},
		{"a private key", "x\n", pem, "\ny", "private-key"},
		{"a private key without its end", "x\n-----BEGIN RSA " + "PRIVATE KEY-----\n", strings.TrimRight(pemBody[:500], "\n"), "", "private-key-begin"},
		{"a private key without its beginning", "", strings.TrimSuffix(pemBody[500:], "\n"), "\n-----END RSA " + "PRIVATE KEY-----\n", "private-key-end"},
		{"a token of this ledger", "Authorization: Bearer default~ana~", made("token", 43, b64url), "\n", "fleetledger-token"},
		{"a pairing code of this ledger", "fleetledger agent --pair default~m1~", made("pairing", 26, "abcdefghijkmnpqrstuvwxyz23456789"), " --allow go", "fleetledger-token"},
		{"a token of this ledger in JSON", `{"token":"default~ana~`, made("token", 43, b64url), `"}`, "fleetledger-token"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := tt.before + tt.secret + tt.after
			got := Find(text)
			if len(got) != 1 {
				t.Fatalf("Find(%q) = %v, want one finding", text, got)
			}
			f := got[0]
			// A rule may take a prefix for part of the secret; it may not leave any of it.
			if f.Start > len(tt.before) || f.End < len(tt.before)+len(tt.secret) || f.End > len(tt.before)+len(tt.secret)+1 {
				t.Errorf("found %q, want %q", text[f.Start:f.End], tt.secret)
			}
			if f.Rule != tt.rule {
				t.Errorf("rule %s, want %s", f.Rule, tt.rule)
			}
			masked, n := Mask(text)
			if n != 1 || strings.Contains(masked, tt.secret[1:]) || masked != text[:f.Start]+"[secret:"+tt.rule+"]"+text[f.End:] {
				t.Errorf("Mask = %q, %d", masked, n)
			}
		})
	}
}

func TestOrdinaryTextHasNoSecret(t *testing.T) {
	sum := func(s string) string { h := sha256.Sum256([]byte(s)); return hex.EncodeToString(h[:]) }
	image := make([]byte, 6000)
	for i := range image {
		image[i] = made(fmt.Sprint("image", i/32), 32, alnum)[i%32] * byte(i)
	}
	commit := sum("commit")[:40]
	id := "019abf30-7c1e-7d2a-9c41-0f5b8f2f7b11"
	for _, text := range []string{
		"", "~", "[secret:github-pat]",
		"go test ./... -run TestToken -count=1",
		"go test -race -short ./events/secrets/...",
		"git log --oneline -n 20 --format=%H",
		"commit " + commit + "\nAuthor: Ana <ana@example.org>\nDate:   Mon Nov 30 22:02:08 2026 +0000\n\n    tokens: keys are read once\n",
		"git checkout " + commit,
		"docker run --rm -v /srv/keys:/keys:ro -p 8080:80 registry.example.org/app@sha256:" + sum("image"),
		"curl -fsSL https://example.org/install.sh -o install.sh",
		"curl -H 'Accept: application/json' -H \"Idempotency-Key: " + id + "\" http://127.0.0.1:7777/v1/tasks",
		`curl -H "Authorization: Bearer $TOKEN" https://example.org`,
		"Authorization: Bearer <token>", "Authorization: Bearer ${TOKEN}", `{"Authorization": "Bearer " + token}`, "authorization: basic auth is off",
		"Bearer token", "the bearer of news", "a standard-bearer of interoperability", "Bearer authentication_is_required", "bearer tokens/credentials/authorization",
		"Bearer $TOKEN", "Bearer <token>", "Bearer YOUR_ACCESS_TOKEN_GOES_HERE", "Bearer your-personal-access-token", "Bearer xxxxxxxxxxxxxxxxxxxxxxxx",
		`WWW-Authenticate: Bearer realm="example"`, "Bearer authorization_uri=https://login.example.org", "Bearer resource_metadata=https://example.org/.well-known/oauth-protected-resource",
		"bearer internal/auth/oauth2/client_v2_test.go:31", "--- PASS: TestBearer TestBearerTokenRoundTripV2Parsing", "bearer GetUserAccessTokenForRepo2(ctx)", "bearer: rfc6750.BearerTokenProfile",
		`"token_type": "Bearer", "scope": "read"`, "bearer=authorization.example.io/v1", "basic authentication", "Basic understanding of networks", "BASIC programsinbase64likewords", "ok  \tfleetledger/relay/bearer 0.412s 12345678901234567",
		"psql postgres://$USER:$PASSWORD@localhost/app",
		"ssh -i ~/.ssh/id_ed25519 -p 2222 ana@example.org",
		"kubectl get secret app-credentials -o name",
		"fleetledger token issue ana --server http://127.0.0.1:7777",
		"FLEETLEDGER_TOKEN_FILE=/etc/fleetledger/token fleetledger agent",
		"export TOKEN=$(cat /run/secrets/token)",
		"key=" + sum("cache") + " hit", "cache-key: " + commit, "token_id=" + id,
		`{"id":"` + id + `","stream":"task:` + id + `","type":"task.submitted","actor":"ana","key":"` + sum("key") + `","request":"` + sum("request") +
			`","commitment":"` + sum("commitment") + `","prev":"` + sum("prev") + `","size":312}`,
		`{"token_id":"` + id + `","actor":"ana","token_hash":"` + sum("token") + `"}`,
		"/" + strings.Join([]string{"home", "ana", "go", "pkg", "mod", "cache", "download", "sumdb"}, "/"),
		"golang.org/x/mod v0.43.0 h1:" + base64.StdEncoding.EncodeToString([]byte(sum("mod")[:32])),
		"ok  \tfleetledger/commands/gate\t0.412s\n--- FAIL: TestAuthority (0.00s)\n    authority_test.go:31: access = denied, want allow; key=level\nFAIL\n",
		"panic: runtime error: invalid memory address\n\ngoroutine 1 [running]:\nmain.token(0xc0000b4000, 0x12)\n\t/srv/app/token.go:31 +0x1d\n",
		"github.com/nats-io/nkeys v0.4.17 h1:" + base64.StdEncoding.EncodeToString([]byte(sum("nkeys")[:32])) + "\nmodernc.org/token v1.1.0/go.mod h1:" + base64.StdEncoding.EncodeToString([]byte(sum("token")[:32])) + "\n",
		"Cache restored from key: setup-go-Linux-x64-ubuntu22-go-1.26.8-" + sum("cache"), "cache key: node-modules-Linux-" + sum("node"),
		"token=TestTokenRoundTripV2Parsing", `key: "GetUserAccessTokenForRepo2"`,
		"pushed registry.example.org/auth-service:sha-1a2b3c4d5e6f", "auth-service@sha256:" + sum("service"),
		`"integrity": "sha512-` + base64.StdEncoding.EncodeToString([]byte(sum("i") + sum("j"))[:64]) + `",` + "\n" + `"resolved": "https://registry.example.org/@auth/core/-/auth-core-7.23.2.tgz#` + commit + `"`,
		"requests==2.31.0 --hash=sha256:" + sum("pip"), `checksum = "` + sum("cargo") + `"`,
		"apiVersion: rbac.authorization.k8s.io/v1", "secretName: my-app-tls-2024", "AUTH_URL=https://login.example.org/oauth2/v2.0/authorize",
		"pod/api-7d9f8b6c5d-x2k4p   1/1   Running   0   5d", "x-request-id: " + id, `etag: "` + commit + `"`, "token_count=12345678901",
		`"access_key_id": null, "token_type": "Bearer", "expires_in": 3600`, `foreign_key: "order_items_order_id_fkey_2024"`,
		"public_key: MCowBQYDK2VwAyEA" + base64.StdEncoding.EncodeToString([]byte(sum("ed25519")[:30])),
		"ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + made("ssh", 43, alnum) + " ana@example.org",
		"-----BEGIN CERTIFICATE-----\n" + made("cert", 64, alnum) + "\n-----END CERTIFICATE-----",
		"data:image/png;base64," + base64.StdEncoding.EncodeToString(image),
		"root hash " + base64.StdEncoding.EncodeToString([]byte(sum("root")[:32])) + " size 41233",
		"— fleet.example.org+7f2c " + base64.StdEncoding.EncodeToString([]byte(sum("a") + sum("b"))[:68]),
	} {
		if got := Find(text); len(got) != 0 {
			t.Errorf("Find(%.120q) = %v (%.80q)", text, got, text[got[0].Start:got[0].End])
		}
	}
}

func TestMaskChangesSecretsOnly(t *testing.T) {
	text := "a\xff\x00b " + githubPAT + "\ttwo " + githubPAT + " and " + fleetToken + "\r\nend\xf0"
	want := "a\xff\x00b [secret:github-pat]\ttwo [secret:github-pat] and default~ana~[secret:fleetledger-token]\r\nend\xf0"
	if got, n := Mask(text); got != want || n != 3 {
		t.Errorf("Mask = %q, %d; want %q, 3", got, n, want)
	}
}

// A mark holds what some rules take for the text around a secret.
func TestMarksAreNotCut(t *testing.T) {
	for _, text := range []string{
		"https://x[secret:github-pat]@example.org",
		"https://x:[secret:github-pat]@example.org",
		"token=[secret:generic-api-key]",
		"curl -u ana:[secret:curl-auth-user] https://example.org",
		"api_key=[secret:generic-api-key]" + "[secret:github-pat];",
	} {
		if masked, n := Mask(text); masked != text || n != 0 {
			t.Errorf("Mask(%q) = %q, %d", text, masked, n)
		}
	}
}

func TestMaskTail(t *testing.T) {
	filler := strings.Repeat("a line of output\n", 20)
	for _, tt := range []struct {
		name, text string
		keep       int
		want       string
	}{
		{"short", "ab", 4, "ab"},
		{"cut", "abcdef", 4, "cdef"},
		{"cut within a character", "abécd", 3, "cd"},
		{"a secret across the cut, no room for its mark", filler + githubPAT + " end", 10, " end"},
		{"a secret across the cut, with room", filler + githubPAT + " " + filler, 20 + len(filler), "[secret:github-pat] " + filler},
		{"a secret before the cut", filler + githubPAT + " end" + filler, len(filler), filler},
		{"broken bytes", "\xff\xfe" + githubPAT, 100, "\ufffd[secret:github-pat]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, cut := MaskTail(tt.text, tt.keep)
			if got != tt.want {
				t.Errorf("MaskTail(…, %d) = %q, want %q", tt.keep, got, tt.want)
			}
			if whole := len(tt.text) <= tt.keep; cut == whole {
				t.Errorf("cut is %t", cut)
			}
		})
	}
}

func TestArgv(t *testing.T) {
	password := made("pw", 14, alnum)
	bearer := made("bearer", 30, alnum)
	for _, tt := range []struct {
		name       string
		argv, want []string
	}{
		{"none", []string{"go", "test", "./..."}, []string{"go", "test", "./..."}},
		{"a word", []string{"gh", "--token", githubPAT}, []string{"gh", "--token", "[secret:github-pat]"}},
		{"a part of a word", []string{"env", "T=" + githubPAT, "make"}, []string{"env", "T=[secret:github-pat]", "make"}},
		{"told by the words before", []string{"curl", "-u", "ana:" + password, "https://example.org"}, []string{"curl", "-u", "[secret:curl-auth-user]", "https://example.org"}},
		{"in a header", []string{"curl", "-H", "Authorization: Bearer " + bearer, "https://example.org"}, []string{"curl", "-H", "Authorization: Bearer [secret:authorization-header]", "https://example.org"}},
		{"a header's value alone", []string{"grpcurl", "-auth", "Bearer " + bearer}, []string{"grpcurl", "-auth", "Bearer [secret:bearer-token]"}},
		{"a header in two words", []string{"call", "Bearer", bearer}, []string{"call", "Bearer", "[secret:bearer-token]"}},
		{"in a script", []string{"sh", "-c", "GH_TOKEN=" + githubPAT + " gh pr list"}, []string{"sh", "-c", "GH_TOKEN=[secret:github-pat] gh pr list"}},
		{"two", []string{githubPAT, fleetToken}, []string{"[secret:github-pat]", "default~ana~[secret:fleetledger-token]"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := slices.Clone(tt.argv)
			got, n := MaskArgv(tt.argv)
			if !slices.Equal(got, tt.want) || (n > 0) == slices.Equal(before, tt.want) {
				t.Errorf("MaskArgv = %q, %d; want %q", got, n, tt.want)
			}
			if !slices.Equal(tt.argv, before) {
				t.Error("it changed its argument")
			}
			if again, n := MaskArgv(got); n != 0 || !slices.Equal(again, got) {
				t.Errorf("masked again: %q, %d", again, n)
			}
		})
	}
}

// pieces of text in which secrets, marks and what surrounds them meet.
func pieces(t *rapid.T) string {
	piece := rapid.OneOf(
		rapid.SampledFrom([]string{
			githubPAT, fleetToken, pem, pemBody[600:], "[secret:github-pat]", "[secret:", "]", "secret", "token", "api_key", "password", "aws",
			"=", ": ", ":", `"`, "'", "\n", "\r\n", " ", "@", "https://x", "://", "curl -u ", "curl -H \"Authorization: Bearer ", "Bearer ", "bearer=", "-----BEGIN ", "PRIVATE KEY-----",
			"-----END ", "~", "ey", "é", "\xff", "İ", "AKIA", "adobe", "plaid", "key",
		}),
		rapid.StringMatching(`[A-Za-z0-9_/+-]{8,64}`),
		rapid.Custom(func(t *rapid.T) string {
			return rapid.SampledFrom(ofTheirForm()).Draw(t, "rule").Draw(t, "of its form")
		}),
		rapid.StringN(0, 12, 24),
	)
	return strings.Join(rapid.SliceOfN(piece, 0, 16).Draw(t, "pieces"), "")
}

// ofTheirForm make, for each rule of gitleaks', what its expression matches.
var ofTheirForm = sync.OnceValue(func() (list []*rapid.Generator[string]) {
	for _, f := range gitleaks.Rules {
		if f.Path == "" && f.Regex != "" {
			list = append(list, rapid.Map(rapid.StringMatching(f.Regex), ascii.Replace))
		}
	}
	return list
})

// ascii replaces what (?i) takes for k and s. Keywords and values that are assigned to
// names are of ASCII; no secret has others.
var ascii = strings.NewReplacer("\u212a", "k", "\u017f", "s")

func TestMaskedTextHasNoSecret(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := pieces(t)
		masked, n := Mask(text)
		if again, more := Mask(masked); again != masked || more != 0 {
			t.Fatalf("masked %q\nas     %q\nand again %q", text, masked, again)
		}
		if n == 0 && masked != text {
			t.Fatalf("%q changed and nothing was found", text)
		}
		if longest := len("[secret:]") + 64; len(masked) > len(text)+n*longest {
			t.Fatalf("%d bytes became %d with %d marks", len(text), len(masked), n)
		}
	})
}

func TestMaskTailKeepsItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, keep := pieces(t), rapid.IntRange(1, 300).Draw(t, "keep")
		tail, _ := MaskTail(text, keep)
		if len(tail) > keep || !utf8.ValidString(tail) {
			t.Fatalf("MaskTail(%q, %d) = %q: %d bytes", text, keep, tail, len(tail))
		}
		if masked, _ := Mask(strings.ToValidUTF8(text, "\ufffd")); !strings.HasSuffix(masked, tail) {
			t.Fatalf("%q is no end of %q", tail, masked)
		}
		if strings.Contains(tail, githubPAT) {
			t.Fatalf("%q holds a secret", tail)
		}
	})
}

// Most rules are tried near their keywords only; their expressions on all of the text
// give the same, and no more than the parts do that an expression is tried in.
func TestFindMissesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := pieces(t) + strings.Repeat(" .", rapid.IntRange(0, 80).Draw(t, "gap")) + pieces(t)
		set := rules()
		s := look(set, text)
		if s == nil {
			return
		}
		got := map[string][]Finding{}
		for _, f := range set.find(s) {
			got[f.Rule] = append(got[f.Rule], f)
		}
		for _, w := range wholeExpressions() {
			if !slices.ContainsFunc(w.keywords, func(k string) bool { return strings.Contains(lower(text), k) }) {
				continue
			}
			find := func(e *regexp.Regexp) (found []Finding) {
				for _, m := range e.FindAllStringSubmatchIndex(text, -1) {
					if f, ok := w.rule.secretIn(s, m, set.allowed); ok {
						found = append(found, f)
					}
				}
				return found
			}
			want := disjoint(find(w.Regexp))
			// What the whole takes for one match can be harmless and hide another of a part of it.
			may := slices.Clone(want)
			for _, part := range w.parts {
				may = append(may, find(part)...)
			}
			got := disjoint(got[w.rule.id])
			if may = disjoint(may); !within(want, got) || !within(got, may) {
				t.Fatalf("%s in %q: %v, the whole text gives %v, and %v in parts", w.rule.id, text, got, want, may)
			}
		}
	})
}

// within reports whether each of some findings lies in one of others.
func within(some, others []Finding) bool {
	return !slices.ContainsFunc(some, func(f Finding) bool {
		return !slices.ContainsFunc(others, func(o Finding) bool { return o.Start <= f.Start && f.End <= o.End })
	})
}

// wholeExpression is that of a rule as it is written, for all of a text, and those of
// its parts if it is tried in several.
type wholeExpression struct {
	*regexp.Regexp
	parts    []*regexp.Regexp
	rule     rule
	keywords []string
}

var wholeExpressions = sync.OnceValue(func() (list []wholeExpression) {
	set := rules()
	add := func(id, pattern string, keywords []string) {
		i := slices.IndexFunc(set.list, func(r rule) bool { return r.id == id })
		whole := wholeExpression{regexp.MustCompile(pattern), nil, set.list[i], keywords}
		if parts := alternatives(pattern); len(parts) > 1 {
			for _, p := range parts {
				whole.parts = append(whole.parts, regexp.MustCompile(p))
			}
		}
		list = append(list, whole)
	}
	for _, f := range gitleaks.Rules {
		if f.Path == "" && f.Regex != "" {
			add(f.ID, f.Regex, f.Keywords)
		}
	}
	for _, o := range own {
		if o.before != nil {
			const lineEnd = `(?:\r?\n|\\n)`
			o.pattern = `((?:\A[A-Za-z0-9+/=]{1,64}` + lineEnd + `)?(?:[A-Za-z0-9+/=]{60,}` + lineEnd + `)*[A-Za-z0-9+/=]+` + lineEnd + `)` + o.pattern
		}
		add(o.id, o.pattern, o.keywords)
	}
	return list
})

// What gitleaks' next release brings must compile and have words to look for.
func TestRulesAreUsable(t *testing.T) {
	set := rules()
	if len(set.list) < 200 {
		t.Fatalf("%d rules", len(set.list))
	}
	keywords := map[uint16]int{}
	for k, list := range set.byKey {
		if w := set.keys.list[k]; w != lower(w) {
			t.Errorf("keyword %q is not in lower case", w)
		}
		for _, n := range list {
			keywords[n]++
		}
	}
	places := map[place]int{}
	for i := range set.list {
		r := &set.list[i]
		p := r.pattern()
		if r.group > p.NumSubexp() {
			t.Errorf("%s: no group %d", r.id, r.group)
		}
		if keywords[uint16(i)] == 0 {
			t.Errorf("%s has no keywords: it would never be tried", r.id)
		}
		if !isMark(mark(r.id)) {
			t.Errorf("%s makes no mark", r.id)
		}
		places[p.place]++
		if p.place == anywhere {
			t.Logf("tried anywhere: %s", r.id)
		}
		for _, a := range append(r.allowed, set.allowed...) {
			if a.pattern != nil {
				a.pattern()
			}
		}
	}
	if places[afterName] < 90 || places[atKeyword] < 80 || places[anywhere] > 30 {
		t.Errorf("%d rules are tried after names, %d at their keywords, %d anywhere: gitleaks writes them otherwise now", places[afterName], places[atKeyword], places[anywhere])
	}
}

func TestNamesOfRules(t *testing.T) {
	simple := 0
	for _, f := range gitleaks.Rules {
		name, _, ok := cutNamed(f.Regex)
		if !ok {
			continue
		}
		names, ok := simpleNames(name)
		if !ok {
			continue
		}
		simple++
		want, whole := beginnings(parsed(name))
		slices.Sort(names)
		slices.Sort(want)
		if !whole || !slices.Equal(names, slices.Compact(want)) {
			t.Errorf("%s: the names are %q, parsed %q", f.ID, names, want)
		}
	}
	if simple < 60 {
		t.Errorf("only %d rules have simple names", simple)
	}
}

func BenchmarkLoad(b *testing.B) {
	for b.Loop() {
		load()
	}
}

// benchmarkTail is 4 KiB as a test run prints it, with the words that rules look for.
func benchmarkTail() string {
	line := "--- FAIL: TestAuthority (0.00s)\n    token_test.go:31: access key = denied, want allow\nok  \tfleetledger/api/auth\t0.412s\n"
	return strings.Repeat(line, 4096/len(line))
}

func BenchmarkMaskTail(b *testing.B) {
	text := benchmarkTail()
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Mask(text)
	}
}

func BenchmarkMaskPlainTail(b *testing.B) {
	text := strings.Repeat("the quick brown fox jumps over it\n", 120)
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Mask(text)
	}
}

// BenchmarkMaskManySecrets is the most that a command may hold: 32 KiB in one word.
func BenchmarkMaskManySecrets(b *testing.B) {
	var text strings.Builder
	for i := 0; text.Len() < 32<<10; i++ {
		fmt.Fprintf(&text, "api_key=%s ", made(fmt.Sprint(i), 20, alnum))
	}
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		MaskArgv([]string{text.String()})
	}
}

func BenchmarkFindInArgv(b *testing.B) {
	argv := []string{"go", "test", "-run", "TestAuthority", "./commands/..."}
	for b.Loop() {
		FindInArgv(argv)
	}
}
