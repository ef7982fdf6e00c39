package pebblelog

// recent is a bounded map of what was written last: the half used longer ago is
// dropped, as a whole, when the other half is full. It knows from which group on
// it is complete.
type recent[K comparable, V any] struct {
	limit      int
	young, old map[K]V
	// Everything put in by a group numbered above floor is there; what is only in
	// old was put in by groups numbered turned or less.
	floor, turned uint64
}

func newRecent[K comparable, V any](limit int) recent[K, V] {
	return recent[K, V]{limit: limit, young: make(map[K]V), old: make(map[K]V)}
}

// get returns what was put in for k, and keeps it for longer.
func (r *recent[K, V]) get(k K) (V, bool) {
	v, ok := r.young[k]
	if ok {
		return v, true
	}
	if v, ok = r.old[k]; ok {
		r.young[k] = v
	}
	return v, ok
}

func (r *recent[K, V]) put(k K, v V) { r.young[k] = v }

// turn is called between groups, with the number of groups so far.
func (r *recent[K, V]) turn(group uint64) {
	if len(r.young) < r.limit {
		return
	}
	clear(r.old)
	r.young, r.old = r.old, r.young
	r.floor, r.turned = r.turned, group
}
