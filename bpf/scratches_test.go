//go:build linux && amd64

package bpf

import (
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// There is room for the online CPUs, not for all that may ever be.
func TestRoomForCPUs(t *testing.T) {
	for _, test := range []struct {
		online   string
		possible int
		want     uint32
	}{
		{"0-1\n", 2, 2}, {"0", 1, 1}, {"0-3\n", 256, 4}, {"0-63", 256, 64}, {"0-3,8\n", 256, 9}, {"0-255", 256, 256},
		{"0-1", 3, 2},
		{"", 8, 8}, {"0-x", 8, 8}, {"0-9", 8, 8},
	} {
		if got := lastOnline(test.online, test.possible); got != test.want {
			t.Errorf("%q of %d CPUs: room for %d, want %d", test.online, test.possible, got, test.want)
		}
	}
}

// A CPU that was not online when the maps were sized is sampled all the same, with memory that it
// shares. While another one uses that, its samples are dropped and counted.
func TestKernelLaterCPUs(t *testing.T) {
	all := cpus(t)
	later := all[len(all)-1]
	if later == 0 {
		t.Skip("this machine has one CPU")
	}
	was := onlinePath
	t.Cleanup(func() { onlinePath = was })
	onlinePath = filepath.Join(t.TempDir(), "online")
	if err := os.WriteFile(onlinePath, []byte("0\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o, err := Load(Options{FilterByPID: true})
	needKernel(t, err)
	defer o.Close()
	if got := o.Scratches.MaxEntries(); got != 1+spareScratches {
		t.Fatalf("there is room for %d", got)
	}
	if err := o.Pids.Put(uint32(os.Getpid()), uint8(1)); err != nil {
		t.Fatal(err)
	}
	var one, before unix.CPUSet
	one.Set(later)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &before)

	counts := func() Counts {
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	sampled := func() (n int) {
		drain(t, o, func(raw []byte) {
			var s Sample
			if Kind(raw) == EventSample && DecodeSample(raw, &s) == nil && int(s.CPU) == later {
				n++
			}
		})
		return n
	}
	tickWhile := func(done func() bool) {
		stop := tickMe(t, o.Tick, 1000)
		spin(t, done)
		stop()
	}
	found := 0
	tickWhile(func() bool { found += sampled(); return found >= 20 })
	found += sampled()
	c := counts()
	if c[SamplesAttempted] != c[SamplesDelivered]+c[SamplesDroppedNoScratch]+c[SamplesDroppedRingFull] {
		t.Errorf("attempted %d, delivered %d, dropped %d", c[SamplesAttempted], c[SamplesDelivered],
			c[SamplesDroppedNoScratch])
	}

	claim := func(claimed byte) {
		for i := range spareScratches {
			claimIn(t, o.Scratches, 1+i, claimed)
		}
	}
	claim(1)
	tickWhile(func() bool { return counts()[SamplesDroppedNoScratch] >= c[SamplesDroppedNoScratch]+20 })
	if n := sampled(); n != 0 {
		t.Errorf("%d samples with memory that others use", n)
	}
	claim(0)
	tickWhile(func() bool { return sampled() > 0 })
}

// 64-bit code runs in one segment, and in another one in paravirtual guests of Xen.
func TestKernelLongMode(t *testing.T) {
	w := newWalker(t)
	for cs, want := range map[uint64]int32{0x33: 1, 0xe033: 1, 0x23: 0, 0xe02b: 0, 0x10: 0, 0xffff0033: 1} {
		if got, _ := w.run(t, w.LongMode, WalkTestRequest{Begin: cs}); got != want {
			t.Errorf("segment %#x: 64-bit code is %d, want %d", cs, got, want)
		}
	}
}
