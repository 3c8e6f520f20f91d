//go:build linux && amd64

package bpf

import (
	"os"
	"slices"
	"testing"
)

// After a random skip in [1..STRIDE] every STRIDE-th call is a sample, SAMPLES times; the semaphore is asked for at the
// tick, and taken back at the last sample.
func TestKernelPHPBurst(t *testing.T) {
	for _, c := range []struct{ stride, samples uint32 }{{1, 1}, {1, 5}, {7, 1}, {7, 5}} {
		g := newPHPGuest(t, c.stride, c.samples)
		for burst := range 20 {
			now := uint64(1000 * (burst + 1))
			g.tick(t, now)
			if got := g.asked(t); !slices.Equal(got, []PHPAction{PHPArm}) {
				t.Fatalf("%v: asked for %v at the tick", c, got)
			}
			var taken []uint32
			for call := uint32(1); call <= c.stride*c.samples && g.state(t).Left > 0; call++ {
				if g.hit(t, now+uint64(call)) {
					taken = append(taken, call)
				}
			}
			if len(taken) != int(c.samples) || taken[0] < 1 || taken[0] > c.stride || g.state(t).Left != 0 {
				t.Fatalf("%v: samples %v", c, taken)
			}
			for i := range taken {
				if want := taken[0] + uint32(i)*c.stride; taken[i] != want {
					t.Errorf("%v: samples %v", c, taken)
				}
			}
			if got := g.asked(t); !slices.Equal(got, []PHPAction{PHPClear}) {
				t.Errorf("%v: asked for %v at the end", c, got)
			}
		}
	}
}

// A burst that is under way is not begun anew; one that takes too long is.
func TestKernelPHPBurstUnfinished(t *testing.T) {
	g := newPHPGuest(t, 1, 2)
	const begin, limit = 1 << 40, 1_000_000_000
	g.tick(t, begin)
	g.hit(t, begin+10)
	g.tick(t, begin+20)
	if s := g.state(t); s.Burst != begin || s.Ticks != 2 || s.Left != 1 {
		t.Errorf("after a second tick: %+v", s)
	}
	g.tick(t, begin+limit+1)
	if s := g.state(t); s.Burst != begin+limit+1 || s.Ticks != 1 || s.Left != 2 || s.Gaps != 0 {
		t.Errorf("after a tick a second later: %+v", s)
	}
	if got := g.asked(t); !slices.Equal(got, []PHPAction{PHPArm, PHPArm}) {
		t.Errorf("asked for %v", got)
	}
}

// A guest that goes on by the probe without a burst asks for its semaphore to be cleared, now and then.
func TestKernelPHPRefused(t *testing.T) {
	g := newPHPGuest(t, 1, 1)
	const hits = 200
	for i := range uint64(hits) {
		if g.hit(t, i) {
			t.Fatal("a sample without a burst")
		}
	}
	if s := g.state(t); s.Refused != hits {
		t.Errorf("%d hits refused of %d", s.Refused, hits)
	}
	if got := g.asked(t); !slices.Equal(got, []PHPAction{PHPClear, PHPClear, PHPClear}) { // one in 64
		t.Errorf("asked for %v", got)
	}
	if err := g.PhpGuests.Delete(uint32(os.Getpid())); err != nil {
		t.Fatal(err)
	}
	for i := range uint64(hits) {
		g.hit(t, 1<<50+i) // within 100 ms
	}
	if got := g.asked(t); !slices.Equal(got, []PHPAction{PHPStray}) {
		t.Errorf("a stranger asked for %v", got)
	}
}

// Gaps are what lies between the calls of a burst; the shortest one is kept.
func TestKernelPHPGaps(t *testing.T) {
	g := newPHPGuest(t, 3, 2)
	g.tick(t, 100)
	for _, now := range []uint64{1000, 1500, 1700} {
		g.hit(t, now)
	}
	s := g.state(t)
	if s.Gaps > 2 || s.Gaps == 2 && (s.Spent != 700 || s.Least != 200) { // fewer if the test lost its CPU meanwhile
		t.Errorf("%+v", s)
	}
}
