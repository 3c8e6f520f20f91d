package attach

import (
	"os"
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// probed stands for a place in libjvm that reports compiled code.
//
//go:noinline
func probed(n int) int { return n + 1 }

// TestKernelProbes attaches to this program with both kinds of links that the kernel may have:
// every call must be counted, and none after Close.
func TestKernelProbes(t *testing.T) {
	needKernel(t)
	for _, single := range []bool{false, true} {
		name := map[bool]string{false: "multi", true: "single"}[single]
		t.Run(name, func(t *testing.T) {
			o, err := bpf.Load(bpf.Options{NoTick: true, SingleProbes: single})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { o.Close() })
			p := NewProbes(o)
			if !single && !p.uprobes.Multi() {
				t.Skip("needs uprobe.multi links: kernel 6.6")
			}
			p.uprobes.single = single
			self, err := os.Open("/proc/self/exe")
			if err != nil {
				t.Fatal(err)
			}
			defer self.Close()
			site := Site{Offset: offsetOf(t, probed)}
			load := site
			load.Load = &bpf.LoadSite{} // every argument is the constant 0
			if _, err := p.Attach(self, Sites{Load: []Site{load}, CodeUnload: []Site{site},
				ClassUnload: []Site{site}}); err != nil {
				t.Fatal(err)
			}
			const calls = 23
			for i := range calls {
				_ = probed(i)
			}
			check := func(when string) {
				c, err := o.ReadCounts()
				if err != nil {
					t.Fatal(err)
				}
				if c[bpf.EventsAttempted] < calls || c[bpf.EventsAttempted] != c[bpf.EventsDelivered]+
					c[bpf.EventsDroppedRingFull] {
					t.Errorf("%s: %d attempted, %d delivered, %d dropped, want %d", when, c[bpf.EventsAttempted],
						c[bpf.EventsDelivered], c[bpf.EventsDroppedRingFull], calls)
				}
			}
			check("attached")
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			before, _ := o.ReadCounts()
			_ = probed(0)
			if after, _ := o.ReadCounts(); after != before {
				t.Errorf("counted after Close: %v, %v before", after, before)
			}
		})
	}
}

// needKernel skips a test that may not load programs, unless it must.
func needKernel(t *testing.T) {
	t.Helper()
	if os.Getuid() != 0 && os.Getenv("CI") != "true" {
		t.Skip("needs root")
	}
}

// offsetOf returns the offset of a function in the file of this program.
func offsetOf(t *testing.T, function any) uint64 {
	t.Helper()
	pc := uint64(reflect.ValueOf(function).Pointer())
	maps, err := proc.DefaultRoot.Maps(os.Getpid(), proc.Executable)
	if err != nil {
		t.Fatal(err)
	}
	m := maps.Find(pc)
	if m == nil {
		t.Fatalf("%#x is not mapped", pc)
	}
	return pc - m.Start + m.Offset
}

// Sites with equal locations share a slot, and a slot is free when the last of them is gone.
func TestLoadSlots(t *testing.T) {
	layout := func(n int64) bpf.LoadSite { return bpf.LoadSite{Code: bpf.Operand{Displacement: n}} }
	s := newLoadSlots(2)
	take := func(n int64) uint32 {
		t.Helper()
		slot, _, ok := s.take(layout(n))
		if !ok {
			t.Fatalf("no slot for layout %d", n)
		}
		return slot
	}
	first := take(1)
	for range 200 {
		if slot, fresh, ok := s.take(layout(1)); slot != first || fresh || !ok {
			t.Fatalf("the same layout again: slot %d, fresh %v, ok %v; want slot %d", slot, fresh, ok, first)
		}
	}
	second := take(2)
	if first == second {
		t.Errorf("two layouts share slot %d", first)
	}
	if _, _, ok := s.take(layout(3)); ok {
		t.Error("a third layout found a slot of two")
	}
	for range 200 {
		s.give(layout(1))
	}
	if _, _, ok := s.take(layout(3)); ok {
		t.Error("a slot was given away that a library still uses")
	}
	s.give(layout(1))
	if slot, fresh, ok := s.take(layout(3)); slot != first || !fresh || !ok {
		t.Errorf("after the last library of layout 1: slot %d, fresh %v, ok %v; want slot %d, to be written", slot,
			fresh, ok, first)
	}
	for i := range int64(500) { // one after the other, far more than there are slots
		s.give(layout(3 + i))
		take(4 + i)
	}
}
