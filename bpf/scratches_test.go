//go:build linux && amd64

package bpf

import "testing"

// There is room for the online CPUs and an eighth more, not for all that may ever be.
func TestRoomForCPUs(t *testing.T) {
	for _, test := range []struct {
		online   string
		possible int
		want     uint32
	}{
		{"0-1\n", 2, 2}, {"0", 1, 1}, {"0-3\n", 256, 6}, {"0-63", 256, 72}, {"0-3,8\n", 256, 11}, {"0-255", 256, 256}, {"0-1", 3, 3},
		{"", 8, 8}, {"0-x", 8, 8}, {"0-9", 8, 8},
	} {
		if got := roomForCPUs(test.online, test.possible); got != test.want {
			t.Errorf("%q of %d CPUs: room for %d, want %d", test.online, test.possible, got, test.want)
		}
	}
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
