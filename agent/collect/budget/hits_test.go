package budget

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestAllowance(t *testing.T) {
	const ns = time.Nanosecond
	for _, test := range []struct {
		name  string
		share float64
		load  Load
		want  int // 0: refused
	}{
		{"rare", 0.01, Load{Hits: 300, Count: 550 * ns, Record: 5000 * ns, CPUs: 1}, 1},
		{"never hit", 0.01, Load{Count: 550 * ns, Record: 5000 * ns, CPUs: 1}, 1},
		{"just all", 0.01, Load{Hits: 10_000, Count: 100 * ns, Record: 1000 * ns, CPUs: 1}, 1},
		{"one more is too many", 0.01, Load{Hits: 10_001, Count: 100 * ns, Record: 1000 * ns, CPUs: 1}, 2},
		{"half of the budget goes for counting", 0.01, Load{Hits: 10_000, Count: 500 * ns, Record: 5500 * ns, CPUs: 1},
			11},
		{"a prime, not 10", 0.01, Load{Hits: 10_000, Count: 500 * ns, Record: 5450 * ns, CPUs: 1}, 11},
		{"counting is all there is room for", 0.01, Load{Hits: 20_000, Count: 500 * ns, Record: 500 * ns, CPUs: 1}, 1},
		{"no room for a record", 0.01, Load{Hits: 20_000, Count: 500 * ns, Record: 600 * ns, CPUs: 1}, 0},
		{"next to no room", 0.01, Load{Hits: 19_999.9999, Count: 500 * ns, Record: 5000 * ns, CPUs: 1}, 0},
		{"too hot", 0.01, Load{Hits: 220_000, Count: 600 * ns, Record: 5000 * ns, CPUs: 1}, 0},
		{"on 32 CPUs it is not", 0.01, Load{Hits: 220_000, Count: 600 * ns, Record: 5000 * ns, CPUs: 32}, 7},
		{"more than half of the budget goes for counting", 0.01,
			Load{Hits: 10_001, Count: 500 * ns, Record: 5500 * ns, CPUs: 1}, 0},
		{"a guest that is mostly idle earns little", 0.01, Load{Hits: 300, Count: 550 * ns, Record: 5000 * ns,
			CPUs: 0.04}, 7},
		{"counting costs more than a record, as measured", 0.01,
			Load{Hits: 1000, Count: 600 * ns, Record: 500 * ns, CPUs: 1}, 1},
		{"costs are not known", 0.01, Load{Hits: 2000, CPUs: 1}, 3},
		{"nothing is known", 0.01, Load{}, 1},
		{"no budget", 0, Load{Hits: 1, Count: 1, Record: 1, CPUs: 1}, 0},
		{"no number", 0.01, Load{Hits: math.NaN(), Count: 1, Record: 1, CPUs: math.NaN()}, 1},
		{"a budget that is no number", math.NaN(), Load{Hits: 1, Count: 1, Record: 2, CPUs: 1}, 0},
		{"infinitely often", 0.01, Load{Hits: math.Inf(1), Count: 1, Record: 2, CPUs: 1}, 0},
	} {
		got, err := Allowance{Share: test.share}.Every(test.load)
		var hot *TooHotError
		if got != test.want || errors.As(err, &hot) != (test.want == 0) {
			t.Errorf("%s: %d, %v, want %d", test.name, got, err, test.want)
		}
	}
}

// The message has the measured figures.
func TestTooHotError(t *testing.T) {
	_, err := Allowance{Share: 0.01}.Every(Load{Probe: "monitor enter", Hits: 220_000, Count: 600 * time.Nanosecond,
		CPUs: 2})
	const want = "probe monitor enter is hit 220,000 times a second; counting these hits, at 0.6 us each, takes " +
		"13% of a CPU, " +
		"more than half of the budget of 1% of the 2 CPUs that the processes use: choose a probe with fewer hits, or " +
		"--budget above 13%"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
	// Of 4% a quarter is its part.
	_, err = Allowance{Share: 0.04, Part: 0.25}.Every(Load{Probe: "monitor enter", Hits: 220_000,
		Count: 600 * time.Nanosecond, CPUs: 2})
	if err == nil || err.Error() != strings.Replace(want, "above 13%", "above 53%", 1) {
		t.Errorf("%v", err)
	}
}

// The answer keeps the budget, and N - 1 would not, except for primes in between.
func FuzzAllowance(f *testing.F) {
	f.Add(0.01, 220_000., int64(600), int64(5000), 16.)
	f.Add(0.001, 10., int64(0), int64(-5), 0.)
	f.Fuzz(func(t *testing.T, share, hits float64, count, record int64, cpus float64) {
		l := Load{Hits: hits, Count: time.Duration(count), Record: time.Duration(record), CPUs: cpus}
		n, err := Allowance{Share: share}.Every(l)
		if (err == nil) != (n >= 1) {
			t.Fatalf("%d, %v", n, err)
		}
		if err != nil {
			_ = err.Error()
			return
		}
		if count <= 0 || record <= count || !(cpus > 0) || !(hits > 0) {
			return
		}
		cost := hits * (l.Count.Seconds() + (l.Record-l.Count).Seconds()/float64(n))
		if cost > share*cpus*(1+1e-9) {
			t.Errorf("every %d of %+v costs %g of %g", n, l, cost, share*cpus)
		}
		// At least half of the budget is for records. The next prime is less than twice as large.
		if n > 2 && float64(n) > 2*(1+2*(l.Record-l.Count).Seconds()*hits/(share*cpus)) {
			t.Errorf("every %d of %+v", n, l)
		}
	})
}
