//go:build linux && amd64

package bpf

import (
	"fmt"
	"testing"
)

// If the probes were not there for a while, the first end of a thread's buffer stands for one
// buffer: what is known of the thread is from before. It is not owed anything, and collections
// meanwhile do not matter.
func TestKernelBufferAfterTurn(t *testing.T) {
	for _, outside := range []bool{false, true} {
		t.Run(fmt.Sprintf("outside before: %v", outside), func(t *testing.T) {
			a := newFakeAllocator(t)
			a.begin(t)
			a.allocate(24, false)
			if outside {
				a.allocate(5000, true)
			}
			a.observations(t)
			for _, p := range []*probe{a.inBuffer, a.beside} {
				a.turn(t, p, 1)
			}
			a.allocate(32, false)
			a.allocate(40, false)
			if got, want := a.said(t), fmt.Sprintf("in 32 of %d, in 40 of %d", tlab, 32+room(32)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// A wait that began before the probes were taken away does not end with a later one.
func TestKernelWaitAfterTurn(t *testing.T) {
	m := newFakeMonitor(t)
	m.enter.hit(arguments{m.monitor})
	for _, p := range []*probe{m.enter, m.light, m.spun, m.blocks, m.entered} {
		m.turn(t, p, 1)
	}
	m.entered.hit(arguments{})
	m.none(t, "a wait of another turn")
	m.enter.hit(arguments{m.monitor})
	m.entered.hit(arguments{})
	m.one(t)
}
