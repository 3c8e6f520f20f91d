package fold

import (
	"errors"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func ownerOf(opt StateOptions) (_ *Owner, failures func() []error) {
	var mu sync.Mutex
	var all []error
	opt.Join.Log = slog.New(slog.DiscardHandler)
	opt.Submit = func(*guest.Process) {}
	o := NewOwner(NewState(opt), func(err error) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, err)
	})
	return o, func() []error {
		mu.Lock()
		defer mu.Unlock()
		return all
	}
}

func init() { FindNested = true }

// A nested Do fails with a message instead of a deadlock.
func TestNestedDo(t *testing.T) {
	o, failures := ownerOf(StateOptions{})
	err := o.Do(func(*State) { o.Do(func(*State) {}) })
	if panicked := new(proc.PanicError); !errors.As(err, &panicked) || len(failures()) != 1 {
		t.Errorf("Do returns %v; %d panics are reported", err, len(failures()))
	}
	if n := Get(o, func(*State) int { return 7 }); n != 7 {
		t.Error("the state is not free")
	}
}

// A panic affects only the request that panics: it is reported once, and the state is free for
// others.
func TestOwnerPanics(t *testing.T) {
	o, failures := ownerOf(StateOptions{})
	var panicked *proc.PanicError
	if err := o.Do(func(*State) { panic("hostile") }); !errors.As(err, &panicked) {
		t.Errorf("Do returns %v", err)
	}
	if n := Get(o, func(*State) int { panic("hostile") }); n != 0 {
		t.Errorf("Get returns %d", n)
	}
	if n := len(failures()); n != 2 {
		t.Errorf("%d panics are reported, want 2", n)
	}
	if err := o.Try(func(*State) { panic("hostile") }); !errors.As(err, &panicked) || len(failures()) != 2 {
		t.Errorf("Try returns %v; %d panics are reported", err, len(failures()))
	}
	done := make(chan int, 1)
	go func() { done <- Get(o, func(*State) int { return 7 }) }()
	select {
	case n := <-done:
		if n != 7 {
			t.Errorf("Get returns %d, want 7", n)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the state is not free")
	}
}

// Functions have the state one after the other, from any goroutine.
func TestOwnerLendsToOne(t *testing.T) {
	o, _ := ownerOf(StateOptions{})
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 1000 {
				o.Do(func(s *State) { s.Unknown++ })
			}
		})
	}
	all.Wait()
	if n := Get(o, func(s *State) uint64 { return s.Unknown }); n != 8000 {
		t.Errorf("%d, want 8000", n)
	}
}

// The waiting samples of a burst are folded before its process is retired, so that the folding
// function still finds the process.
func TestRetireFlushes(t *testing.T) {
	h := bpf.Header{Pid: 7, Start: 5, Exec: 1}
	found := false
	o, _ := ownerOf(StateOptions{Flush: func(s *State) { found = s.Known(&h) != nil }})
	o.Do(func(s *State) {
		p := s.Process(&h)
		s.Ended(&h)
		if !found || !p.Exited.Load() {
			t.Errorf("found %t, gone %t", found, p.Exited.Load())
		}
		if s.Submit(); len(s.Table) != 0 {
			t.Errorf("%d processes are left", len(s.Table))
		}
	})
}

// After a panic over one process's samples, those of others are still placed.
func TestPlaceAllPanics(t *testing.T) {
	o, failures := ownerOf(StateOptions{Join: JoinOptions{Contexts: profile.ContextWalk}})
	w := NewWindow(nil)
	for pid := range 3 {
		w.Processes[NewProcess(proc.Identity{PID: pid}, true)] = map[ThreadKey]*Thread{1: {}}
	}
	placed := 0
	o.PlaceAll(w, func(p *Process, do func()) error {
		if p.PID == 1 {
			panic("hostile")
		}
		do()
		placed++
		return nil
	})
	if placed != 2 || len(failures()) != 1 {
		t.Errorf("%d processes are placed, %d panics", placed, len(failures()))
	}
}

// New work of a process waits for a twentieth of the time for which the process has been known, for
// a second at most.
func TestSubmitDue(t *testing.T) {
	var submitted []int
	o, _ := ownerOf(StateOptions{})
	o.Do(func(s *State) {
		s.opt.Submit = func(p *guest.Process) { submitted = append(submitted, p.PID) }
		work := func(pid uint32) *Process {
			p := s.Process(&bpf.Header{Pid: pid, Start: 5, Exec: 1})
			s.Dirty[p] = struct{}{}
			return p
		}
		expect := func(what string, want ...int) {
			t.Helper()
			submitted = nil
			s.SubmitDue()
			if slices.Sort(submitted); !slices.Equal(submitted, want) {
				t.Errorf("%s: %v are submitted, want %v", what, submitted, want)
			}
		}
		old, young := work(1), work(2)
		old.renewed -= time.Hour
		expect("the first work", 1, 2)
		work(1)
		young.submitted -= time.Millisecond // as if the test took that long
		work(2)
		young.renewed = proc.Monotonic()
		expect("further work", 2)
		if s.latest -= time.Hour; s.Pause() != maxPause {
			t.Errorf("records wait for %v", s.Pause())
		}
		if s.Process(&bpf.Header{Pid: 5, Start: uint64(proc.SinceBoot() - time.Hour)}); s.Pause() != maxPause {
			t.Errorf("records wait for %v when an old process is noticed", s.Pause())
		}
		if s.Process(&bpf.Header{Pid: 6, Start: uint64(proc.SinceBoot())}); s.Pause() == maxPause {
			t.Error("records wait when a young process is noticed")
		}
		delete(s.Table, 5)
		delete(s.Table, 6)
		s.latest -= time.Hour
		if s.Executed(&bpf.ProcessEvent{Header: bpf.Header{Pid: 4}}); s.Pause() == maxPause {
			t.Error("records wait while programs start")
		}
		old.submitted -= maxPause
		expect("work that has waited", 1)
		work(1)
		s.latest -= time.Hour
		s.Unloaded(old, 1)
		old.submitted -= time.Millisecond
		if s.Pause() == maxPause {
			t.Error("records wait while classes are unloaded")
		}
		expect("work of a VM that has unloaded classes", 1)
		if old.renewed -= time.Hour; old.ClassEpoch != 1 {
			t.Errorf("the class epoch is %d", old.ClassEpoch)
		}
		s.Unloaded(old, 1)
		work(1)
		expect("work of a VM that has not unloaded classes again")
		s.Expedite(old)
		if !s.Urgent() {
			t.Error("expedited work is not urgent")
		}
		expect("expedited work", 1)
		work(1)
		s.Retire(old)
		expect("a process that has ended", 1)
		if work(1); len(s.Table) != 2 {
			t.Error("the process that has ended is in the table")
		}
		expect("another process with its pid", 1)
		work(1)
		submitted = nil
		if s.Submit(); len(submitted) != 1 || len(s.Dirty) != 0 {
			t.Errorf("%v are submitted at once, %d processes still have work", submitted, len(s.Dirty))
		}
	})
}
