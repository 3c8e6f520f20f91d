package agent

import (
	"slices"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// A process is looked at again after a quarter of the time for which it has run its program.
func TestLooks(t *testing.T) {
	const pid = 7
	born := proc.Stat{PID: pid, StartTicks: uint64(proc.Identity{}.Age()/(10*time.Millisecond)) - 6_000} // a minute ago
	var l looks
	due := func(now time.Duration) bool { return slices.Contains(l.due(now, []int{pid}), pid) }
	const now = time.Hour
	if !due(now) {
		t.Fatal("a process is not looked at")
	}
	l.looked(now, pid, born)
	if due(now+longestGlance-1) || !due(now+longestGlance) {
		t.Error("a process of a minute is not left alone for longestGlance")
	}
	l.executed(now, pid)
	if !due(now) {
		t.Error("a process that runs another program is not looked at")
	}
	at := now
	for range 3 {
		at += 40 * time.Millisecond
		l.looked(at, pid, born)
		if pause := (at - now) / glanceShare; due(at+pause-1) || !due(at+pause) {
			t.Errorf("a program that has run for %v is not left alone for %v", at-now, pause)
		}
	}
	if l.looked(at, pid, proc.Stat{PID: pid, StartTicks: born.StartTicks + 3_000}); due(at+5*time.Second) ||
		!due(at+8*time.Second) {
		t.Error("a process of half a minute with the pid of another one is not left alone for a quarter of that")
	}
	if l.looked(at, pid, proc.Stat{PID: pid, StartTicks: born.StartTicks, Flags: 0x00200000}); due(at + 24*time.Hour) {
		t.Error("a kernel thread is looked at")
	}
	if l.due(at, nil); len(l.of) != 0 {
		t.Error("a process that is gone is kept")
	}
	if l.executed(at, pid); len(l.of) != 1 {
		t.Error("a process that runs another program is not kept")
	}
}
