package events

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Fewer waits are followed if that takes too much, and all again when it does not.
func TestFollowedShare(t *testing.T) {
	const allowed = 0.01
	var f followedShare
	var now time.Duration
	c := waitCounts{waits: 1}
	tick := func(rate float64) uint32 { // rate: waits a second if all were followed
		now += waitsGovernedEvery
		c.waits += uint64(rate * waitsGovernedEvery.Seconds() / float64(max(f.every, 1)))
		return f.next(now, c, allowed)
	}
	affordable := allowed / switchCost.Seconds()
	for range 3 {
		if every := tick(affordable); every != 1 {
			t.Errorf("one in %d is followed, though all could be", every)
		}
	}
	if note := f.note(0, now); note != "" {
		t.Errorf("a note %q", note)
	}
	for range 10 {
		tick(12 * affordable)
	}
	if f.every < 8 || f.every > 18 {
		t.Errorf("one in %d is followed, 12 times as many as could be", f.every)
	}
	busy := now
	if note := f.note(0, now); !strings.Contains(note, "threads switched too often") {
		t.Errorf("a note %q", note)
	}
	for range 10 {
		tick(affordable / 10)
	}
	if f.every != 1 {
		t.Errorf("one in %d is followed, though all could be", f.every)
	}
	if note := f.note(now-waitsGovernedEvery, now); note != "" || f.note(busy-second, busy) == "" {
		t.Errorf("a note %q", note)
	}
	for range 10 {
		tick(1e9 * affordable)
	}
	if f.every != bpf.MaxFollowEvery {
		t.Errorf("one in %d is followed", f.every)
	}
}

// What is set stays for longer while it need not change.
func TestWaitsPause(t *testing.T) {
	var w waits
	mean := w.rate.begin(0, 1)
	pause := waitsGovernedEvery
	for range 4 {
		pause = w.pause(pause, mean)
	}
	if pause != waitsCalmEvery {
		t.Errorf("a pause of %v while nothing changes", pause)
	}
	w.share.every = 2
	if got := w.pause(pause, mean); got != waitsGovernedEvery {
		t.Errorf("a pause of %v while not all waits are followed", got)
	}
	w.share.every, w.share.part = 0, 2*calmPart
	if got := w.pause(pause, mean); got != waitsGovernedEvery {
		t.Errorf("a pause of %v while following takes a part of its budget", got)
	}
	w.share.part = 0
	w.rate.set(2*mean, second)
	if got := w.pause(pause, mean); got != waitsGovernedEvery {
		t.Errorf("a pause of %v after a change", got)
	}
}

// A wait that stands for others counts as often, whether it has ended or not.
func TestFollowedWaitWeight(t *testing.T) {
	const every = 5
	e, window := watchingSource()
	e.waits = &waits{last: map[uint32]*lastWait{}, vain: map[uint32]uint64{}}
	window.Began, window.Ended = 10*second, 20*second
	s := e.state()
	o := waitOf(11*second, 12*second, 5)
	o.Seen.Every = every
	e.waits.handle(s, s.Process(o.Header), o, &fold.Event{TID: 8})
	a := awaySince(8, 18*second, 5)
	a.Every = every
	e.waits.finish(s, window, []bpf.OffCPUThread{a}, window.Ended)
	var sum, exact time.Duration
	for _, r := range window.Events {
		for key, sums := range r.ByKind(profile.OffCPU).Rows {
			sum += time.Duration(sums.Values[1])
			if key.Value == "" {
				exact += time.Duration(sums.Values[1])
			}
		}
	}
	if sum != every*3*second || exact != 0 {
		t.Errorf("%v, of that %v exact", sum, exact)
	}
}
