package events

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// A drawing has threads of one group with that much time each in drawn waits of some methods. What
// one draw stands for is 1.
type drawing struct {
	rng     *rand.Rand
	threads int
	draws   float64    // expected number of draws of a thread
	parts   [3]float64 // parts of the time, by method
	alike   bool       // every thread waits in all methods, or each in one
	divided bool       // the sum of each thread is known
}

// run returns what was drawn of each method, of all of them together, and the true times.
func (d *drawing) run() (found [3]tally, all tally, truth [3]float64) {
	main := profile.Wall.Main()
	for thread := range d.threads {
		parts := d.parts
		if !d.alike {
			parts = [3]float64{}
			parts[d.pick(d.parts)] = 1
		}
		var n [3]float64
		drawn := 0.
		for method, part := range parts {
			truth[method] += part * d.draws
			n[method] = poisson(d.rng, part*d.draws)
			drawn += n[method]
		}
		each := 1.
		if d.divided && drawn == 0 { // the wait at the end stands for all
			n[d.pick(parts)], drawn = 1, 1
		}
		if d.divided {
			each = d.draws / drawn
		}
		for method := range n {
			if n[method] == 0 {
				continue
			}
			t := tally{drawn: n[method] * each}
			t.values[main] = t.drawn
			if d.divided {
				t.divided = map[dividedTime]drawnTime{{tid: int64(thread)}: {t.drawn, t.drawn * each}}
			} else {
				t.variance = t.drawn * each
			}
			found[method].add(t)
			all.add(t)
		}
	}
	return found, all, truth
}

func (d *drawing) pick(parts [3]float64) int {
	at := d.rng.Float64()
	for method, part := range parts {
		if at -= part; at < 0 {
			return method
		}
	}
	return 0
}

// Of 100 intervals of a method's time at most five do not contain the truth, however few draws
// there are of how many threads.
func TestTimeIntervals(t *testing.T) {
	const runs = 2000
	for _, d := range []drawing{
		{threads: 1, draws: 3}, {threads: 1, draws: 30}, {threads: 1, draws: 300},
		{threads: 8, draws: 1}, {threads: 8, draws: 10}, {threads: 100, draws: 0.3}, {threads: 100, draws: 5},
	} {
		for _, d.divided = range []bool{false, true} {
			for _, d.alike = range []bool{false, true} {
				d.rng, d.parts = rand.New(rand.NewPCG(1, 2)), [3]float64{0.6, 0.35, 0.05}
				written, wrong := 0, 0
				for range runs {
					found, all, truth := d.run()
					for method := range found {
						half := found[method].timeWithin(profile.Wall.Main(), &all)
						if found[method].drawn == 0 || math.IsInf(half, 1) {
							continue
						}
						written++
						if math.Abs(found[method].drawn-truth[method]) > half+1e-9*truth[method] {
							wrong++
						}
					}
				}
				share := float64(wrong) / math.Max(float64(written), 1)
				t.Logf("%d threads, %v draws each, divided %v, alike %v: %d of %d intervals are wrong", d.threads,
					d.draws, d.divided, d.alike, wrong, written)
				const most = 0.05
				if share > most+4*math.Sqrt(most*(1-most)/math.Max(float64(written), 1)) {
					t.Errorf("%.1f %% are wrong", 100*share)
				}
			}
		}
	}
}

// The formula is close to the quantiles of the chi-squared distribution that it stands for.
func TestPoissonWithin(t *testing.T) {
	for n, upper := range map[float64]float64{1: 5.572, 2: 7.225, 5: 11.668, 10: 18.390, 100: 121.627} {
		if got := n + poissonWithin(n); math.Abs(got/upper-1) > 0.01 {
			t.Errorf("%v: %v, want %v", n, got, upper)
		}
	}
}
