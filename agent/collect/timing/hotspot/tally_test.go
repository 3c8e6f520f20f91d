package hotspot

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"
)

// What is estimated lies within its interval as often as it should, also for calls that come in
// bursts, whose rate drifts, or that hardly ever come, and for looks at any share of the time.
func TestTallyIntervals(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	const (
		runs   = 400
		ticks  = 6000 // ticks of 10 ms
		tick   = 10 * time.Millisecond
		look   = 10 // ticks
		normal = 1.96
	)
	for _, test := range []struct {
		name  string
		rate  func(at int) float64 // calls a tick
		pause int                  // ticks between looks on average
	}{
		{"even", func(int) float64 { return 20 }, 90},
		{"bursts of 2 s", func(at int) float64 { return float64(at/200%2) * 40 }, 190},
		{"bursts of 0.3 s", func(at int) float64 { return float64(at/30%2) * 40 }, 90},
		{"growing", func(at int) float64 { return float64(at) / 200 }, 190},
		{"rare", func(int) float64 { return 0.02 }, 40},
		{"few looks", func(int) float64 { return 20 }, 2500},
		{"few looks at a beat", func(at int) float64 { return float64(at%20/10) * 40 }, 2500},
	} {
		t.Run(test.name, func(t *testing.T) {
			within, estimated, true_ := 0, 0.0, 0.0
			for run := range runs {
				r := rand.New(rand.NewPCG(uint64(run), 7))
				tl, truth, hits, from := tally{}, 0.0, 0.0, -1
				next := r.IntN(2 * test.pause)
				for at := range ticks {
					calls := poisson(r, test.rate(at))
					truth += calls
					if from < 0 && at >= next {
						from, hits = at, 0
					}
					if from >= 0 {
						if hits += calls; at+1 == from+look {
							tl.look(hits, tick*time.Duration(at+1), tick*look, 0)
							from, next = -1, at+1+r.IntN(2*test.pause)
						}
					}
				}
				n := tl.take(ticks*tick, true)
				if n.Time != ticks*tick {
					t.Fatalf("%v of %v", n.Time, ticks*tick)
				}
				if math.Abs(n.Calls-truth) <= normal*n.Error ||
					n.Calls > 0 && math.Abs(math.Log(truth/n.Calls)) <= normal*n.Error/n.Calls {
					within++
				}
				estimated, true_ = estimated+n.Calls, true_+truth
			}
			t.Logf("%d of %d intervals contain the truth; estimated / true %.3f", within, runs, estimated/true_)
			if within < runs*88/100 { // 95 % is the aim, but there are fewer looks than a normal distribution needs.
				t.Errorf("%d of %d intervals contain the truth", within, runs)
			}
			if ratio := estimated / true_; ratio < 0.95 || ratio > 1.05 {
				t.Errorf("estimated / true is %.3f", ratio)
			}
		})
	}
}

// poisson draws the number of events in a time in which mean are expected.
func poisson(r *rand.Rand, mean float64) (n float64) {
	for sum := r.ExpFloat64(); sum < mean; sum += r.ExpFloat64() {
		n++
	}
	return n
}

// Where all of the time was observed, nothing is estimated; where none was, the next take has it,
// and the last one goes on with the last rate.
func TestTallyTakes(t *testing.T) {
	const second = time.Second
	tl := tally{from: second, taken: second}
	tl.look(10, 2*second, second, 0)
	if n := tl.take(2*second, false); n != (Count{Calls: 10, Time: second, Observed: second}) {
		t.Errorf("observed: %+v", n)
	}
	if n := tl.take(3*second, false); n != (Count{}) {
		t.Errorf("nobody looked: %+v", n)
	}
	tl.look(20, 4*second, second, 0) // stands for the second before as well
	if n := tl.take(4*second, false); n.Calls != 35 || n.Time != 2*second || n.Error <= 0 {
		t.Errorf("half observed: %+v", n)
	}
	if n := tl.take(14*second, true); n.Calls != 200 || n.Time != 10*second || n.Error < 10 {
		t.Errorf("the rest: %+v", n)
	}
	tl = tally{}
	if n := tl.take(second, true); n != (Count{}) {
		t.Errorf("never looked: %+v", n)
	}
	tl.look(0, 2*second, 0, 0) // no code
	if n := tl.take(2*second, true); n.Calls != 0 || n.Time != 2*second {
		t.Errorf("no code: %+v", n)
	}
}
