package secrets

import (
	"fmt"
	"strings"
	"testing"
)

// filled is s again and again, in n bytes.
func filled(s string, n int) string { return strings.Repeat(s, n/len(s)+1)[:n] }

// hostile are texts that ask for many rules in many places, each of n bytes: every
// keyword, alone and as a name, and what matches each of gitleaks' rules.
func hostile(n int) map[string]string {
	texts := map[string]string{}
	set := rules()
	all := strings.Join(set.keys.list, " ") + " "
	for _, beside := range []string{" ", "=0123456789abcdef01234567,"} {
		texts["every keyword, "+beside] = filled(strings.Join(set.keys.list, beside)+beside, n)
	}
	if n > len(all) {
		texts["every keyword once, and a line"] = all + strings.Repeat("A", n-len(all))
	}
	beside, every := []string{"", "=", ": ", `": "`, "=0123456789abcdef0123456789abcdef "}, 1
	if testing.Short() {
		beside, every = beside[1:2], 5
	}
	for i, k := range set.keys.list {
		if i%every != 0 {
			continue
		}
		if i%2 == 1 {
			k = strings.ToUpper(k)
		}
		for _, b := range beside {
			texts[k+b] = filled(k+b, n)
		}
	}
	for i, form := range ofTheirForm() {
		if i%every != 0 {
			continue
		}
		texts[fmt.Sprintf("what matches expression %d", i)] = filled(form.Example(1)+" ", n)
	}
	for _, s := range []string{
		`{"api_key":"$KEY"},`, `"access_token": 12345678901,`, `"api_key":"` + made("k", 24, lowers) + `",`, "key key key key=", "asana jira twitter yandex = 0123456789abcdef ",
		"curl -u ana:" + made("pw", 14, alnum) + " ", "curl\n-u ana:" + made("pw", 14, alnum) + "\n", "curl -H 'Authorization: Bearer ", "curl ",
		"Bearer ", "bearer=" + made("bearer", 30, alnum) + " ", "bearer=aB1", "Basic ", "basic YW5hOnBhc3N3b3Jk ", "Bearer a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a.a",
		"-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----\n", "AAAA\n-----END PRIVATE KEY-----\n", made("line", 64, alnum) + "\n", "a://b:", "~a", "glpat-t1_", "ABSK/",
		"[secret:github-pat]", "[secret:", "key=[secret:github-pat]", "://[secret:github-pat]:",
	} {
		texts[s] = filled(s, n)
	}
	return texts
}

// Whoever may write to the ledger may write what makes it look hardest for secrets:
// four times the text is at most about four times the work.
func TestCostGrowsWithTheTextOnly(t *testing.T) {
	const small, times = 2 << 10, 4
	large := hostile(times * small)
	for name, text := range hostile(small) {
		_, _, _, w := mask(text, 0)
		_, _, _, more := mask(large[name], 0)
		if limit := 16 * len(large[name]); more.tried > limit {
			t.Errorf("%.60q: expressions were tried %d times on %d bytes", name, more.tried, len(large[name]))
		}
		if limit := 400 * len(large[name]); more.bytes > limit {
			t.Errorf("%.60q: expressions were tried on %d bytes for %d", name, more.bytes, len(large[name]))
		}
		if more.tried > (times+2)*w.tried+times*small || more.bytes > (times+2)*w.bytes+times*small*40 {
			t.Errorf("%.60q: %+v for %d bytes, %+v for %d", name, w, len(text), more, len(large[name]))
		}
	}
}

// BenchmarkHostile is what an event may hold, and what costs most of it.
func BenchmarkHostile(b *testing.B) {
	const size = 64 << 10
	texts := hostile(size)
	for i, name := range []string{
		`"api_key":"` + made("k", 24, lowers) + `",`, `{"api_key":"$KEY"},`, "api=", "jira", "JIRA=", "asana jira twitter yandex = 0123456789abcdef ", "every keyword, ",
		"every keyword once, and a line", "ABSK/", "curl -u ana:" + made("pw", 14, alnum) + " ",
	} {
		text, ok := texts[name]
		if !ok {
			text = filled(name, size)
		}
		b.Run(fmt.Sprintf("%d %.20s", i, name), func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				Mask(text)
			}
		})
	}
}
