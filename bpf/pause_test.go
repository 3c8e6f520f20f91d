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
	begin, operation, collection, end *probe
}

func newFakePauser(t *testing.T) *fakePauser {
	t.Helper()
	p := &fakePauser{prober: newProber(t, Options{})}
	p.begin, p.operation = p.attach(t, p.p.SafepointBegin, 1), p.attach(t, p.p.OperationBegin, 1)
	p.collection, p.end = p.attach(t, p.p.CollectionBegin, 1), p.attach(t, p.p.SafepointEnd, 1)
	site := OperationSite{Name: register(regDI, 8), Len: register(regSI, 8)}
	if err := p.p.OperationSites.Put(p.operation.cookie, &site); err != nil {
		t.Fatal(err)
	}
	return p
}

// operate begins an operation of that name.
func (p *fakePauser) operate(name string) {
	p.operation.hit(arguments{uint64(uintptr(unsafe.Pointer(unsafe.StringData(name)))), uint64(len(name))})
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
		collection bool
		want       string
	}{
		{"no name", nil, false, ""},
		{"a name", []string{"Deoptimize"}, false, "Deoptimize"},
		{"a collection", []string{"G1CollectForAllocation"}, true, "G1CollectForAllocation"},
		{"without one after that", []string{"ThreadDump"}, false, "ThreadDump"},
		{"the first of several", []string{"Cleanup", "G1Concurrent"}, false, "Cleanup"},
		{"the longest", []string{long[:64]}, false, long[:64]},
		{"too long", []string{long}, false, long[:64]},
		{"a name that cannot be read, then one", []string{torn, "ICBufferFull"}, false, "ICBufferFull"},
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
			p.operate(name)
		}
		time.Sleep(100 * time.Microsecond)
		ended := time.Now()
		p.end.hit(arguments{})
		got := p.one(t)
		if got.seen.What != ObservedPause || got.seen.Count != 1 || got.seen.Probe != p.end.cookie || len(got.User) != 0 || got.seen.Stops != uint32(i+1) {
			t.Errorf("%s: %+v with %d frames", test.name, got.seen, len(got.User))
		}
		if got.text != test.want || got.seen.Flags != map[bool]uint8{true: SeenCollection}[test.collection] {
			t.Errorf("%s: %q, flags %#x; want %q, a collection: %v", test.name, got.text, got.seen.Flags, test.want, test.collection)
		}
		least, most := ended.Sub(begun), time.Since(before)
		if took := time.Duration(got.seen.Values[0]); took < least || took > most {
			t.Errorf("%s: took %v, want %v to %v", test.name, took, least, most)
		}
		if e := p.epochs(t); e.Stopped != 0 || e.Collections != collections {
			t.Errorf("%s: afterwards, stopped %d, %d collections; want 0, %d", test.name, e.Stopped, e.Collections, collections)
		}
	}
	p.balanced(t)
}

// Probes that come in another order than a VM has them, as when they are attached meanwhile.
func TestProbePauseDisorder(t *testing.T) {
	p := newFakePauser(t)
	p.end.hit(arguments{})
	p.none(t, "an end without a begin")
	p.operate("Before")
	p.collection.hit(arguments{})
	p.begin.hit(arguments{})
	p.end.hit(arguments{})
	if got := p.one(t); got.text != "" || got.seen.Flags != 0 {
		t.Errorf("%q, flags %#x of what was before the pause", got.text, got.seen.Flags)
	}
	p.end.hit(arguments{})
	p.none(t, "a second end")

	p.begin.hit(arguments{})
	p.operate("First")
	p.collection.hit(arguments{})
	time.Sleep(5 * time.Millisecond)
	p.begin.hit(arguments{}) // the end of the other was not seen
	p.end.hit(arguments{})
	got := p.one(t)
	if took := time.Duration(got.seen.Values[0]); got.text != "" || got.seen.Flags != 0 || took >= 5*time.Millisecond {
		t.Errorf("%q, flags %#x, %v of a pause whose end was not seen", got.text, got.seen.Flags, took)
	}
	if e := p.epochs(t); e.Stops != 3 || e.Stopped != 0 {
		t.Errorf("%d stops, stopped %d; want 3, 0", e.Stops, e.Stopped)
	}
}

// A pause ends for the samples although it is not told, and where there is no VM there are none.
func TestProbePauseUntold(t *testing.T) {
	p := newFakePauser(t)
	p.rate(t, p.end, 0)
	p.begin.hit(arguments{})
	p.end.hit(arguments{})
	p.none(t, "not to be told")
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
