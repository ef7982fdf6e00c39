//go:build !linux

package load

import "errors"

// usage is not known on this system without a library for it.
func usage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }
