package events

// For header_test.go: the two ways of reading a header.
var (
	ScanHeader        = scanHeader
	ParseHeaderSlowly = parseHeader
)
