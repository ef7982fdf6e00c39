package projections

import (
	"strings"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"
)

// Place is a path, or a repository, in the form in which two spellings of one place
// are the same text: Normalization Form C, without separators at its end; and of a
// path on Windows, whose file systems fold case, folded and with "\" between its
// parts. It is for comparing, not for opening: what is shown is what was recorded.
//
//	Place(`d:/docu2`) == Place(`D:\Docu2\`)
//
// A path is one on Windows by its form: a drive's letter, or the "\\" before a
// server. What has another form is compared case by case: two paths that differ only
// so are two places elsewhere.
func Place(path string) string {
	path = norm.NFC.String(path)
	root := windowsRoot(path)
	if root > 0 {
		// Folding can take apart what was composed.
		path = norm.NFC.String(cases.Fold().String(strings.ReplaceAll(path, "/", `\`)))
		return path[:root] + strings.TrimRight(path[root:], `\`)
	}
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		return trimmed
	}
	return path[:min(len(path), 1)]
}

// windowsRoot is how many bytes of a path are its root on Windows, 0 for a path that
// is not of there.
func windowsRoot(path string) int {
	if strings.HasPrefix(path, `\\`) {
		return 2
	}
	if len(path) < 2 || path[1] != ':' || path[0]|0x20 < 'a' || path[0]|0x20 > 'z' {
		return 0
	}
	switch {
	case len(path) == 2:
		return 2
	case path[2] == '\\' || path[2] == '/':
		return 3
	}
	return 0
}
