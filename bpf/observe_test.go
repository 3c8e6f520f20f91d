//go:build linux && amd64

package bpf

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cpus are those that this test may use.
func cpus(t *testing.T) (list []int) {
	t.Helper()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	for cpu := range int(unsafe.Sizeof(all)) * 8 {
		if all.IsSet(cpu) {
			list = append(list, cpu)
		}
	}
	return list
}

// onCPU runs f on a thread of its own that stays on a CPU.
func onCPU(t *testing.T, cpu int, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		var one unix.CPUSet
		one.Set(cpu)
		err := unix.SchedSetaffinity(0, &one)
		if err == nil {
			f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Every CPU counts for itself: of each block of hits one is recorded, of a block that has begun perhaps
// one.
func TestProbeToldOnEachCPU(t *testing.T) {
	q := newProber(t, Options{})
	const hits = 97*2 + 1
	for _, test := range []struct{ every, least, most uint32 }{{0, 0, 0}, {1, hits, hits}, {97, 2, 3}, {hits, 1, 1},
		{hits + 1, 0, 1}} {
		probe := q.attach(t, q.p.AllocationOutside, test.every)
		for _, cpu := range cpus(t) {
			onCPU(t, cpu, func() {
				for range hits {
					probe.hit(allocated(0, 0))
				}
			})
			var counts []ProbeCount
			if err := q.p.ProbeCounts.Lookup(probe.cookie, &counts); err != nil {
				t.Fatal(err)
			}
			recorded := uint32(0)
			for _, o := range q.observations(t) {
				if o.seen.Every != test.every || o.seen.Probe != probe.cookie || int(o.CPU) != cpu {
					t.Errorf("CPU %d: %+v on CPU %d", cpu, o.seen, o.CPU)
				}
				recorded++
			}
			if recorded < test.least || recorded > test.most {
				t.Errorf("one in %d, CPU %d: %d of %d were recorded, want %d to %d", test.every, cpu, recorded, hits,
					test.least, test.most)
			}
			if n := counts[cpu]; n.Hits != hits || n.Told != uint64(recorded) {
				t.Errorf("one in %d, CPU %d: counted %+v, want %d and %d", test.every, cpu, n, hits, recorded)
			}
		}
	}
	if n, want := q.counts(t)[ProbeHits], uint64(5*len(cpus(t))*hits); n != want {
		t.Errorf("%d hits, want %d", n, want)
	}
}

// Threads of all CPUs at once: one in 97 is one in 97 of each CPU's hits, and nothing gets lost
// without being counted.
func TestProbeToldAtOnce(t *testing.T) {
	q := newProber(t, Options{})
	probe := q.attach(t, q.p.AllocationOutside, 97)
	const threads, each = 8, 5000
	var running sync.WaitGroup
	for range threads {
		running.Go(func() {
			for range each {
				probe.hit(allocated(0, 0))
			}
		})
	}
	running.Wait()
	var counts []ProbeCount
	if err := q.p.ProbeCounts.Lookup(probe.cookie, &counts); err != nil {
		t.Fatal(err)
	}
	var hits, recorded uint64
	for cpu, n := range counts {
		if blocks := n.Hits / 97; n.Told != blocks && n.Told != blocks+1 {
			t.Errorf("CPU %d: %d of %d hits were recorded, want %d or one more", cpu, n.Told, n.Hits, blocks)
		}
		hits, recorded = hits+n.Hits, recorded+n.Told
	}
	delivered, _, busy := q.balanced(t)
	if hits != threads*each || recorded != delivered+busy {
		t.Errorf("%d hits, %d recorded, %d delivered and %d busy; want %d hits", hits, recorded, delivered, busy, threads*each)
	}
	if n := uint64(len(q.observations(t))); n != delivered {
		t.Errorf("%d records, %d delivered", n, delivered)
	}
}

// A ring that nobody reads fills, and each observation that it has no room for is counted.
func TestKernelObservationsRingFull(t *testing.T) {
	q := newProber(t, Options{RingBytes: 64 << 10})
	h := newFakeHeap(t)
	q.layout(t, h.HotspotHeap)
	probe := q.attach(t, q.p.AllocationOutside, 1)
	klass := h.klass(strings.Repeat("x", 400), 0)
	const hits = 500 // number of hits, each of more than 400 bytes
	for range hits {
		probe.hit(allocated(klass, h.mem.base))
	}
	delivered, full, busy := q.balanced(t)
	if delivered == 0 || full == 0 || busy != 0 || delivered+full != hits {
		t.Errorf("delivered %d, dropped %d and %d, of %d", delivered, full, busy, hits)
	}
	if n := uint64(len(q.observations(t))); n != delivered {
		t.Errorf("%d records, %d delivered", n, delivered)
	}
	probe.hit(allocated(klass, h.mem.base))
	q.one(t)
}

// An observation has the thread, the place and the frames of where its probe was hit.
func TestKernelObservationContext(t *testing.T) {
	q := newProber(t, Options{})
	pinned(t)
	if err := q.o.Epochs.Put(uint32(proberSlot), &Epochs{Classes: 3, Stops: 9, Stopped: 1}); err != nil {
		t.Fatal(err)
	}
	probe := q.attach(t, q.p.ValueProbe, 1)
	probe.hit(allocated(0, 0))
	got := q.one(t)
	if got.Tid != uint32(unix.Gettid()) || got.Attachment != proberSerial || got.ClassEpoch != 3 ||
		got.seen.Stops != 9 || got.Stopped != 1 {
		t.Errorf("thread %d of VM %d, %d classes, %d stops, stopped %d", got.Tid, got.Attachment, got.ClassEpoch,
			got.seen.Stops, got.Stopped)
	}
	if len(got.User) == 0 || got.User[0] != native(probe.pc) || len(got.Kernel) != 0 || got.Flags != SampleAttached {
		t.Errorf("%d frames from %#x on, flags %#x; want %#x", len(got.User), uint64(got.User[0]), got.Flags, probe.pc)
	}
	if c := q.counts(t); c[NsProbes] == 0 {
		t.Error("it took no time")
	}
	if err := q.o.Processes.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	probe.hit(allocated(0, 0))
	if got := q.one(t); got.Attachment != 0 || got.seen.Stops != 0 || got.Stopped != 0 || len(got.User) == 0 {
		t.Errorf("of no VM: VM %d, %d stops, stopped %d, %d frames", got.Attachment, got.seen.Stops, got.Stopped,
			len(got.User))
	}
}
