package audit

import (
	"math"

	"github.com/aclements/go-moremath/mathx"
)

// tails is the probability that Student's t with df degrees of freedom is further from 0 than x,
// which is at least 0; 1 if one of them is not a number. The CDF of the library subtracts from 1,
// so that it cannot tell small tails from 0, and panics at what is not a number.
func tails(x, df float64) float64 {
	switch at := df / (df + x*x); {
	case math.IsNaN(x) || !(df > 0):
		return 1
	case math.IsInf(x, 1) || at == 0:
		return 0
	case math.IsNaN(at): // df is infinite
		return math.Erfc(x / math.Sqrt2)
	}
	return mathx.BetaInc(df/(df+x*x), df/2, 0.5)
}

// quantile is the x whose tails are alpha.
func quantile(alpha, df float64) float64 {
	low, high := 0.0, 1.0
	for tails(high, df) > alpha && high < 1e9 {
		high *= 2
	}
	for range 60 {
		if middle := (low + high) / 2; tails(middle, df) > alpha {
			low = middle
		} else {
			high = middle
		}
	}
	return high
}

// normalQuantile is the x beyond which, on both sides of 0, the normal distribution has alpha.
func normalQuantile(alpha float64) float64 { return math.Sqrt2 * math.Erfcinv(alpha) }

// AlwaysValid is how many standard errors an interval must extend on both sides, so that with
// probability 1 - alpha it contains the truth at every one of any number of looks: after n
// observations, for each n of at least first, at which it is about as narrow as it can be. It is
// the normal mixture of Robbins (1970) as an asymptotic confidence sequence (Waudby-Smith, Arbour,
// Sinha, Kennedy and Ramdas 2021, theorem 2.2).
//
// The fixed threshold of a single look, 2.6 for an alpha of 0.01, is exceeded sooner or later by
// every program that is compared with itself.
func AlwaysValid(alpha float64, n, first int) float64 {
	log := -2 * math.Log(alpha)
	rho2 := (log + math.Log(log) + 1) / float64(max(first, 1)) // squared
	t := float64(max(n, 1))*rho2 + 1
	return math.Sqrt(2 * t / (t - 1) * math.Log(math.Sqrt(t)/alpha))
}
