package valueprobe

import (
	"math/bits"
	"slices"
)

// A Reading is one value of one execution.
type Reading struct {
	Failed bool // it could not be read; nothing else is set then
	IsText bool
	Number uint64 // if it is no text
	Signed bool   // Number is in two's complement
	Text   string
	Cut    bool // Text is the beginning of a longer one
}

// A Histogram adds up what one value was: numbers in buckets with their sum, texts one by one. The zero value is empty.
// It has at most 129 buckets and MaxTexts texts, whatever is added.
type Histogram struct {
	Count   uint64 // executions
	Failed  uint64 // of these, executions whose value could not be read
	buckets []BucketCount
	up      sum // of the numbers above zero
	down    sum // of those below, without the sign
	texts   texts
}

// Add adds a reading that stands for so many executions. Numbers are added exactly, in any order, up to 2^64
// executions.
func (h *Histogram) Add(r Reading, executions uint64) {
	h.Count += executions
	switch {
	case r.Failed:
		h.Failed += executions
	case r.IsText:
		h.texts.add(r.Text, executions)
	default:
		b := BucketOf(r.Number, r.Signed)
		h.addBucket(b, executions)
		if b < 0 {
			h.down.add(-r.Number, executions)
		} else {
			h.up.add(r.Number, executions)
		}
	}
}

// Merge adds all that was added to other.
func (h *Histogram) Merge(other *Histogram) {
	h.Count += other.Count
	h.Failed += other.Failed
	for _, c := range other.buckets {
		h.addBucket(c.Bucket, c.Count)
	}
	h.up.merge(other.up)
	h.down.merge(other.down)
	h.texts.merge(&other.texts)
}

func (h *Histogram) addBucket(b Bucket, n uint64) {
	if n == 0 {
		return
	}
	i, found := slices.BinarySearchFunc(h.buckets, b, compareBuckets)
	if !found {
		h.buckets = slices.Insert(h.buckets, i, BucketCount{Bucket: b})
	}
	h.buckets[i].Count += n
}

// Buckets returns the buckets that numbers were in, in their order.
func (h *Histogram) Buckets() []BucketCount { return slices.Clone(h.buckets) }

// Sum is that of all numbers, rounded at the very end.
func (h *Histogram) Sum() float64 { return difference(h.up, h.down) }

// Texts returns texts by count, the largest first, and how many executions had another text. Up to MaxTexts different
// texts all counts are exact and there is no other. Beyond that a count is too low by at most other / (MaxTexts + 1),
// and every text is there that was more than that part of all.
func (h *Histogram) Texts() (top []TextCount, other uint64) { return h.texts.top(), h.texts.other }

// A sum has 128 bits: 2^64 numbers of 64 bits fit.
type sum struct{ high, low uint64 }

// add adds n as often as times says.
func (s *sum) add(n, times uint64) {
	high, low := bits.Mul64(n, times)
	s.merge(sum{high, low})
}

func (s *sum) merge(o sum) {
	var carry uint64
	s.low, carry = bits.Add64(s.low, o.low, 0)
	s.high, _ = bits.Add64(s.high, o.high, carry)
}

// difference is a - b.
func difference(a, b sum) float64 {
	sign := 1.0
	if a.high < b.high || a.high == b.high && a.low < b.low {
		a, b, sign = b, a, -1
	}
	low, borrow := bits.Sub64(a.low, b.low, 0)
	high, _ := bits.Sub64(a.high, b.high, borrow)
	return sign * (float64(high)*(1<<64) + float64(low))
}
