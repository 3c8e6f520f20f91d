//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// Page faults of this thread, with the address that was touched and the registers of who did.
func TestKernelFaults(t *testing.T) {
	q := newProber(t, Options{})
	pinned(t)
	f := q.faults(t)
	page := os.Getpagesize()
	const pages = 8
	mem, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(mem) })
	if err := unix.Madvise(mem, unix.MADV_NOHUGEPAGE); err != nil {
		t.Fatal(err)
	}
	low := addressOf(mem)
	q.layout(t, HotspotHeap{Serial: proberSerial, Flags: HeapYoungBounds, YoungLow: low, YoungHigh: low +
		uint64(4*page)})
	event, err := unix.PerfEventOpen(&unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_PAGE_FAULTS, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: 1, Sample_type: unix.PERF_SAMPLE_ADDR, Bits: unix.PerfBitDisabled,
	}, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(event) })
	if err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_SET_BPF, f.PageFault.FD()); err != nil {
		t.Fatal(err)
	}
	touch := func(every uint32) {
		t.Helper()
		if err := unix.Madvise(mem, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if err := q.p.Probes.Put(uint32(ProbeFault), &ProbeRate{Every: every}); err != nil {
			t.Fatal(err)
		}
		if err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_ENABLE, 0); err != nil {
			t.Fatal(err)
		}
		for i := range pages {
			mem[i*page+24] = 1
		}
		if err := unix.IoctlSetInt(event, unix.PERF_EVENT_IOC_DISABLE, 0); err != nil {
			t.Fatal(err)
		}
	}
	touch(1)
	var touched []uint64
	for _, o := range q.observations(t) {
		if o.seen.What != ObservedFault || o.seen.Count != 2 || o.seen.Probe != ProbeFault ||
			o.Tid != uint32(unix.Gettid()) {
			t.Errorf("%+v of thread %d", o.seen, o.Tid)
		}
		address := o.seen.Values[0]
		if address < low || address >= low+uint64(pages*page) {
			continue // the test's own stack, or code
		}
		touched = append(touched, address)
		want := PlaceOld
		if address < low+uint64(4*page) {
			want = PlaceYoung
		}
		if o.seen.Place != want {
			t.Errorf("%#x is at place %d, want %d", address, o.seen.Place, want)
		}
		if len(o.User) == 0 || o.User[0] != native(o.seen.Values[1]) {
			t.Errorf("%d frames, pc %#x", len(o.User), o.seen.Values[1])
		}
		// struct registers: 21 words, the pc among them; one of the others says where the memory
		// is.
		if len(o.text) != 21*8 {
			t.Fatalf("%d bytes of registers", len(o.text))
		}
		var words []uint64
		for text := []byte(o.text); len(text) > 0; text = text[8:] {
			words = append(words, binary.NativeEndian.Uint64(text))
		}
		const ip = 16
		near := func(v uint64) bool { return v >= low && v <= low+uint64(pages*page) }
		if words[ip] != o.seen.Values[1] || !slices.ContainsFunc(words, near) {
			t.Errorf("registers %#x at pc %#x", words, o.seen.Values[1])
		}
	}
	var want []uint64
	for i := range pages {
		want = append(want, low+uint64(i*page)+24)
	}
	if !slices.Equal(touched, want) {
		t.Errorf("touched %#x, want %#x", touched, want)
	}
	touch(0)
	q.none(t, "not to be told")
	if delivered, full, busy := q.balanced(t); delivered == 0 || full+busy != 0 {
		t.Errorf("%d delivered, %d and %d dropped", delivered, full, busy)
	}
}
