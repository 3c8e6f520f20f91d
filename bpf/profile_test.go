//go:build linux

package bpf

import (
	"errors"
	"os"
	"testing"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"
)

// tickMe lets the tick program sample this process's threads that exist, on every CPU, until the
// test or stop ends it.
func tickMe(t *testing.T, tick *ebpf.Program, hz uint64) (stop func()) {
	t.Helper()
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK,
		Size:   uint32(unsafe.Sizeof(unix.PerfEventAttr{})),
		Sample: hz, Bits: unix.PerfBitFreq,
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		t.Fatal(err)
	}
	var closers []func() error
	stop = func() {
		for _, c := range closers {
			_ = c()
		}
		closers = nil
	}
	t.Cleanup(stop)
	for cpu := range cpus {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		needKernel(t, err)
		l, err := link.AttachRawLink(link.RawLinkOptions{Target: fd, Program: tick, Attach: ebpf.AttachPerfEvent})
		if err != nil {
			unix.Close(fd)
			t.Fatalf("attach tick: %v", err)
		}
		closers = append(closers, l.Close, func() error { return unix.Close(fd) })
	}
	return stop
}

var loadedObjects shelf[Options, *Objects]

func (o *Objects) maps() []*ebpf.Map { return mapsIn(o.ProfileMaps, o.CodeMap.CodeMapMaps) }

// load is the real objects, sampling this process only.
func load(t *testing.T, opts Options) *Objects {
	t.Helper()
	opts.FilterByPID = true
	o := loadedObjects.take(t, opts, Load)
	if err := o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	return o
}

// drain reads what is in the ring and hands it to each.
func drain(t *testing.T, o *Objects, each func(raw []byte)) {
	t.Helper()
	drainRing(t, o.Events, each)
}

func drainRing(t testing.TB, ring *ebpf.Map, each func(raw []byte)) {
	t.Helper()
	r, err := ringbuf.NewReader(ring)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.SetDeadline(time.Now().Add(-time.Second)) // what is there, and no waiting
	var rec ringbuf.Record
	for {
		switch err := r.ReadInto(&rec); {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return
		case err != nil:
			t.Fatal(err)
		}
		each(rec.RawSample)
	}
}

// spin uses the CPU until done says so, or too much time has gone by.
func spin(t *testing.T, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatal("waited for a minute of CPU time")
		}
		for begin := time.Now(); time.Since(begin) < 10*time.Millisecond; {
		}
	}
}

// Nobody reads a ring that holds some dozens of samples. Every tick is still accounted for.
func TestKernelLoss(t *testing.T) {
	const hz = 1000
	o := load(t, Options{RingBytes: uint32(os.Getpagesize())})
	counts := func() Counts {
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for round := range 2 { // a ring that was full goes on when it was read
		before := counts()
		stop := tickMe(t, o.Tick, hz)
		spin(t, func() bool { return counts()[SamplesDroppedRingFull] > before[SamplesDroppedRingFull]+50 })
		stop()

		c := counts()
		attempted, delivered := c[SamplesAttempted], c[SamplesDelivered]
		dropped := c[SamplesDroppedRingFull] + c[SamplesDroppedNoScratch]
		if attempted != delivered+dropped {
			t.Errorf("round %d: attempted %d, delivered %d, dropped %d", round, attempted, delivered, dropped)
		}
		if delivered == before[SamplesDelivered] {
			t.Errorf("round %d: nothing delivered", round)
		}
		var drained, bytes uint64
		drain(t, o, func(raw []byte) {
			drained++
			bytes += uint64(len(raw))
			checkOwnSample(t, raw)
		})
		if want := delivered - before[SamplesDelivered]; drained != want {
			t.Errorf("round %d: %d records in the ring, %d delivered", round, drained, want)
		}
		if want := c[RingBytes] - before[RingBytes]; bytes != want {
			t.Errorf("round %d: %d bytes in the ring, %d counted", round, bytes, want)
		}
		if c[TicksFiltered]+c[TicksIdle] == 0 {
			t.Logf("round %d: no tick hit another process", round)
		}
	}
}

// checkOwnSample checks a sample of this process.
func checkOwnSample(t *testing.T, raw []byte) {
	t.Helper()
	var s Sample
	if err := DecodeSample(raw, &s); err != nil {
		t.Fatal(err)
	}
	if Kind(raw) != EventSample || s.Pid != uint32(os.Getpid()) {
		t.Errorf("record of kind %d of process %d, want %d of %d", Kind(raw), s.Pid, EventSample, os.Getpid())
	}
	if s.Start == 0 || s.Time == 0 || s.Comm[0] == 0 {
		t.Errorf("started at %d, sampled at %d, named %q", s.Start, s.Time, s.Comm)
	}
	if len(s.User) == 0 && s.End == EndNone && s.Flags&SampleKernel != 0 {
		return // a thread that is ending has no memory any more
	}
	if len(s.User) == 0 || s.End == EndNone || s.End == EndCompat {
		t.Errorf("%d user frames, ended by %v", len(s.User), s.End)
	}
	if s.Flags&SampleKernel == 0 && len(s.Kernel) != 0 {
		t.Errorf("%d kernel frames, but the tick came in user mode", len(s.Kernel))
	}
}

// A process that is not chosen leaves a count and nothing else.
func TestKernelFilter(t *testing.T) {
	o := load(t, Options{})
	if err := o.Pids.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	tickMe(t, o.Tick, 1000)
	spin(t, func() bool {
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		if c[SamplesAttempted] != 0 {
			t.Fatalf("%d samples attempted", c[SamplesAttempted])
		}
		return c[TicksFiltered] > 10
	})
	drain(t, o, func(raw []byte) { t.Errorf("record of kind %d", Kind(raw)) })
}
