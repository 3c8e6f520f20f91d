//go:build linux && amd64

package bpf

import (
	"bytes"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"
)

// claim sets what says that a CPU's working memory is in use.
func (q *prober) claim(t *testing.T, cpu int, claimed byte) {
	t.Helper()
	claimIn(t, q.p.Scratches, cpu, claimed)
}

func claimIn(t *testing.T, scratches *ebpf.Map, cpu int, claimed byte) {
	t.Helper()
	spec, err := LoadProbe()
	if err != nil {
		t.Fatal(err)
	}
	var scratch *btf.Struct
	if err := spec.Types.TypeByName("scratch", &scratch); err != nil {
		t.Fatal(err)
	}
	offset := uint32(0)
	for _, m := range scratch.Members {
		if m.Name != "watch" {
			continue
		}
		for _, inner := range m.Type.(*btf.Struct).Members {
			if inner.Name == "claimed" {
				offset = (m.Offset + inner.Offset).Bytes()
			}
		}
	}
	memory, err := scratches.LookupBytes(uint32(cpu))
	if err != nil || offset == 0 {
		t.Fatalf("claimed is at %d; %v", offset, err)
	}
	memory[offset] = claimed
	if err := scratches.Put(uint32(cpu), memory); err != nil {
		t.Fatal(err)
	}
}

// What is hit while another thread has the CPU's working memory, as one that is throttled, takes a
// spare. Without any it is dropped, by all kinds of probes, and takes nothing of the memory.
func TestKernelObservationBusy(t *testing.T) {
	q := newProber(t, Options{})
	pinned(t)
	cpu := cpus(t)[0]
	claimAll := func(claimed byte) {
		for i := range spareScratches {
			q.claim(t, int(q.p.Scratches.MaxEntries())-spareScratches+i, claimed)
		}
	}
	q.claim(t, cpu, 1)
	allocation := q.attach(t, q.p.AllocationOutside, 1)
	begin, end := q.attach(t, q.p.SafepointBegin, 1), q.attach(t, q.p.SafepointEnd, 1)
	enter, entered := q.attach(t, q.p.MonitorEnter, 1), q.attach(t, q.p.MonitorEntered, 1)
	value := q.attach(t, q.p.ValueProbe, 1)
	all := func() {
		for _, p := range []*probe{allocation, begin, end, enter, entered, value} {
			p.hit(allocated(0, 0))
		}
	}
	all()
	if n := len(q.observations(t)); n != 4 {
		t.Errorf("%d were recorded with the CPU's memory in use, want 4", n)
	}
	claimAll(1)
	all()
	q.none(t, "working memory is in use")
	if _, _, busy := q.balanced(t); busy != 4 {
		t.Errorf("%d were dropped as memory was in use, want 4", busy)
	}
	q.claim(t, cpu, 0)
	claimAll(0)
	all()
	if n := len(q.observations(t)); n != 4 {
		t.Errorf("%d were recorded when memory was free again, want 4", n)
	}
	q.balanced(t)
}

// Threads that are preempted while they have a CPU's memory: no record has what is another
// thread's, and the memory is free in the end.
func TestKernelObservationsPreempted(t *testing.T) {
	q := newProber(t, Options{RingBytes: 16 << 20})
	h := newFakeHeap(t)
	q.layout(t, h.HotspotHeap)
	const threads, hits = 3, 8000
	cpu := cpus(t)[0]
	var names [threads]string
	var owner sync.Map // keyed by tid: which of the threads owns it
	var running sync.WaitGroup
	var left atomic.Int32
	left.Store(threads)
	for i := range threads {
		probe := q.attach(t, q.p.AllocationOutside, 1)
		names[i] = strings.Repeat(string(rune('a'+i)), 100+i)
		klass := h.klass(names[i], 0)
		running.Go(func() {
			onCPU(t, cpu, func() {
				owner.Store(uint32(unix.Gettid()), i)
				left.Add(-1)
				for left.Load() > 0 {
					unix.Getpid() // until all can begin
				}
				for n := range uint64(hits) {
					probe.hit(arguments{klass, h.mem.base + uint64(i), (n+1)*threads + uint64(i)})
				}
			})
		})
	}
	running.Wait()
	delivered, full, busy := q.balanced(t)
	t.Logf("%d delivered, %d found memory in use", delivered, busy)
	if delivered+full+busy != threads*hits {
		t.Errorf("%d delivered, %d and %d dropped, of %d", delivered, full, busy, threads*hits)
	}
	var last [threads]uint64
	for _, o := range q.observations(t) {
		at, ok := owner.Load(o.Tid)
		if !ok {
			t.Fatalf("a record of thread %d", o.Tid)
		}
		i := at.(int)
		if o.text != names[i] || o.seen.Object != h.mem.base+uint64(i) || o.seen.Values[0]%threads != uint64(i) {
			t.Fatalf("thread %d: object %#x, size %d, text %.5q of %d bytes", i, o.seen.Object, o.seen.Values[0],
				o.text, len(o.text))
		}
		if n := o.seen.Values[0]; n < last[i] {
			t.Fatalf("thread %d: hit %d comes after %d", i, n, last[i])
		} else {
			last[i] = n
		}
	}
	probe := q.attach(t, q.p.AllocationOutside, 1)
	onCPU(t, cpu, func() { probe.hit(allocated(0, 0)) })
	q.one(t)
}

// The values of an execution are read by one program and written by the next. No record has those
// of another thread that was hit on that CPU meanwhile.
func TestKernelValuesPreempted(t *testing.T) {
	q := newProber(t, Options{RingBytes: 16 << 20})
	const threads, hits = 3, 8000
	probe := q.attach(t, q.p.ValueProbe, 1)
	values := ProbedValues{Count: 2}
	values.Values[0], values.Values[1] = text(regDI, 1), number(fromRegister(regSI, 8))
	if err := q.p.ValueProbes.Put(probe.cookie, &values); err != nil {
		t.Fatal(err)
	}
	var texts [threads][]byte // the heap's, which do not move
	var owner sync.Map        // keyed by tid: which of the threads owns it
	var running sync.WaitGroup
	var left atomic.Int32
	left.Store(threads)
	for i := range threads {
		texts[i] = append(bytes.Repeat([]byte{'a' + byte(i)}, 100+i), 0)
		running.Go(func() {
			onCPU(t, cpus(t)[0], func() {
				owner.Store(uint32(unix.Gettid()), i)
				left.Add(-1)
				for left.Load() > 0 {
					unix.Getpid() // until all can begin
				}
				for n := range uint64(hits) {
					probe.hit(arguments{addressOf(texts[i]), n*threads + uint64(i)})
				}
			})
		})
	}
	running.Wait()
	delivered, full, busy := q.balanced(t)
	t.Logf("%d delivered, %d found memory in use", delivered, busy)
	if delivered == 0 || delivered+full+busy != threads*hits {
		t.Errorf("%d delivered, %d and %d dropped, of %d", delivered, full, busy, threads*hits)
	}
	var next [threads]uint64
	for _, o := range q.observations(t) {
		at, ok := owner.Load(o.Tid)
		if !ok {
			t.Fatalf("a record of thread %d", o.Tid)
		}
		i := at.(int)
		want := string(texts[i][:100+i])
		if got, cut := o.ValueText(0); string(got) != want || cut || o.Failed(1) {
			t.Fatalf("thread %d: text %.5q of %d bytes, %+v", i, got, len(got), o.seen)
		}
		n := o.seen.Values[1]
		if n%threads != uint64(i) || n/threads < next[i] {
			t.Fatalf("thread %d: execution %d comes after %d", i, n/threads, next[i])
		}
		next[i] = n/threads + 1
	}
	runtime.KeepAlive(&texts)
}
