package monitors

import (
	"math"
	"math/rand/v2"
	"testing"
)

// A simulation draws windows of a thread that enters monitors at known rates.
type simulation struct {
	*rand.Rand
	rates []float64
	trap  float64 // true time in seconds
	said  float64 // trap time according to calibration
	noise float64 // noise of the time of a window's traps, as a fraction of it
	stall float64 // share of windows that are interrupted for half a millisecond
}

// window returns a window of up to 64 hits or 10 ms, like real ones.
func (s *simulation) window(sites ...int) Observation {
	o := Observation{Sites: sites, Counts: make([]float64, len(sites))}
	sum := 0.
	for _, i := range sites {
		sum += s.rates[i]
	}
	own, hits := 0., 0.
	for hits < MaxHits {
		own += s.ExpFloat64() / sum
		if own > windowLength.Seconds() {
			own = windowLength.Seconds()
			break
		}
		hits++
		lot := s.Float64() * sum
		for k, i := range sites {
			if lot -= s.rates[i]; lot < 0 || k == len(sites)-1 {
				o.Counts[k]++
				break
			}
		}
	}
	o.Traps = hits * s.said
	o.Ran = own + hits*s.trap*(1+s.noise*s.NormFloat64())
	if s.Float64() < s.stall {
		o.Ran += 500e-6
	}
	return o
}

func newSimulation(rates ...float64) *simulation {
	return &simulation{Rand: rand.New(rand.NewPCG(1, 2)), rates: rates, trap: 3e-6, said: 2.7e-6, noise: 0.05,
		stall: 0.05}
}

func TestRates(t *testing.T) {
	for _, test := range []struct {
		name    string
		rates   []float64
		windows [][]int
		within  float64 // relative error bound of shares
		total   float64 // relative error bound of the sum of rates
	}{
		{"hot ones", []float64{3e6, 1.5e6, 1e6, 0.5e6}, [][]int{{0, 1, 2}, {1, 2, 3}, {0, 2, 3}, {0}, {3}}, 0.10, 0.6},
		{"far apart", []float64{3e6, 3e5, 3e4, 3e3, 300}, [][]int{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {1}, {3}, {4}}, 0.2,
			0.3},
		{"rare ones", []float64{5000, 3000, 1000}, [][]int{{0}, {1}, {2}}, 0.05, 0.05},
		{"one", []float64{1e5}, [][]int{{0}}, 0, 0.1},
		{"without a common site", []float64{2e5, 1e5, 5e4}, [][]int{{0, 1}, {2}}, 0.2, 0.2},
		{"a silent one", []float64{1e5, 0}, [][]int{{0, 1}, {1}}, 0.1, 0.2},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSimulation(test.rates...)
			var observations []Observation
			for range 60 {
				for _, sites := range test.windows {
					observations = append(observations, s.window(sites...))
				}
			}
			got := Rates(len(test.rates), observations)
			var sum, want float64
			for i := range got {
				sum += got[i]
				want += test.rates[i]
			}
			for i := range got {
				if share := test.rates[i] / want; math.Abs(got[i]/sum-share) > test.within*share {
					t.Errorf("site %d has a share of %.5f, want %.5f", i, got[i]/sum, share)
				}
			}
			if math.Abs(sum-want) > test.total*want {
				t.Errorf("all rates: %.4g, want %.4g", sum, want)
			}
		})
	}
}

// On a busy host with virtual debug registers a trap takes 16 us, in some windows a third more or
// less, and calibration measured another time. The clocks cannot resolve the 200 ns between two
// acquisitions. Shares do not depend on them. The sum has wide bounds: at least one acquisition per
// 3 us, the error of the times here, and at most ten times the true rate.
func TestRatesOnBusyHost(t *testing.T) {
	for _, said := range []float64{13e-6, 16e-6, 17.5e-6} {
		for seed := range uint64(20) {
			s := newSimulation(2.5e6, 1e6, 0.75e6, 0.75e6)
			s.Rand, s.said, s.noise = rand.New(rand.NewPCG(seed, 3)), said, 0.05
			var observations []Observation
			for range 20 {
				for _, sites := range [][]int{{0, 1, 2}, {1, 2, 3}, {0, 2, 3}, {0, 1, 3}} {
					s.trap = 16e-6 * []float64{0.7, 1, 1.1, 1.2}[s.IntN(4)]
					observations = append(observations, s.window(sites...))
				}
			}
			got := Rates(4, observations)
			sum := got[0] + got[1] + got[2] + got[3]
			if math.Abs(got[0]/sum-0.5) > 0.05 || sum < 1/3e-6 || sum > 50e6 {
				t.Errorf("said %v, seed %d: %.3g of %.3g enters a second, want 2.5e6 of 5e6", said, seed, got, sum)
			}
		}
	}
}

// The clock of a window does not affect ratios if traps take nearly all of its time.
func TestRatesOfUnknownTimes(t *testing.T) {
	s := newSimulation(8e6, 4e6, 2e6)
	var observations []Observation
	for range 200 {
		o := s.window(0, 1, 2)
		o.Ran = 0
		observations = append(observations, o, s.window(2))
	}
	got := Rates(3, observations)
	if math.Abs(got[0]/got[1]-2) > 0.1 || math.Abs(got[1]/got[2]-2) > 0.1 {
		t.Errorf("%.4g", got)
	}
}

// For any observations, rates are valid numbers and the computation terminates.
func FuzzRates(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8})
	f.Add([]byte{0, 0, 0, 0, 255, 255, 255, 255, 1, 0, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var observations []Observation
		for len(data) >= 4 && len(observations) < 100 {
			observations = append(observations, Observation{
				Sites:  []int{int(data[0] % 4), 4 + int(data[0]>>4%4)},
				Counts: []float64{float64(data[1] % 65), float64(data[2] % 65)},
				Ran:    float64(data[3]) * 1e-5, Traps: float64(data[1]) * 3e-6,
			})
			data = data[4:]
		}
		for i, r := range Rates(8, observations) {
			if math.IsNaN(r) || math.IsInf(r, 0) || r < 0 {
				t.Fatalf("rate %d is %v of %+v", i, r, observations)
			}
		}
	})
}
