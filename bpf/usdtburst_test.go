//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// After a random skip in [1..STRIDE] every STRIDE-th call is a sample, SAMPLES times. The window is
// asked for at the tick, and its end at the last sample; what comes after that is refused.
func TestKernelUSDTBurst(t *testing.T) {
	for _, c := range []struct{ stride, samples uint32 }{{1, 1}, {1, 5}, {7, 1}, {7, 5}} {
		g := newUSDTGuest(t, c.stride, c.samples)
		for burst := range 20 {
			now := uint64(1000 * (burst + 1))
			g.tick(t, now)
			if got := g.asked(t); !slices.Equal(got, []USDTAction{USDTOpen}) {
				t.Fatalf("%v: asked for %v at the tick", c, got)
			}
			var taken []uint32
			const after = 10
			for call := range c.stride*c.samples + after {
				if g.hit(t, now+uint64(call)) {
					taken = append(taken, call+1)
				}
			}
			if len(taken) != int(c.samples) || taken[0] > c.stride || g.state(t).Left != 0 {
				t.Fatalf("%v: samples %v", c, taken)
			}
			for i := range taken {
				if want := taken[0] + uint32(i)*c.stride; taken[i] != want {
					t.Errorf("%v: samples %v", c, taken)
				}
			}
			if got := g.asked(t); !slices.Equal(got, []USDTAction{USDTFull}) {
				t.Errorf("%v: asked for %v at the end", c, got)
			}
			g.close(t, now)
		}
		if s := g.state(t); s.Refused < 20*10 {
			t.Errorf("%v: %d hits refused", c, s.Refused)
		}
	}
}

// A tick begins no burst while there is one, or while its window is still open; the next burst
// answers for these ticks. A window that nobody closes holds nothing up for longer than a second.
func TestKernelUSDTBurstUnfinished(t *testing.T) {
	g := newUSDTGuest(t, 1, 2)
	const begin, limit = 1 << 40, 1_000_000_000
	g.tick(t, begin)
	g.hit(t, begin+10)
	g.tick(t, begin+20)
	if s := g.state(t); s.Burst != begin || s.Ticks != 2 || s.Left != 1 {
		t.Errorf("after a second tick: %+v", s)
	}
	g.hit(t, begin+30) // the last
	g.tick(t, begin+40)
	if s := g.state(t); s.Burst != begin || s.Left != 0 || s.Missed != 1 {
		t.Errorf("after a tick in a full window: %+v", s)
	}
	g.close(t, begin)
	g.tick(t, begin+50)
	if s := g.state(t); s.Burst != begin+50 || s.Ticks != 2 || s.Missed != 0 || s.Left != 2 || s.Gaps != 0 {
		t.Errorf("after a tick behind it: %+v", s)
	}
	g.tick(t, begin+50+limit+1)
	if s := g.state(t); s.Burst != begin+50+limit+1 || s.Left != 2 {
		t.Errorf("after a tick a second later: %+v", s)
	}
	if got := g.asked(t); !slices.Equal(got, []USDTAction{USDTOpen, USDTFull, USDTOpen, USDTOpen}) {
		t.Errorf("asked for %v", got)
	}
}

// A burst belongs to the thread of its first hit.
func TestKernelUSDTThread(t *testing.T) {
	g := newUSDTGuest(t, 1, 8)
	g.tick(t, 1000)
	if !g.hit(t, 1001) {
		t.Fatal("the first hit is no sample")
	}
	other := make(chan bool)
	go func() { other <- g.hit(t, 1002) }() // on another thread: this one is locked
	if <-other {
		t.Error("a hit of another thread is a sample of the same burst")
	}
	if !g.hit(t, 1003) {
		t.Error("the second hit is no sample")
	}
}

// Without room for its request a tick begins nothing, and is not forgotten.
func TestKernelUSDTNoRoom(t *testing.T) {
	g := newUSDTGuest(t, 1, 1)
	for i := range uint64(200) { // more than the ring has room for
		g.tick(t, 1000+i)
		g.close(t, 1000+i)
	}
	s := g.state(t)
	if asked := g.asked(t); s.Left != 0 || s.Missed == 0 || uint64(len(asked)) != s.Bursts {
		t.Errorf("%d requests, %+v", len(asked), s)
	}
	g.tick(t, 2000)
	if after := g.state(t); after.Ticks != s.Missed+1 || after.Left != 1 {
		t.Errorf("once there is room: %+v", after)
	}
	g.asked(t)
}

// Gaps are what lies between the calls of a burst; the shortest one is kept.
func TestKernelUSDTGaps(t *testing.T) {
	g := newUSDTGuest(t, 3, 2)
	g.tick(t, 100)
	for _, now := range []uint64{1000, 1500, 1700} {
		g.hit(t, now)
	}
	s := g.state(t)
	if s.Gaps > 2 || s.Gaps == 2 && (s.Spent != 700 || s.Least != 200) { // fewer if the test lost its CPU meanwhile
		t.Errorf("%+v", s)
	}
}
