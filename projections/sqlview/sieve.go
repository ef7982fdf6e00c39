package sqlview

// sieve remembers keys, in a fixed amount of memory: what it does not have was never
// added, what it has may not have been.
type sieve struct{ bits [sieveBits / 64]uint64 }

// sieveBits keeps mistakes below one in a hundred up to six million keys.
const sieveBits = 1 << 26

// places are where the bits of a key lie. Keys are hashes already.
func places(key int64) [4]uint64 {
	k := uint64(key)
	a, b := k%sieveBits, (k>>32|k<<32)%sieveBits|1
	return [4]uint64{a, (a + b) % sieveBits, (a + 2*b) % sieveBits, (a + 3*b) % sieveBits}
}

func (s *sieve) add(key int64) {
	for _, p := range places(key) {
		s.bits[p/64] |= 1 << (p % 64)
	}
}

func (s *sieve) has(key int64) bool {
	for _, p := range places(key) {
		if s.bits[p/64]&(1<<(p%64)) == 0 {
			return false
		}
	}
	return true
}
