package monitors

import (
	"math"
	"testing"
	"time"
)

// recordOf has a minute of a guest: a group with 0.5 CPUs that enters one monitor 2,000 times a second of CPU time, of
// objects of two classes, and another with a whole CPU that does so 100 times.
func recordOf() *record {
	r := &record{plan: newPlan()}
	used := map[int]uint64{}
	for s := range 61 {
		at := time.Duration(s) * time.Second
		used[1] += uint64(500 * time.Millisecond)
		used[2] += uint64(time.Second)
		r.threads.Update(at, []int{1, 2}, func(tid int) (uint64, error) { return used[tid], nil }, func(tid int) string { return []string{"", "a", "b"}[tid] })
		for group, hits := range map[string]int{"a": 20, "b": 1} {
			h := Observed{Window: Window{Sites: sitesAt(16)}, Classes: map[uint64]string{1: "A", 2: "B"}}
			traps := time.Duration(hits) * time.Microsecond
			h.Result = Result{Counts: []int{hits}, Ran: 10*time.Millisecond + traps, Traps: traps, Cost: time.Millisecond}
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

func TestRecordBound(t *testing.T) {
	var r record
	for i := range 3 * maxMeasurements {
		r.keep(measurement{at: time.Duration(i)})
	}
	if n := len(r.measurements); n > maxMeasurements || r.measurements[n-1].at != 3*maxMeasurements-1 {
		t.Errorf("%d windows, the last one at %v", n, r.measurements[n-1].at)
	}
}
