package sqlview

import (
	"database/sql/driver"
	"strconv"
	"strings"

	"modernc.org/sqlite"
)

// registerTrims has trim, ltrim and rtrim with the characters to be trimmed stand for
// SQLite's own. For each character of a text those look through all the others, which
// takes minutes for long ones, and no deadline ends one call. The answers are the same,
// but that a REAL is trimmed of 15 digits.
func registerTrims(d *sqlite.Driver) error {
	for name, trim := range map[string]func(string, func(rune) bool) string{
		"trim": strings.TrimFunc, "ltrim": strings.TrimLeftFunc, "rtrim": strings.TrimRightFunc,
	} {
		if err := d.RegisterFunction(name, &sqlite.FunctionImpl{
			NArgs: 2, Deterministic: true,
			// Else a text ends at its first NUL. Nothing is kept.
			VolatileArgs: true,
			Scalar: func(_ *sqlite.FunctionContext, args []driver.Value) (driver.Value, error) {
				if args[0] == nil || args[1] == nil {
					return nil, nil
				}
				off, _, _ := strings.Cut(sqlText(args[1]), "\x00")
				set := map[rune]bool{}
				for _, r := range off {
					set[r] = true
				}
				return trim(sqlText(args[0]), func(r rune) bool { return set[r] }), nil
			},
		}); err != nil {
			return err
		}
	}
	return nil
}

// sqlText is a value, not NULL, as SQLite casts it to TEXT.
func sqlText(v driver.Value) string {
	switch v := v.(type) {
	case string:
		return v
	case []byte:
		return string(v)
	case int64:
		return strconv.FormatInt(v, 10)
	}
	x, _ := v.(float64)
	text := strings.TrimPrefix(strconv.FormatFloat(x, 'g', 15, 64), "+")
	mantissa, exponent, ok := strings.Cut(text, "e")
	if !strings.ContainsAny(mantissa, ".I") {
		mantissa += ".0"
	}
	if ok {
		return mantissa + "e" + exponent
	}
	return mantissa
}
