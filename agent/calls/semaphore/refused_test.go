//go:build linux

package semaphore

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// Without the flag nothing is loaded, started or written.
func TestNotAllowed(t *testing.T) {
	if _, err := Try(Options{}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("error %v, want %v", err, ErrNotAllowed)
	}
}

// A guard that cannot begin is an error with its reason.
func TestLiveNoGuard(t *testing.T) {
	b := begin(t, calls.Rate{})
	for _, command := range [][]string{{"/nonexistent"}, {"true"}, {"cat"}} {
		if e, err := Try(Options{AllowGuestWrites: true, Objects: b.objects, Guard: command}); err == nil {
			t.Errorf("%v is a guard: %v", command, e.Close())
		}
	}
}

// Whom the engine does not sample, and what it says then.
func TestLiveRefusals(t *testing.T) {
	b := begin(t, calls.Rate{Hz: 1})
	refused := func(pid int, want error) {
		t.Helper()
		if found, err := b.Look(t.Context(), pid); found || !errors.Is(err, want) {
			t.Errorf("found: %v, %v, want %v", found, err, want)
		}
	}
	refused(os.Getpid(), nil) // no PHP

	plain := start(t, php.Known)
	refused(plain.PID(), errPlain)

	held := start(t, php.Known, php.Traced)
	c, err := cellOf(held.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer c.mem.Close()
	if err := c.put(2); err != nil {
		t.Fatal(err)
	}
	refused(held.PID(), errHeld)
	if v, err := c.value(); v != 2 || err != nil {
		t.Errorf("semaphore of a traced process is %d now, %v", v, err)
	}
}

// Two agents would clear each other's semaphores.
func TestLiveTwoEngines(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	a, b := begin(t, calls.Rate{Hz: 1}), begin(t, calls.Rate{Hz: 1})
	a.look(g.PID())
	if found, err := b.Look(t.Context(), g.PID()); found || !errors.Is(err, errLocked) {
		t.Errorf("found: %v, %v, want %v", found, err, errLocked)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	b.look(g.PID()) // now it may
}

// A tracer that is attached with the semaphore counts it up in the kernel. The engine stays away, and its count is kept.
func TestLiveOtherTracer(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	b := begin(t, calls.Rate{Hz: 1})
	e := &Engine{images: map[fileID]*image{}, refused: map[fileID]error{}}
	s, err := e.examine(g.PID())
	if err != nil {
		t.Fatal(err)
	}
	defer s.file.Close()
	defer s.mem.Close()
	ex, err := link.OpenExecutable(s.file.Name())
	if err != nil {
		t.Fatal(err)
	}
	tracer, err := ex.Uprobe("", b.php.PhpFunctionEntrySingle, &link.UprobeOptions{Address: s.sites[0].offset, RefCtrOffset: s.semaphoreOffset})
	if err != nil {
		t.Fatal(err)
	}
	defer tracer.Close()
	if found, err := b.Look(t.Context(), g.PID()); found || !errors.Is(err, errShared) {
		t.Errorf("found: %v, %v, want %v", found, err, errShared)
	}
	if v, err := semaphoreOf(g.PID()); v != 1 || err != nil {
		t.Errorf("the tracer's semaphore is %d now, %v", v, err)
	}
}
