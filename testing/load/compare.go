package load

import "slices"

// Comparison is the product beside the reference at one number of clients.
type Comparison struct {
	Clients int     `json:"clients"`
	Rounds  []Round `json:"rounds"`
}

// Round is one measurement of each, one after the other.
type Round struct {
	Product   Result `json:"product"`
	Reference Result `json:"reference"`
}

// Ratio is the product's rate over the reference's.
func (r Round) Ratio() float64 { return r.Product.PerSecond / r.Reference.PerSecond }

// P99Ratio is the product's p99 over the reference's.
func (r Round) P99Ratio() float64 { return r.Product.P99ms / r.Reference.P99ms }

// CPURatio is the product's processor time per event over the reference's, 0 if it is
// not known. What else runs on the machine sways it less than the others.
func (r Round) CPURatio() float64 {
	if r.Reference.CPUMicros == 0 {
		return 0
	}
	return r.Product.CPUMicros / r.Reference.CPUMicros
}

// Median is the median over the rounds of what of picks. Rates drift from one
// round to the next by more than the two differ, so a ratio is taken within each
// round and its median quoted, never the ratio of two medians.
func (c Comparison) Median(of func(Round) float64) float64 {
	list := make([]float64, len(c.Rounds))
	for i, r := range c.Rounds {
		list[i] = of(r)
	}
	slices.Sort(list)
	n := len(list)
	if n == 0 {
		panic("bug: median of no rounds")
	}
	return (list[(n-1)/2] + list[n/2]) / 2
}
