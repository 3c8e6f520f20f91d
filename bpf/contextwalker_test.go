//go:build linux && amd64

package bpf

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
)

// How a contextWalker takes contexts: what the tick program has as constants.
type contextOptions struct {
	mode    Mode
	check   bool
	confirm uint32 // 0 means DefaultConfirmLevels
	leave   bool   // unknown links are left
}

// A contextWalker takes contexts from this process's memory as the tick program does
// (context_test.bpf.c; in ModeWalk walk_test.bpf.c).
type contextWalker struct {
	walker
	contextMaps
	contextOptions
	context *ebpf.Program
	busy    bool // the places for threads' stacks are
}

// Like the walker, one of each kind serves all tests.
var contextWalkers struct {
	sync.Mutex
	loaded map[contextOptions]*contextWalker
}

func newContextWalker(t testing.TB, opts contextOptions) *contextWalker {
	t.Helper()
	opts.confirm = cmp.Or(opts.confirm, DefaultConfirmLevels)
	c := &contextWalkers
	c.Lock()
	defer c.Unlock()
	if w := c.loaded[opts]; w != nil {
		return w
	}
	w := &contextWalker{contextOptions: opts}
	needKernel(t, w.load())
	if c.loaded == nil {
		c.loaded = map[contextOptions]*contextWalker{}
	}
	c.loaded[opts] = w
	return w
}

func (w *contextWalker) load() error {
	if w.mode == ModeWalk {
		whole, err := loadWalker()
		if err == nil {
			w.walker, w.context = *whole, whole.Walk
		}
		return err
	}
	spec, err := LoadContextTest()
	if err != nil {
		return err
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return err
	}
	spec.Maps["scratches"].MaxEntries, spec.Maps["context_states"].MaxEntries = uint32(cpus), uint32(cpus)
	if err := spec.Variables["walk_ns"].Set(uint64(math.MaxUint32)); err != nil {
		return err
	}
	opts := Options{Contexts: w.mode, CheckContexts: w.check, LeaveUnknown: w.leave, ConfirmLevels: w.confirm}
	if err := opts.setContexts(spec); err != nil {
		return err
	}
	var o ContextTestObjects
	if err := spec.LoadAndAssign(&o, nil); err != nil {
		return err
	}
	w.Counters, w.Epochs, w.Processes, w.Samples = o.Counters, o.Epochs, o.Processes, o.Samples
	w.contextMaps = contextMaps{ChainRates: o.ChainRates, KeptStacks: o.KeptStacks, KnownLinks: o.KnownLinks}
	w.context = o.Context
	return nil
}

// A taken context is the sample with its record's size in bytes, and what the program made of the
// request.
type taken struct {
	Sample
	size uint32
	ns   uint64
}

// take takes the context that r's registers describe. The record goes out.
func (w *contextWalker) take(t testing.TB, r WalkTestRequest) taken {
	t.Helper()
	r.Lost = 0
	return w.run(t, r)
}

// lose is take, but the record is lost.
func (w *contextWalker) lose(t testing.TB, r WalkTestRequest) taken {
	t.Helper()
	r.Lost = 1
	return w.run(t, r)
}

func (w *contextWalker) run(t testing.TB, r WalkTestRequest) taken {
	t.Helper()
	ret, out := w.walker.run(t, w.context, r)
	if ret != 0 {
		t.Fatalf("context returned %d", ret)
	}
	raw, err := w.Samples.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	if int(out.Len) > len(raw) {
		t.Fatalf("record of %d bytes, there is room for %d", out.Len, len(raw))
	}
	got := taken{size: out.Len, ns: out.Ns}
	if err := DecodeSample(slices.Clip(raw[:out.Len]), &got.Sample); err != nil {
		t.Fatal(err)
	}
	w.consistent(t, got)
	return got
}

// sampleFixed is the size of a sample's record without frames, in bytes.
const sampleFixed = uint32(unsafe.Offsetof(ProfileSample{}.Frames))

// consistent checks what holds for every context, whatever the guest's memory has in it.
func (w *contextWalker) consistent(t testing.TB, s taken) {
	t.Helper()
	n := len(s.User)
	if s.End <= EndNone || s.End >= EndCount || n > MaxUserFrames || len(s.Kernel) != 0 {
		t.Fatalf("%d frames, %d of the kernel, ended by %v", n, len(s.Kernel), s.End)
	}
	for i, f := range s.User {
		if f.Kind() < FrameJIT || f.Kind() > FrameNative {
			t.Fatalf("frame %d is %v", i, f)
		}
	}
	size := sampleFixed + 8*uint32(n)
	switch w.mode {
	case ModeWalk:
		if s.Flags&(SampleDepths|SampleLink|SampleDrawn|SampleShared) != 0 || s.End == EndKnown {
			t.Fatalf("flags %#x, ended by %v", s.Flags, s.End)
		}
	case ModeChain:
		size += (4*uint32(n) + 7) &^ 7
		link := s.Flags&SampleLink != 0
		if !link {
			size += 8
		}
		if link && s.LinkTag != 0 || s.Flags&SampleDrawn != 0 && s.LinkTag&LinkSteady == 0 {
			t.Fatalf("flags %#x, link tag %#x", s.Flags, s.LinkTag)
		}
		if s.Flags&SampleDepths == 0 || len(s.Depths) != n || s.Shared != nil || link && s.Flags&SampleDrawn != 0 {
			t.Fatalf("flags %#x, %d depths of %d frames", s.Flags, len(s.Depths), n)
		}
		if link != (s.End == EndKnown) && !w.check || link && n != 2 && !w.check || w.check && s.End == EndKnown {
			t.Fatalf("flags %#x, %d frames, ended by %v", s.Flags, n, s.End)
		}
	case ModePartial:
		if s.Flags&(SampleDepths|SampleLink|SampleDrawn) != 0 || (s.Shared == nil) != w.busy {
			t.Fatalf("flags %#x, shared %v", s.Flags, s.Shared)
		}
		if w.busy {
			break
		}
		size += uint32(unsafe.Sizeof(SharedStack{}))
		h := s.Shared
		known := h.Base != 0
		if h.Serial == 0 || known != (h.Frames != 0) || h.Base == h.Serial || h.Frames >= MaxKeptFrames {
			t.Fatalf("%+v", *h)
		}
		if w.check && (s.End == EndKnown || !known && int(h.Own) != n) ||
			!w.check && (known != (s.End == EndKnown) || int(h.Own) != n) {
			t.Fatalf("%+v of %d frames, ended by %v", *h, n, s.End)
		}
	}
	if s.size != size {
		t.Fatalf("record of %d bytes with %d frames, want %d", s.size, n, size)
	}
}

// keptLevels is KEPT_LEVELS, keptStacks KEPT_STACKS and keptSeries KEPT_SERIES in partial.bpf.h.
const (
	keptLevels = 256
	keptStacks = 1024
	keptSeries = 32
)

// setRate tells the kernel side how often to walk known links of vm, nil for processes without one.
func (w *contextWalker) setRate(t testing.TB, vm *fakeVM, r ChainRate) {
	t.Helper()
	if w.mode == ModeWalk {
		return // it knows no links
	}
	slot := uint32(MaxAttached)
	if vm != nil && vm.Serial != 0 {
		slot = vm.Slot
	}
	if err := w.ChainRates.Put(slot, &r); err != nil {
		t.Fatal(err)
	}
}

var lastGeneration uint32

// forget makes all links of vm unknown, and from then on walks none that is known.
func (w *contextWalker) forget(t testing.TB, vm *fakeVM) {
	t.Helper()
	lastGeneration++
	w.setRate(t, vm, ChainRate{Generation: lastGeneration})
}
