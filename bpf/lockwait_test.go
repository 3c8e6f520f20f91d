//go:build linux && amd64

package bpf

import (
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// A fakeMonitor has the probes of monitors in a VM with one object, a Lock.
type fakeMonitor struct {
	*prober
	heap                                *fakeHeap
	enter, light, spun, blocks, entered *probe
	slept                               *probe
	object, monitor, handle             uint64
}

func newFakeMonitor(t *testing.T) *fakeMonitor {
	t.Helper()
	m := &fakeMonitor{prober: newProber(t, Options{}), heap: newFakeHeap(t)}
	m.heap.MonitorObject, m.heap.MonitorOwner = 8, 24
	m.layout(t, m.heap.HotspotHeap)
	m.enter, m.light = m.attach(t, m.p.MonitorEnter, 1), m.attach(t, m.p.LightweightEnter, 1)
	m.spun, m.blocks, m.entered = m.attach(t, m.p.MonitorSpun, 1), m.attach(t, m.p.MonitorBlocks, 1),
		m.attach(t, m.p.MonitorEntered, 1)
	m.slept = m.attach(t, m.p.MonitorSlept, 1)
	m.object = m.heap.object(m.heap.klass("Lock", 0), 0)
	m.monitor, m.handle = m.heap.allocate(32), m.heap.allocate(8)
	m.heap.mem.put64(m.monitor+8, m.object)
	m.own(1)
	m.heap.mem.put64(m.handle, m.object)
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	return m
}

// own gives the monitor an owner, 0 for none.
func (m *fakeMonitor) own(owner uint64) { m.heap.mem.put64(m.monitor+24, owner) }

func TestKernelMonitor(t *testing.T) {
	const spun, blocked = 1, 2
	m := newFakeMonitor(t)
	for _, test := range []struct {
		name  string
		way   int
		spins []uint64 // what spinning returned
		want  uint8
	}{
		{"free", 0, nil, 0},
		{"taken", blocked, nil, SeenContended},
		{"spun for nothing", blocked, []uint64{0}, SeenContended},
		{"spun with failure", spun, []uint64{^uint64(0)}, SeenContended},
		{"spun", spun, []uint64{1}, SeenContended | SeenSpun},
		{"spun at last", spun, []uint64{0, 1}, SeenContended | SeenSpun},
		{"true, and what else was in the register", spun, []uint64{0xffff_ff01}, SeenContended | SeenSpun},
		{"false, and what else was in the register", spun, []uint64{0xffff_ff00}, SeenContended},
	} {
		t.Run(test.name, func(t *testing.T) {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			for name, begin := range map[string]func(){
				"monitor": func() { m.enter.hit(arguments{m.monitor}) },
				"handle":  func() { m.light.hit(arguments{m.handle}) },
			} {
				before := time.Now()
				begin()
				begun := time.Now()
				for _, result := range test.spins {
					m.spun.hit(returned(result))
				}
				if test.way == blocked {
					m.blocks.hit(arguments{m.monitor})
				}
				time.Sleep(time.Millisecond) // It is the wait that is measured.
				ended := time.Now()
				m.entered.hit(arguments{})
				got := m.one(t)
				if got.seen.What != ObservedMonitor || got.seen.Count != 2 || got.seen.Probe != m.entered.cookie ||
					got.seen.Every != 1 {
					t.Errorf("%s: %+v", name, got.seen)
				}
				if got.seen.Flags != test.want || got.text != "Lock" || got.seen.Object != m.object {
					t.Errorf("%s: flags %#x of a %q at %#x, want %#x", name, got.seen.Flags, got.text, got.seen.Object,
						test.want)
				}
				least, most := ended.Sub(begun), time.Since(before)
				if took := time.Duration(got.seen.Values[0]); took < least || took > most {
					t.Errorf("%s: took %v, want %v to %v", name, took, least, most)
				}
			}
		})
	}
}

// A probe behind a call is passed by threads that come from elsewhere, too: what they waited for in
// another call ended there.
func TestKernelMonitorOfAnotherCall(t *testing.T) {
	m := newFakeMonitor(t)
	var wait LockWait
	m.enter.hit(arguments{m.monitor})
	if err := m.p.Entering.Lookup(uint32(unix.Gettid()), &wait); err != nil {
		t.Fatal(err)
	}
	returns := wait.Behind
	m.entered.hit(arguments{})
	m.one(t)
	for _, program := range []*probe{m.entered, m.slept} {
		distance := int64(program.pc-returns) + 1
		for _, test := range []struct {
			name     string
			distance int64
			one      bool
		}{
			{"this call", distance, true}, {"another", distance + 1, false}, {"not known", 0, true},
		} {
			if err := m.p.ReturnSites.Put(program.cookie, test.distance); err != nil {
				t.Fatal(err)
			}
			m.enter.hit(arguments{m.monitor})
			program.hit(arguments{})
			if !test.one {
				m.none(t, test.name)
				continue
			}
			if got := m.one(t); got.seen.Object != m.object {
				t.Errorf("%s: %+v", test.name, got.seen)
			}
		}
	}
}

// Where it is not known where the VM spins, a monitor was taken if the thread slept.
func TestKernelMonitorSlept(t *testing.T) {
	m := newFakeMonitor(t)
	m.enter.hit(arguments{m.monitor})
	sleep := unix.NsecToTimespec(1e6) // the thread itself: Go's own sleep may be over before the thread has begun to
	for unix.Nanosleep(&sleep, &sleep) != nil {
	}
	m.slept.hit(arguments{})
	if got := m.one(t); got.seen.Flags != SeenContended {
		t.Errorf("flags %#x of a thread that slept, want %#x", got.seen.Flags, SeenContended)
	}
	for attempt := 0; ; attempt++ { // Go may have the thread sleep for reasons of its own
		m.enter.hit(arguments{m.monitor})
		m.slept.hit(arguments{})
		got := m.one(t)
		if got.seen.Flags == 0 {
			break
		}
		if attempt == 100 {
			t.Fatalf("flags %#x of a thread that has not slept", got.seen.Flags)
		}
	}
}

// A thread that finds its monitor free does not wait, unless another one gets it first.
func TestKernelMonitorFree(t *testing.T) {
	m := newFakeMonitor(t)
	sleep := func() {
		for left := unix.NsecToTimespec(1e6); unix.Nanosleep(&left, &left) != nil; {
		}
	}
	m.own(0)
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.none(t, "a free monitor")
	if n := m.waits(); n != 0 {
		t.Errorf("%d waits are timed after the end", n)
	}
	if n := m.counts(t)[ProbeHits]; n != 2 {
		t.Errorf("%d hits, want 2", n)
	}
	var counts []ProbeCount
	if err := m.p.ProbeCounts.Lookup(m.enter.cookie, &counts); err != nil {
		t.Fatal(err)
	}
	var sum ProbeCount
	for _, n := range counts {
		sum.Hits, sum.Told, sum.Free = sum.Hits+n.Hits, sum.Told+n.Told, sum.Free+n.Free
	}
	if sum.Hits != 1 || sum.Told != 1 || sum.Free != 1 {
		t.Errorf("counted %+v", sum)
	}

	m.enter.hit(arguments{m.monitor})
	m.own(1) // too late to count
	m.blocks.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Flags != SeenContended || got.seen.Object != m.object {
		t.Errorf("lost to another thread: %+v", got.seen)
	}
	m.own(0)
	m.enter.hit(arguments{m.monitor})
	m.spun.hit(returned(1))
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Flags != SeenContended|SeenSpun {
		t.Errorf("flags %#x of a thread that spun", got.seen.Flags)
	}
	m.enter.hit(arguments{m.monitor})
	sleep()
	m.slept.hit(arguments{})
	if got := m.one(t); got.seen.Flags != SeenContended {
		t.Errorf("flags %#x of a thread that slept", got.seen.Flags)
	}

	// Whether a monitor is free that cannot be read, or whose owner is at an unknown place, is not
	// known.
	m.enter.hit(arguments{8})
	m.entered.hit(arguments{})
	m.one(t)
	m.heap.MonitorOwner = 0
	m.layout(t, m.heap.HotspotHeap)
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.one(t)
	m.balanced(t)
}

// What ends, spins or blocks without having begun is nothing.
func TestProbeMonitorUnbegun(t *testing.T) {
	m := newFakeMonitor(t)
	m.spun.hit(returned(1))
	m.blocks.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.none(t, "not begun")
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.one(t)
	m.entered.hit(arguments{})
	m.none(t, "ended twice")

	m.enter.hit(arguments{m.monitor})
	m.spun.hit(returned(1))
	m.enter.hit(arguments{m.monitor}) // the end of the other was not seen
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Flags != 0 {
		t.Errorf("flags %#x of a wait that was forgotten", got.seen.Flags)
	}

	m.enter.hit(arguments{m.monitor})
	done := make(chan struct{})
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		m.spun.hit(returned(1))
		m.entered.hit(arguments{})
		close(done)
	}()
	<-done
	m.none(t, "another thread's")
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Flags != 0 {
		t.Errorf("flags %#x by another thread", got.seen.Flags)
	}
}

// waits is how many threads' waits are timed.
func (m *fakeMonitor) waits() (n uint64) {
	var tid uint32
	for all := m.p.Entering.Iterate(); all.Next(&tid, new(LockWait)); {
		n++
	}
	return n
}

// Waits that were not to be recorded are not timed, and make an earlier one that was forgotten.
func TestProbeMonitorEvery(t *testing.T) {
	m := newFakeMonitor(t)
	pinned(t)
	m.rate(t, m.enter, 3)
	const hits = 30
	begun, last := uint64(0), uint64(0) // waits that were to be recorded; whether the last one was
	for range hits {
		m.enter.hit(arguments{m.monitor})
		timed := m.waits()
		begun += timed
		m.entered.hit(arguments{})
		if n := m.waits(); n != 0 {
			t.Errorf("%d waits are timed after the end", n)
		}
		if n := uint64(len(m.observations(t))); n != timed {
			t.Errorf("%d of %d timed waits were recorded", n, timed)
		}
	}
	if begun != hits/3 {
		t.Errorf("%d of %d waits were recorded, want one in 3", begun, hits)
	}
	// The ends of waits are not seen: what the next end is of is the last one.
	for n := 0; n < 2 || last != 0; n++ {
		m.enter.hit(arguments{m.monitor})
		last = m.waits()
		if n > 6 {
			t.Fatal("none of six in a row is left out of one in 3")
		}
	}
	m.entered.hit(arguments{})
	m.none(t, "the end of a wait that was not to be recorded")
}

// A thread that ends while it waits leaves nothing in the tables of those that wait, which would be
// full in the end.
func TestProbeMonitorOfDeadThread(t *testing.T) {
	m := newFakeMonitor(t)
	exit, err := link.AttachTracing(link.TracingOptions{Program: m.p.ThreadExit})
	needKernel(t, err)
	defer exit.Close()
	park := m.attach(t, m.p.ParkBegin, 1)
	buffer := m.attach(t, m.p.AllocationInBuffer, 1)
	for range 100 {
		done := make(chan struct{})
		var thread func()
		thread = func() {
			runtime.LockOSThread() // never unlocked: the thread ends, unless it is the first one
			if unix.Gettid() == os.Getpid() {
				go thread()
				<-t.Context().Done()
				return
			}
			m.enter.hit(arguments{m.monitor})
			park.hit(arguments{})
			buffer.hit(arguments{0, 0, 1 << 18, 16})
			close(done)
		}
		go thread()
		<-done
	}
	// A thread is a moment from its end when its goroutine is.
	entries := func() (n int) {
		var tid uint32
		for _, table := range []*ebpf.Map{m.p.Entering, m.p.Parked, m.p.Buffers} {
			for all := table.Iterate(); all.Next(&tid, make([]byte, table.ValueSize())); {
				n++
			}
		}
		return n
	}
	waitFor(t, "entries of threads that are gone to be removed", func() bool { return entries() == 0 })
	if n := m.counts(t)[ProbeHits]; n != 300 {
		t.Errorf("%d hits, want 300", n)
	}
}

// Until the VM of a process is attached, its waits have neither frames nor an object.
func TestProbeMonitorUnattached(t *testing.T) {
	m := newFakeMonitor(t)
	if err := m.o.Processes.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.none(t, "the VM is not attached")
	if c := m.counts(t); c[HitsUnattached] != 1 || c[ObservationsAttempted] != 0 {
		t.Errorf("%d hits before the VM was attached, %d observations begun; want 1 and 0", c[HitsUnattached],
			c[ObservationsAttempted])
	}
	m.announce(t)
	m.entered.hit(arguments{})
	m.none(t, "the end of a wait that began before the VM was attached")
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.one(t)
}

// A thread that has the number of one which died while it waited has not waited.
func TestProbeMonitorOfOtherThread(t *testing.T) {
	m := newFakeMonitor(t)
	m.enter.hit(arguments{m.monitor})
	tid := uint32(unix.Gettid())
	var w LockWait
	if err := m.p.Entering.Lookup(tid, &w); err != nil {
		t.Fatal(err)
	}
	w.Born++
	if err := m.p.Entering.Put(tid, &w); err != nil {
		t.Fatal(err)
	}
	m.spun.hit(returned(1))
	m.entered.hit(arguments{})
	m.none(t, "of a thread that is gone")
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Flags != 0 {
		t.Errorf("flags %#x of another thread's wait", got.seen.Flags)
	}
}

func TestProbeMonitorTableFull(t *testing.T) {
	m := newFakeMonitor(t)
	n := int(m.p.Entering.MaxEntries())
	tids := make([]uint32, n)
	for i := range tids {
		tids[i] = 1<<30 + uint32(i) // no thread has it
	}
	if _, err := m.p.Entering.BatchUpdate(tids, make([]LockWait, n), nil); err != nil {
		t.Fatal(err)
	}
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.none(t, "a wait that found no room")
	if n := m.counts(t)[ObservationsDroppedTableFull]; n != 1 {
		t.Errorf("%d waits found no room, want 1", n)
	}
	m.balanced(t)
	if err := m.p.Entering.Delete(tids[0]); err != nil {
		t.Fatal(err)
	}
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.one(t)
}

// Without a layout, a wait is recorded without an object.
func TestProbeMonitorUnknown(t *testing.T) {
	m := newFakeMonitor(t)
	if err := m.p.Heaps.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	if got := m.one(t); got.seen.Object != 0 || got.text != "" {
		t.Errorf("a %q at %#x", got.text, got.seen.Object)
	}
}

// Who releases a monitor is recorded while a thread waits for it whose wait is recorded.
func TestKernelMonitorReleased(t *testing.T) {
	m := newFakeMonitor(t)
	released := m.attach(t, m.p.MonitorReleased, 1)
	other := m.heap.allocate(32)
	for name, begin := range map[string]func(){
		"monitor": func() { m.enter.hit(arguments{m.monitor}) },
		"handle":  func() { m.light.hit(arguments{m.handle}); m.blocks.hit(arguments{m.monitor}) },
		"found waiting": func() {
			w := LockWait{Begin: 1, Monitor: m.monitor, Lock: m.monitor, Every: 1, Flags: SeenContended}
			if err := m.p.Entering.Put(uint32(unix.Gettid()), &w); err != nil {
				t.Fatal(err)
			}
			if err := m.p.WantedLocks.Put(&LockKey{Lock: m.monitor, Pid: uint32(os.Getpid())}, uint64(1)); err != nil {
				t.Fatal(err)
			}
		},
	} {
		released.hit(arguments{m.monitor})
		m.none(t, name+": nobody waits")
		begin()
		released.hit(arguments{other})
		m.none(t, name+": another monitor")
		done := make(chan struct{})
		go func() {
			released.hit(arguments{m.monitor})
			close(done)
		}()
		<-done
		if got := m.one(t); got.seen.What != ObservedRelease || got.seen.Count != 1 || got.seen.Values[0] != m.monitor {
			t.Errorf("%s: released: %+v", name, got.seen)
		}
		m.entered.hit(arguments{})
		if got := m.one(t); got.seen.What != ObservedMonitor || got.seen.Values[1] != m.monitor {
			t.Errorf("%s: waited: %+v", name, got.seen)
		}
		released.hit(arguments{m.monitor})
		m.none(t, name+": nobody waits any more")
	}
	m.rate(t, m.enter, 0) // nothing is recorded
	m.enter.hit(arguments{m.monitor})
	released.hit(arguments{m.monitor})
	m.none(t, "a wait that is not recorded")
}
