package hotspot

import (
	"cmp"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// callers are who called a version lately: return addresses and threads, with how often. The zero
// value is of none.
type callers struct {
	returns map[uint64]float64
	threads map[int]float64
}

// faded is what a survey leaves of those before it, and forgotten what is too little to be kept.
const (
	faded     = 0.5
	forgotten = 0.1
)

// learn takes over a survey.
func (c *callers) learn(arrivals []bpf.Timed) {
	if len(arrivals) == 0 {
		return
	}
	if c.returns == nil {
		c.returns, c.threads = map[uint64]float64{}, map[int]float64{}
	}
	fade(c.returns)
	fade(c.threads)
	for i := range arrivals {
		c.returns[arrivals[i].Ra]++
		c.threads[int(arrivals[i].Tid)]++
	}
}

func fade[K comparable](m map[K]float64) {
	for k := range m {
		m[k] *= faded
	}
	maps.DeleteFunc(m, func(_ K, n float64) bool { return n < forgotten })
}

// commonest are the n return addresses that most calls came from. The entry itself is none: a
// breakpoint is there already.
func (c *callers) commonest(entry uint64, n int) []uint64 {
	all := slices.SortedFunc(maps.Keys(c.returns), func(a, b uint64) int {
		return cmp.Or(cmp.Compare(c.returns[b], c.returns[a]), cmp.Compare(a, b))
	})
	all = slices.DeleteFunc(all, func(ra uint64) bool { return ra == 0 || ra == entry })
	return all[:min(n, len(all))]
}

// someThreads are up to n of the threads that called, at random.
func (c *callers) someThreads(n int) []int {
	all := slices.Sorted(maps.Keys(c.threads))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}
