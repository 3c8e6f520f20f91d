package hotspot

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A startingVM is a VM with counters, of which only some methods have been called yet.
type startingVM struct{ counts []vmruntime.MethodCounts }

func (v startingVM) Methods() (all []uint64, err error) {
	for i := range v.counts {
		all = append(all, v.counts[i].Method)
	}
	return all, nil
}

func (v startingVM) Counts([]uint64) ([]vmruntime.MethodCounts, time.Duration, error) {
	return v.counts, 0, nil
}

// What methods count that had not been called when all counters were read is of the time since; so are invocations that only
// MethodCounters have, as those by code of level 2.
func TestFirstReading(t *testing.T) {
	const young, before, unread, late = 1, 2, 3, 4
	first, err := readAll(startingVM{[]vmruntime.MethodCounts{
		{Method: young}, // it has MethodCounters, and was not called
		{Method: before, Data: 1, Invocations: 400, Before: 200, Sites: []vmruntime.SiteCounts{
			{BCI: 7, Others: 100, Rows: []vmruntime.RowCount{{Klass: 1, Count: 200}}},
		}},
		{Method: unread, Data: 1, Unreadable: true},
	}})
	if err != nil {
		t.Fatal(err)
	}
	later := first.at + 10*time.Second
	profile := func(m uint64) *vmruntime.MethodProfile {
		return &vmruntime.MethodProfile{
			Method: m, Counted: true, Invocations: 900, Before: 700, Calls: []vmruntime.CallCount{{BCI: 3}, {BCI: 7, Count: 500}},
		}
	}
	rates := func(r *reading, m uint64) estimate.Profile {
		to := estimate.Profile{Sites: make([]estimate.Site, 2)}
		r.rates(profile(m), later, &to)
		return to
	}
	for _, test := range []struct {
		method     uint64
		known      bool
		rate, call float64
	}{
		{young, true, 160, 50}, {before, true, 100, 20}, {unread, false, 0, 0}, {late, true, 160, 50},
	} {
		got := rates(&first, test.method)
		if got.Known != test.known || got.Rate != test.rate || got.Sites[1].Rate != test.call || got.Sites[0].Rate != 0 {
			t.Errorf("method %d: %+v", test.method, got)
		}
	}
	some := first
	some.whole = false
	if got := rates(&some, late); got.Known {
		t.Errorf("a method that was not read: %+v", got)
	}
}

// A window knows of each method the first counts that were read in it.
func TestMergeReadings(t *testing.T) {
	counts := func(at time.Duration, n uint64) methodCounts { return methodCounts{at: at, invocations: n} }
	var r reading
	r.merge(&reading{at: 1, counted: map[uint64]methodCounts{1: counts(1, 10)}})
	before := r
	r.merge(&reading{at: 2, counted: map[uint64]methodCounts{1: counts(2, 20), 2: counts(2, 30)}})
	if len(r.counted) != 2 || r.counted[1].invocations != 10 || r.counted[2].at != 2 || r.at != 1 {
		t.Errorf("merged: %+v", r)
	}
	if len(before.counted) != 1 {
		t.Error("a copy has changed")
	}
	whole := reading{at: 1, counted: map[uint64]methodCounts{1: counts(1, 10)}, whole: true}
	whole.merge(&r)
	if len(whole.counted) != 1 {
		t.Errorf("method 2 had not been called: %+v", whole)
	}
}
