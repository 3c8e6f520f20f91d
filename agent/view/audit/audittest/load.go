// Package audittest simulates recordings of programs of which the cost per unit of work is known.
package audittest

import (
	"math"
	"math/rand/v2"

	"github.com/vmprof-agent/vmprof-agent/agent/view/audit"
)

// A Load is a program: how its cost varies from one window to the next, and from one process to the
// next.
type Load struct {
	Name string
	// Samples is the mean number of samples in a window.
	Samples float64
	// Spread is the standard deviation of the logarithm of the cost of a window, beyond that of
	// counting samples.
	Spread float64
	// Memory is how much of that spread a window has from the one before: the coefficient of an
	// autoregression.
	Memory float64
	// Cluster is how many samples come at once, 1 or more.
	Cluster float64
	// Runs is the standard deviation of the logarithm of the cost of a process: JIT noise.
	Runs float64
}

// Loads are what the tables of docs/measurements/auditing.md and the tests measure.
func Loads() []Load {
	return []Load{
		{Name: "steady", Samples: 500, Cluster: 1},
		{Name: "clustered", Samples: 500, Cluster: 20},
		{Name: "bursty", Samples: 500, Cluster: 1, Spread: 0.3},
		{Name: "slow waves", Samples: 500, Cluster: 1, Spread: 0.1, Memory: 0.5},
		{Name: "rare", Samples: 0.5, Cluster: 1},
	}
}

// perSample is the amount of one sample: nanoseconds at 1000 Hz.
const perSample = 1e6

// Side simulates that many processes of as many windows of one second each, which cost slow times
// what the program does.
func (l Load) Side(random *rand.Rand, runs, windows int, slow float64) audit.Side[string] {
	var s audit.Side[string]
	for range runs {
		run := audit.Run[string]{}
		level := slow * math.Exp(l.Runs*random.NormFloat64()-l.Runs*l.Runs/2)
		state := random.NormFloat64()
		for range windows {
			n := l.Cluster * float64(Poisson(random,
				level*l.Samples/l.Cluster*math.Exp(l.Spread*state-l.Spread*l.Spread/2)))
			cost := audit.Cost{Amount: perSample * n, Samples: n}
			run.Windows = append(run.Windows, audit.Window[string]{Units: 1, Total: cost,
				Keys: map[string]audit.Cost{"all": cost}})
			state = l.Memory*state + math.Sqrt(1-l.Memory*l.Memory)*random.NormFloat64()
		}
		s.Runs = append(s.Runs, run)
	}
	return s
}

// Poisson draws a number with that mean; a normal one if it is large.
func Poisson(random *rand.Rand, mean float64) int {
	if mean > 100 {
		return max(int(math.Round(mean+math.Sqrt(mean)*random.NormFloat64())), 0)
	}
	limit, n, product := math.Exp(-mean), 0, random.Float64()
	for product > limit {
		n++
		product *= random.Float64()
	}
	return n
}
