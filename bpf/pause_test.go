//go:build linux && amd64

package bpf

import (
	"os"
	"strings"
	"testing"
	"time"
	"unsafe"
)

// A fakePauser has the probes of pauses.
type fakePauser struct {
	*prober
	begin, operation, manager, collection, end *probe
}

func newFakePauser(t *testing.T) *fakePauser {
	t.Helper()
	p := &fakePauser{prober: newProber(t, Options{})}
	p.begin, p.operation = p.attach(t, p.p.SafepointBegin, 1), p.attach(t, p.p.OperationBegin, 1)
	p.collection, p.end = p.attach(t, p.p.CollectionBegin, 1), p.attach(t, p.p.SafepointEnd, 1)
	p.manager = p.attach(t, p.p.ManagerBegin, 1)
	site := NameSite{Name: register(regDI, 8), Len: register(regSI, 8)}
	for _, named := range []*probe{p.operation, p.manager} {
		if err := p.p.NameSites.Put(named.cookie, &site); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// tell hits a probe with a name as its argument.
func tell(p *probe, name string) {
	p.hit(arguments{uint64(uintptr(unsafe.Pointer(unsafe.StringData(name)))), uint64(len(name))})
}

func (p *fakePauser) epochs(t *testing.T) (e Epochs) {
	t.Helper()
	if err := p.o.Epochs.Lookup(uint32(proberSlot), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestKernelPause(t *testing.T) {
	p := newFakePauser(t)
	long := strings.Repeat("Operation", 9)
	brink := edge(t, 4)
	copy(brink, "abcd")
	torn := unsafe.String(unsafe.SliceData(brink), 8)
	for i, test := range []struct {
		name       string
		operations []string
		managers   []string
		collection bool
		operation  string
		collector  string
	}{
		{name: "no name"},
		{name: "an operation", operations: []string{"Deoptimize"}, operation: "Deoptimize"},
		{name: "a collection", operations: []string{"G1CollectForAllocation"}, collection: true,
			operation: "G1CollectForAllocation"},
		{name: "without one after that", operations: []string{"ThreadDump"}, operation: "ThreadDump"},
		{
			name: "a manager", operations: []string{"XMarkEnd"}, managers: []string{"ZGC Pauses"},
			operation: "XMarkEnd", collector: "ZGC Pauses",
		},
		{name: "without one after that", operations: []string{"X"}, operation: "X"},
		{
			name: "of several the first", operations: []string{"Cleanup", "G1Concurrent"},
			managers:   []string{"Copy", "MarkSweepCompact"},
			collection: true, operation: "Cleanup", collector: "Copy",
		},
		{name: "the longest", operations: []string{long[:64]}, managers: []string{long[:64]}, operation: long[:64],
			collector: long[:64]},
		{name: "too long", operations: []string{long}, managers: []string{long}, operation: long[:64],
			collector: long[:64]},
		{
			name: "names that cannot be read, then some", operations: []string{torn, "ICBufferFull"},
			managers:  []string{torn, "PS Scavenge"},
			operation: "ICBufferFull", collector: "PS Scavenge",
		},
	} {
		if e := p.epochs(t); e.Stopped != 0 || e.Stops != uint32(i) {
			t.Errorf("%s: before, stopped %d, %d times", test.name, e.Stopped, e.Stops)
		}
		collections := p.epochs(t).Collections
		before := time.Now()
		p.begin.hit(arguments{})
		begun := time.Now()
		if e := p.epochs(t); e.Stopped != 1 || e.Stops != uint32(i+1) {
			t.Errorf("%s: meanwhile, stopped %d, %d times", test.name, e.Stopped, e.Stops)
		}
		if test.collection {
			p.collection.hit(arguments{})
			collections++
		}
		for _, name := range test.operations {
			tell(p.operation, name)
		}
		for _, name := range test.managers {
			tell(p.manager, name)
		}
		time.Sleep(100 * time.Microsecond) // It is the pause that is measured.
		ended := time.Now()
		p.end.hit(arguments{})
		got := p.one(t)
		if got.seen.What != ObservedPause || got.seen.Count != 1 || got.seen.Probe != p.end.cookie ||
			len(got.User) != 0 || got.seen.Stops != uint32(i+1) {
			t.Errorf("%s: %+v with %d frames", test.name, got.seen, len(got.User))
		}
		collected := test.collection || len(test.managers) > 0
		if operation, collector := got.Cause(); operation != test.operation || collector != test.collector {
			t.Errorf("%s: %q (%q); want %q (%q)", test.name, operation, collector, test.operation, test.collector)
		}
		if got.seen.Flags != map[bool]uint8{true: SeenCollection}[collected] {
			t.Errorf("%s: flags %#x; a collection: %v", test.name, got.seen.Flags, collected)
		}
		least, most := ended.Sub(begun), time.Since(before)
		if took := time.Duration(got.seen.Values[0]); took < least || took > most {
			t.Errorf("%s: took %v, want %v to %v", test.name, took, least, most)
		}
		if e := p.epochs(t); e.Stopped != 0 || e.Collections != collections {
			t.Errorf("%s: afterwards, stopped %d, %d collections; want 0, %d", test.name, e.Stopped, e.Collections,
				collections)
		}
	}
	p.balanced(t)
}

// What the VM has read from its clock counts, if it can be true.
func TestKernelPauseClock(t *testing.T) {
	p := newFakePauser(t)
	began, ended := new(int64), new(int64)
	for probe, word := range map[*probe]*int64{p.begin: began, p.end: ended} {
		from := int64(uintptr(unsafe.Pointer(word))) - int64(probe.pc)
		if err := p.p.ClockSites.Put(probe.cookie, from); err != nil {
			t.Fatal(err)
		}
	}
	const slept = 2 * time.Millisecond
	for _, test := range []struct {
		name         string
		began, ended time.Duration // times from when the probe is hit
		least, most  time.Duration
	}{
		{"both", -400 * time.Millisecond, -time.Millisecond / 2, 390 * time.Millisecond, 400*time.Millisecond +
			time.Second},
		{"the begin only", -400 * time.Millisecond, -time.Hour, 400*time.Millisecond + slept, 400*time.Millisecond +
			time.Second},
		{"begun too long ago", -1100 * time.Millisecond, -time.Hour, slept, time.Second},
		{"begun in the future", time.Hour, -time.Hour, slept, time.Second},
		{"ended in the future", -400 * time.Millisecond, time.Hour, 400*time.Millisecond + slept, 400*time.Millisecond +
			time.Second},
		{"ended before it begun", -100 * time.Millisecond, -500 * time.Millisecond, 100*time.Millisecond + slept,
			100*time.Millisecond + time.Second},
	} {
		*began = monotonic(t) + int64(test.began)
		p.begin.hit(arguments{})
		time.Sleep(slept)
		*ended = monotonic(t) + int64(test.ended)
		p.end.hit(arguments{})
		got := time.Duration(p.one(t).seen.Values[0])
		if got < test.least || got > test.most {
			t.Errorf("%s: took %v, want %v to %v", test.name, got, test.least, test.most)
		}
		if test.name == "both" && got != time.Duration(*ended-*began) {
			t.Errorf("%s: took %v, want what the VM's clock says: %v", test.name, got, time.Duration(*ended-*began))
		}
	}
	if err := p.p.ClockSites.Put(p.begin.cookie, 8-int64(p.begin.pc)); err != nil { // nothing is there
		t.Fatal(err)
	}
	p.begin.hit(arguments{})
	*ended = 0
	p.end.hit(arguments{})
	if got := time.Duration(p.one(t).seen.Values[0]); got > time.Second {
		t.Errorf("took %v where no clock can be read", got)
	}
}

// Probes that come in another order than a VM has them, as when they are attached meanwhile.
func TestProbePauseDisorder(t *testing.T) {
	p := newFakePauser(t)
	p.end.hit(arguments{})
	p.none(t, "an end without a begin")
	tell(p.operation, "Before")
	tell(p.manager, "Before")
	p.collection.hit(arguments{})
	p.begin.hit(arguments{})
	p.end.hit(arguments{})
	uncaused := strings.Repeat("\x00", 128)
	if got := p.one(t); got.text != uncaused || got.seen.Flags != 0 {
		t.Errorf("%q, flags %#x of what was before the pause", got.text, got.seen.Flags)
	}
	p.end.hit(arguments{})
	p.none(t, "a second end")

	p.begin.hit(arguments{})
	tell(p.operation, "First")
	tell(p.manager, "First")
	p.collection.hit(arguments{})
	time.Sleep(5 * time.Millisecond) // It tells the times of the two begins apart.
	again := time.Now()
	p.begin.hit(arguments{}) // the end of the other was not seen
	p.end.hit(arguments{})
	most := time.Since(again)
	got := p.one(t)
	if took := time.Duration(got.seen.Values[0]); got.text != uncaused || got.seen.Flags != 0 || took > most {
		t.Errorf("%q, flags %#x, %v of a pause whose end was not seen", got.text, got.seen.Flags, took)
	}
	if e := p.epochs(t); e.Stops != 3 || e.Stopped != 0 {
		t.Errorf("%d stops, stopped %d; want 3, 0", e.Stops, e.Stopped)
	}
}

// A pause ends for the samples although it is not recorded, and where there is no VM there are none.
func TestProbePauseUnrecorded(t *testing.T) {
	p := newFakePauser(t)
	p.rate(t, p.end, 0)
	p.begin.hit(arguments{})
	p.end.hit(arguments{})
	p.none(t, "not to be recorded")
	if e := p.epochs(t); e.Stops != 1 || e.Stopped != 0 {
		t.Errorf("%d stops, stopped %d; want 1, 0", e.Stops, e.Stopped)
	}
	p.rate(t, p.end, 1)
	if err := p.o.Processes.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	p.begin.hit(arguments{})
	p.end.hit(arguments{})
	p.none(t, "of no VM")
	if e := p.epochs(t); e.Stops != 1 {
		t.Errorf("%d stops of no VM", e.Stops-1)
	}
}
