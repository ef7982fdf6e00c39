package events

// For header_test.go: the two ways of reading a header.
var (
	ScanHeaderAfter   = scanHeader
	ParseHeaderSlowly = parseHeader
)
