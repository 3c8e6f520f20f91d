//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// Figure 3 of Arnold & Grove: after a tick the first sample is one of the next STRIDE calls, each
// as likely as the others; SAMPLES in all, STRIDE apart; then nothing until the next tick.
func TestKernelBurst(t *testing.T) {
	for _, test := range []struct {
		name            string
		stride, samples uint32
		random          uint32
		want            []int // calls that are sampled, from 1
	}{
		{"one of every call", 1, 4, 12345, []int{1, 2, 3, 4}},
		{"first of the window", 3, 3, 0, []int{1, 4, 7}},
		{"last of the window", 3, 3, 2, []int{3, 6, 9}},
		{"random is taken modulo the stride", 3, 3, 3*1000 + 1, []int{2, 5, 8}},
		{"timer only", 1, 1, 7, []int{1}},
		{"no stride is one", 0, 2, 5, []int{1, 2}},
		{"no samples is nothing", 7, 0, 0, nil},
		{"largest stride", 1<<32 - 1, 1, 4, []int{5}},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBurster(t)
			b.rate(t, test.stride, test.samples, 0)
			b.announce(t, testSlot)
			b.tick(t, test.random)
			var got []int
			for call := 1; call <= 40; call++ {
				if b.method(t, uint64(call)) {
					got = append(got, call)
				}
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("samples are calls %v, want %v", got, test.want)
			}
			if b.slot.Armed != 0 {
				t.Errorf("armed after the burst: %+v", *b.slot)
			}
			if n := b.counted(t, CallsAttempted); n != uint64(len(test.want)) {
				t.Errorf("%d calls reported, want %d", n, len(test.want))
			}
		})
	}
}

// Every so many bursts one has stride 1, the first among them.
func TestKernelBurstCalibration(t *testing.T) {
	b := newBurster(t)
	b.rate(t, 31, 1, 4)
	b.announce(t, testSlot)
	start := b.slot.Burst
	var strides []uint32
	for range 9 {
		b.tick(t, 0)
		strides = append(strides, b.slot.Stride)
		b.method(t, 1)
	}
	// The thread may have had bursts in other tests: what counts is the distance.
	first := slices.Index(strides, 1)
	if first < 0 || first > 3 {
		t.Fatalf("strides %v from burst %d on", strides, start)
	}
	for i, s := range strides {
		if want := map[bool]uint32{true: 1, false: 31}[(i-first)%4 == 0]; s != want {
			t.Errorf("stride of burst %d is %d, want %d", i, s, want)
		}
	}
}

// A tick arms nobody but the owner of a slot, and not twice.
func TestKernelBurstOwner(t *testing.T) {
	for _, test := range []struct {
		name    string
		prepare func(*burster)
		armed   uint64
		skipped uint64
	}{
		{"owner", func(b *burster) { b.announce(t, testSlot) }, 1, 0},
		{"nobody", func(b *burster) {}, 0, 0},
		{"one past the last slot", func(b *burster) { b.announce(t, 60) }, 0, 0},
		{"far past", func(b *burster) { b.announce(t, 1<<40) }, 0, 0},
		{"left", func(b *burster) { b.announce(t, testSlot); b.run(t, b.PlayThreadEnd, BurstTestBurstRequest{}) }, 0,
			0},
		{"burst under way", func(b *burster) { b.announce(t, testSlot); b.slot.Armed = 1 }, 0, 1},
		{"armed by the guest with any value", func(b *burster) { b.announce(t, testSlot); b.slot.Armed = 1<<31 | 1 }, 0,
			1},
		{"the guest has a use of its own for the check", func(b *burster) { b.announce(t, testSlot); b.slot.Armed = 2 },
			1, 0},
		{"owner in an earlier connection", func(b *burster) {
			b.announce(t, testSlot)
			b.guest(t, BurstTestBurstGuest{StartTicks: startTicks(t), Serial: testSerial + 1})
		}, 0, 0},
		{"guest is another process with this pid", func(b *burster) {
			b.announce(t, testSlot)
			b.guest(t, BurstTestBurstGuest{StartTicks: startTicks(t) - 1, Serial: testSerial})
		}, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			b := newBurster(t)
			b.rate(t, 3, 5, 0)
			test.prepare(b)
			own := b.slot.Armed &^ 1
			b.tick(t, 0)
			if b.slot.Armed&^1 != own {
				t.Errorf("the guest's bits %#x became %#x", own, b.slot.Armed&^1)
			}
			armed, skipped := b.counted(t, BurstsArmed), b.counted(t, BurstsSkipped)
			if armed != test.armed || skipped != test.skipped {
				t.Errorf("%d armed, %d skipped, want %d, %d", armed, skipped, test.armed, test.skipped)
			}
			others := *b.page
			others.Slots[testSlot] = BurstTestVmprofSlot{}
			if others != (BurstTestVmprofPage{}) {
				t.Error("something was written outside the slot")
			}
		})
	}
}

// Whoever runs over the probe without having been armed wastes its own time, and only that.
func TestKernelBurstCredit(t *testing.T) {
	b := newBurster(t)
	b.rate(t, 1, 5, 0)
	call := func() { b.run(t, b.PlayCall, BurstTestBurstRequest{Callee: 1, Caller: 2}) }
	call() // owns nothing
	b.announce(t, testSlot)
	call() // was never armed
	b.tick(t, 0)
	b.slot.Left = 1 << 31 // will not stop by itself
	for range 20 {
		call()
	}
	b.tick(t, 0) // the burst is not over: no new credit
	call()
	b.slot.Armed = 0
	b.tick(t, 0)
	call()
	b.announce(t, testSlot) // what was left is lost
	call()

	hits, sampled, refused := b.counted(t, CallHits), b.counted(t, CallsAttempted), b.counted(t, CallHitsRefused)
	if hits != 25 || sampled != 6 || refused != 19 {
		t.Errorf("%d hits, %d sampled, %d refused, want 25, 6, 19", hits, sampled, refused)
	}
	if d, l := b.counted(t, CallsDelivered), b.counted(t, CallsDroppedRingFull); d+l != sampled {
		t.Errorf("%d delivered and %d dropped of %d", d, l, sampled)
	}
}

// FuzzKernelBurst lets a guest do to its page whatever it likes, between ticks, calls and
// announcements. No call is reported without credit, and no slot but the thread's own is touched.
func FuzzKernelBurst(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 1, 0, 1, 0}, uint32(1), uint32(4), uint32(0))
	f.Add([]byte{2, 7, 0, 1, 1, 0, 1, 9, 1, 3, 3, 255, 1, 2, 0, 8, 1, 1}, uint32(3), uint32(2), uint32(2))
	f.Add([]byte{0, 1, 3, 0, 4, 1, 1, 0, 5, 0, 0, 1, 1, 1, 2, 60, 0, 0}, uint32(0), uint32(1<<31), uint32(1))
	f.Fuzz(func(t *testing.T, ops []byte, stride, samples, calibrate uint32) {
		b := newBurster(t)
		b.rate(t, stride, samples, calibrate)
		b.announce(t, testSlot)
		var allowed uint64
		for ; len(ops) >= 2; ops = ops[2:] {
			arg := uint32(ops[1]) * 0x01010101
			switch ops[0] % 6 {
			case 0:
				armed := b.counted(t, BurstsArmed)
				b.tick(t, arg)
				if b.counted(t, BurstsArmed) > armed {
					allowed += uint64(samples)
					s := b.slot
					if s.Armed&1 == 0 || s.Left != samples || s.Skip < 1 || s.Skip > max(s.Stride, 1) {
						t.Fatalf("armed %+v at %dx%d", *s, stride, samples)
					}
				}
			case 1:
				b.method(t, uint64(arg))
			case 2:
				b.announce(t, uint64(ops[1]))
				if ops[1] < 60 {
					b.slot = &b.page.Slots[ops[1]]
				}
			case 3:
				*[]*uint32{&b.slot.Armed, &b.slot.Skip, &b.slot.Left, &b.slot.Stride}[ops[1]%4] = arg
			case 4:
				b.page.Reserved[ops[1]%64] = arg
			case 5:
				b.run(t, b.PlayCall, BurstTestBurstRequest{Callee: uint64(arg)})
			}
		}
		hits, sampled, refused := b.counted(t, CallHits), b.counted(t, CallsAttempted), b.counted(t, CallHitsRefused)
		if hits != sampled+refused || sampled > allowed {
			t.Fatalf("%d hits, %d sampled, %d refused, %d allowed", hits, sampled, refused, allowed)
		}
	})
}
