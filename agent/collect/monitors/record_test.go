package monitors

import (
	"math"
	"testing"
	"time"
)

// recordOf has a minute of a process. One group with 0.5 CPUs enters a monitor 2,000 times per
// second of CPU time, with objects of two classes. Another with a whole CPU does so 100 times.
func recordOf() *record {
	r := &record{plan: newPlan()}
	used := map[int]uint64{}
	for s := range 61 {
		at := time.Duration(s) * time.Second
		used[1] += uint64(500 * time.Millisecond)
		used[2] += uint64(time.Second)
		r.threads.Update(at, []int{1, 2}, func(tid int) (uint64, error) { return used[tid], nil },
			func(tid int) string { return []string{"", "a", "b"}[tid] })
		for group, hits := range map[string]int{"a": 20, "b": 1} {
			h := Observed{Window: Window{Sites: sitesAt(16)}, Classes: map[uint64]string{1: "A", 2: "B"}}
			traps := time.Duration(hits) * time.Microsecond
			h.Result = Result{Counts: []int{hits}, Ran: 10*time.Millisecond + traps, Traps: traps,
				Cost: time.Millisecond}
			for i := range hits {
				klass := uint64(1)
				if i%4 == 3 {
					klass = 2
				}
				h.Result.Hits = append(h.Result.Hits, Hit{Klass: klass})
			}
			r.add(at, group, &h)
		}
		r.keep(measurement{at: at, cost: time.Millisecond})
	}
	return r
}

func TestAcquisitions(t *testing.T) {
	r := recordOf()
	all, sum := r.acquisitions(10*time.Second, 40*time.Second)
	if sum.Windows != 60 || sum.Hits != 30*21 || sum.Places != 1 || sum.Cost != 90*time.Millisecond {
		t.Errorf("%+v", sum)
	}
	want := map[string]float64{"A": 15*2000*0.75 + 30*100, "B": 15 * 2000 * 0.25}
	if len(all) != 2 {
		t.Fatalf("%+v", all)
	}
	for _, a := range all {
		if math.Abs(a.Times/want[a.Class]-1) > 0.05 || a.Address != 16 {
			t.Errorf("%+v, want %.0f", a, want[a.Class])
		}
	}
	if all, sum := r.acquisitions(2*time.Minute, 3*time.Minute); len(all) != 0 || sum != (Summary{}) {
		t.Errorf("when nothing was observed: %+v, %+v", all, sum)
	}
}

// Windows without a result are counted in the windows of the recording that they belong to, and the
// note names them.
func TestMissing(t *testing.T) {
	var r record
	for s := range 60 {
		at := time.Duration(s) * time.Second
		r.lose(at, missed{skipped: 1})
		r.lose(at+time.Second/2, missed{void: 1})
		r.lose(at+time.Second/2, missed{skipped: 1})
	}
	if len(r.losses) != 60 {
		t.Errorf("%d losses are remembered, want one of each second", len(r.losses))
	}
	var void, skipped int
	for from := -time.Second / 3; from < time.Minute; from += 10 * time.Second {
		_, sum := r.acquisitions(from, from+10*time.Second)
		if from < 59*time.Second && (sum.Void != 10 || sum.Skipped != 20) {
			t.Errorf("from %v: %+v", from, sum)
		}
		void, skipped = void+sum.Void, skipped+sum.Skipped
	}
	if void != 60 || skipped != 120 {
		t.Errorf("in consecutive windows %d void and %d skipped, want 60 and 120", void, skipped)
	}
	for want, s := range map[string]Summary{
		"": {Windows: 7},
		"3 watches ended early, because code or threads changed or debug registers were in use": {Void: 3},
		"2 watches did not fit in the budget":                                                   {Skipped: 2},
		"3 watches ended early, because code or threads changed or debug registers were in use, 2 watches did not " +
			"fit in the budget": {Void: 3, Skipped: 2},
	} {
		if got := s.missing(); got != want {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	for s := range 3 * maxLosses {
		r.lose(time.Hour+time.Duration(s)*time.Second, missed{void: 1})
	}
	if n := len(r.losses); n > maxLosses || r.losses[n-1].void != 1 {
		t.Errorf("%d losses, the last one %+v", n, r.losses[n-1])
	}
}

func TestRecordBound(t *testing.T) {
	var r record
	for i := range 3 * maxMeasurements {
		r.keep(measurement{at: time.Duration(i)})
	}
	if n := len(r.measurements); n > maxMeasurements || r.measurements[n-1].at != 3*maxMeasurements-1 {
		t.Errorf("%d windows, the last one at %v", n, r.measurements[n-1].at)
	}
}
