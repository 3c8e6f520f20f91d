package main

import (
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

// A besideTally is one contender's samples of a guest, compared with the truth.
type besideTally struct {
	cpu     time.Duration // used by the guest's threads
	samples int64

	// Samples below a method whose leaves the guest knows: how many name the leaf, only its caller,
	// or a method that did not run. Guests without such knowledge have none.
	right, caller, wrong int64
	// nameless are samples without a Java method.
	nameless int64

	claims []besideClaim
}

// A besideClaim is the share of a method.
type besideClaim struct {
	guests.Claim
	samples int64
}

// tallyBeside compares samples of the guest's own threads with the guest's own measurements.
func tallyBeside(truth guests.Truth, samples []besideSample) besideTally {
	t := besideTally{cpu: truth.CPU}
	for _, claim := range truth.Claims {
		t.claims = append(t.claims, besideClaim{Claim: claim})
	}
	for _, s := range samples {
		t.samples += s.count
		if len(s.methods) == 0 {
			t.nameless += s.count
			continue
		}
		for i := range t.claims {
			if s.counts(t.claims[i].Claim) {
				t.claims[i].samples += s.count
			}
		}
		for _, leaf := range truth.Leaves {
			if slices.Contains(s.methods, leaf.Outer) {
				*t.verdict(s, leaf, truth.Leaves) += s.count
			}
		}
	}
	return t
}

// counts reports whether the sample belongs to the claim. [inlined in M] does not count as time of
// M itself.
func (s besideSample) counts(claim guests.Claim) bool {
	if claim.Measure == guests.Self {
		return s.methods[0] == claim.Name && !s.vague
	}
	return slices.Contains(s.methods, claim.Name)
}

// verdict returns the counter for a sample below leaf.Outer.
func (t *besideTally) verdict(s besideSample, leaf guests.Leaf, all []guests.Leaf) *int64 {
	for _, other := range all {
		if other.Inner != leaf.Inner && slices.Contains(s.methods, other.Inner) {
			return &t.wrong
		}
	}
	if slices.Contains(s.methods, leaf.Inner) {
		return &t.right
	}
	return &t.caller
}

// add adds the samples of another recording.
func (t *besideTally) add(other besideTally) {
	t.cpu += other.cpu
	t.samples += other.samples
	t.right += other.right
	t.caller += other.caller
	t.wrong += other.wrong
	t.nameless += other.nameless
	for _, claim := range other.claims {
		i := slices.IndexFunc(t.claims, func(c besideClaim) bool {
			return c.Measure == claim.Measure &&
				c.Name == claim.Name
		})
		if i < 0 {
			t.claims = append(t.claims, claim)
			continue
		}
		t.claims[i].CPU += claim.CPU
		t.claims[i].samples += claim.samples
	}
}

// due is the expected number of samples in the CPU time that the guest used.
func (t besideTally) due() float64 { return float64(t.cpu) / float64(besidePeriod) }

// share is a fraction of all samples, 0 to 1.
func (t besideTally) share(samples int64) float64 {
	return float64(samples) / max(float64(t.samples), 1)
}

// off returns the error of the share of each claim of that measure, -1 to 1.
func (t besideTally) off(measure guests.Measure) (list []float64) {
	for _, claim := range t.claims {
		if claim.Measure == measure {
			list = append(list, t.share(claim.samples)-float64(claim.CPU)/float64(t.cpu))
		}
	}
	return list
}

// largest is the error with the largest absolute value.
func largest(errors []float64) float64 {
	return slices.MaxFunc(errors, func(a, b float64) int {
		switch {
		case math.Abs(a) < math.Abs(b):
			return -1
		case math.Abs(a) > math.Abs(b):
			return 1
		}
		return 0
	})
}

// wrongNames is the share of samples that may have the name of a method that did not run.
const wrongNames = 0.01

// accurate reports whether shares by any frame are within the tolerance of table shares, and few
// names are wrong.
func (t besideTally) accurate() bool {
	n := max(float64(t.samples), 1)
	for _, claim := range t.claims {
		share := float64(claim.CPU) / float64(t.cpu)
		tolerance := systematic + sigmas*math.Sqrt(share*(1-share)/n)
		if claim.Measure == guests.Total && math.Abs(t.share(claim.samples)-share) > tolerance {
			return false
		}
	}
	return t.share(t.wrong) <= wrongNames+sigmas*math.Sqrt(wrongNames*(1-wrongNames)/n)
}
