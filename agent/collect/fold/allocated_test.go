package fold

import (
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// allocation is an event of a thread: bytes that it stands for, known if it stands for itself.
func allocation(tid uint32, class string, bytes float64, known bool) *Event {
	e := &Event{Kind: profile.Allocations, TID: tid, Every: 1, VMThread: uint64(tid) << 12,
		Labels: profile.EventLabels{Class: class}}
	e.Sums = EventSums{Events: 1, Values: [profile.MaxEventValues]float64{bytes / 8, bytes}}
	if known {
		e.Sums.Known = e.Sums.Values
	}
	return e
}

// What the VM counted is divided among what was observed: of each thread by its own events, and
// what has none has a row of its own.
func TestAllocatedDivided(t *testing.T) {
	var s EventSet
	for _, e := range []*Event{
		allocation(1, "A", 100, false), allocation(1, "B", 300, false), // 800 by the VM: doubled
		allocation(2, "Large", 500, true), allocation(2, "A", 10, false), // 700: the large one is as it is
		allocation(3, "Large", 900, true), // 850: the reading was a bit earlier
		allocation(7, "A", 60, false),     // the thread has ended
	} {
		s.Add(e)
	}
	a := &Allocated{
		Alive: map[uint64]AllocatedThread{1 << 12: {Bytes: 800}, 2 << 12: {TID: 2, Bytes: 700}, 3 << 12: {Bytes: 850},
			4 << 12: {TID: 4, Bytes: 50}, 5 << 12: {Bytes: 5}},
		Ended: 150, Cut: 30, Before: 20, Skew: 7,
	}
	names := guest.NewProcess(proc.Identity{PID: 1}).Names()
	defer names.Close()
	all, extents := s.Profile(names, 0, &CoveredParts{}, a)
	if len(all) != 1 || len(extents) != 1 {
		t.Fatal(all, extents)
	}
	got := map[[2]string]float64{}
	sum := 0.0
	for _, row := range all[0].Rows {
		key := [2]string{string(rune('0' + row.TID)), row.Class}
		got[key] += row.Values[1]
		sum += row.Values[1]
		if row.Class == profile.NoSite && row.Events != 0 {
			t.Errorf("%d events without a site", row.Events)
		}
	}
	for key, want := range map[[2]string]float64{
		{"1", "A"}: 200, {"1", "B"}: 600, {"2", "Large"}: 500, {"2", "A"}: 200, {"3", "Large"}: 850, {"7", "A"}: 120,
		{"4", profile.NoSite}: 50, {"0", profile.NoSite}: 55, // the thread without a number, before, and cut
	} {
		if math.Abs(got[key]-want) > 1e-9 {
			t.Errorf("%v has %v bytes, want %v", key, got[key], want)
		}
	}
	if c := all[0].Coverage; math.Abs(sum-a.Total()) > 1e-9 || c.Within() != 7 || c.Missed != 0 {
		t.Errorf("sum %v ± %v, missed %v; want %v ± 7", sum, c.Within(), c.Missed, a.Total())
	}
	if e := extents[0]; e.There != 2575 || e.Observed != 2575-105 || len(e.Missed) != 3 {
		t.Errorf("extent %+v", e)
	}
	// Nothing was observed at all.
	var none EventSet
	none.ByKind(profile.Allocations)
	all, extents = none.Profile(names, 0, &CoveredParts{}, a)
	if rows := all[0].Rows; extents[0].Observed != 0 || total(all[0]) != a.Total() || rows[0].Class != profile.NoSite {
		t.Errorf("without events: %+v, %+v", rows, extents[0])
	}
}
