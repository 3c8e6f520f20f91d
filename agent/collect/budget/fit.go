package budget

import (
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// strides are the strides to choose from. They are primes: if a loop's number of calls per
// iteration has a factor in common with the stride, a burst shows only some of its calls.
var strides = []int{1, 3, 7, 31, 127, 509}

const (
	// A tick needs minSamples to be worth its interruption, and more than maxSamples would add
	// nothing new.
	minSamples = 16
	maxSamples = 1024
)

// fit returns the best rate that costs at most share of a CPU; one without Hz if there is none.
// Fields of fixed that are not 0 are kept, and the others adapt to them.
//
// The best use of a budget follows from Table 2 of Arnold & Grove (CGO 2005), part B, at 100 ticks
// a second. If calls between samples are nearly free, a long stride is worth more than samples at
// the same cost: 127x128 reaches an overlap of 83% for 3.3% of the CPU, 1x512 74% for 3.2%. So the
// stride is the longest at which passing over calls takes about as long as the hits do. If all
// calls of a burst are hits, it is 1: among 1x256, 3x64, 7x32 and 31x8, about as many hits each,
// overlap falls from 72 to 62%. Next, many short bursts come before few long ones, as samples of
// different bursts differ more than neighbours in one burst. So there are up to MaxHz ticks with 16
// samples each, from where the table's rows gain less than they cost, and the rest of the budget
// goes to more samples.
func fit(limits Limits, cost Cost, share float64) profile.Rate {
	fixed, maxHz := limits.Fixed, limits.MaxHz
	if maxHz == 0 {
		maxHz = MaxHz
	}
	candidates := strides[:worthwhileStrides(cost)]
	if fixed.Stride > 0 {
		candidates = []int{fixed.Stride}
	}
	for _, stride := range slices.Backward(candidates) { // shorter ones may fit where the rest is fixed
		r := fixed
		r.Stride = stride
		if r = fitStride(r, cost, share*float64(time.Second), maxHz); r.Hz > 0 {
			return r
		}
	}
	return profile.Rate{}
}

// fitStride returns the best rate with the stride of r that costs at most budget ns per second; one
// without Hz if there is none.
func fitStride(r profile.Rate, cost Cost, budget float64, maxHz int) profile.Rate {
	if r.Hz == 0 {
		burst := r.Burst
		if burst.Samples == 0 {
			burst.Samples = minSamples
		}
		r.Hz = min(int(budget/float64(max(cost.Burst(burst), 1))), maxHz)
		if r.Hz == 0 && r.Samples == 0 {
			r.Hz = 1 // and fewer samples
		}
	}
	if r.Hz > 0 && r.Samples == 0 {
		sample := cost.Burst(profile.Burst{Stride: r.Stride, Samples: 1}) - cost.TickTime
		r.Samples = min(int((budget/float64(r.Hz)-float64(cost.TickTime))/float64(max(sample, 1))), maxSamples)
	}
	if r.Hz == 0 || r.Samples <= 0 || perSecond(cost, r) > budget {
		return profile.Rate{}
	}
	return r
}

// smallest is the smallest useful rate with the fixed fields: one tick a second, with that many
// samples each. The stride is long all the same: it costs little compared with the samples, and the
// first call after a tick would not be a random one.
func smallest(fixed profile.Rate, cost Cost, samples int) profile.Rate {
	r := fixed
	if r.Hz == 0 {
		r.Hz = 1
	}
	if r.Stride == 0 {
		r.Stride = strides[worthwhileStrides(cost)-1]
	}
	if r.Samples == 0 {
		r.Samples = samples
	}
	return r
}

// worthwhileStrides is how many of strides, from the first on, are so short that the calls between
// two samples cost not much more than a sample.
func worthwhileStrides(cost Cost) int {
	n := 1
	for n < len(strides) && time.Duration(strides[n]-1)*cost.SkipTime <= cost.HitTime*3/2 {
		n++
	}
	return n
}
