//go:build linux

package bpf

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The run time of a thread is its own clock's: from the iterator while it exists, from a record
// once it has ended.
func TestKernelRunTimes(t *testing.T) {
	o := load(t, Options{})
	r, err := o.LoadRunTimes()
	needKernel(t, err)
	defer r.Close()
	checkVerified(t, r.objects.Each, r.objects.Ends, r.objects.Switches, r.objects.Timers)
	const work, sleeps = 20 * time.Millisecond, 400
	used, read := make(chan time.Duration), make(chan struct{})
	tid, ended := onThread(t, func() {
		for begin := threadUsed(t); threadUsed(t)-begin < work; {
		}
		for range sleeps {
			if err := unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil); err != nil && err != unix.EINTR {
				t.Error(err)
			}
		}
		used <- threadUsed(t)
		<-read
		used <- threadUsed(t)
	})
	own := <-used
	waitFor(t, "the thread to sleep", func() bool { return threadState(t, tid) == 'S' })
	all, err := r.All()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(all, func(one ThreadRun) bool { return one.Tid == tid })
	if i < 0 {
		t.Fatalf("the thread is not among %d", len(all))
	}
	if slices.ContainsFunc(all, func(one ThreadRun) bool { return one.Pid != uint32(os.Getpid()) }) {
		t.Error("there are threads of processes that were not chosen")
	}
	asleep := all[i]
	close(read)
	later := <-used
	if ran := time.Duration(asleep.Ran); ran < own || ran > later || asleep.Switches == 0 {
		t.Errorf("ran %v and left its CPU %d times, want %v to %v and at least once", ran, asleep.Switches, own, later)
	}
	// One arrival in 8 is measured: of 400, none with a probability of 1e-23. What a thread ran
	// before it came is a part of what it ran.
	if asleep.Arrivals == 0 || asleep.Arrivals > asleep.Switches || asleep.Arriving >= asleep.Ran-uint64(work) {
		t.Errorf("%d of %d arrivals are measured, with %v of %v", asleep.Arrivals, asleep.Switches,
			time.Duration(asleep.Arriving), time.Duration(asleep.Ran))
	}
	<-ended
	var end ThreadEnd
	waitFor(t, "the record of the end", func() bool {
		drain(t, o, func(raw []byte) {
			if Kind(raw) != EventThreadEnd {
				return
			}
			e, err := DecodeThreadEnd(raw)
			if err != nil {
				t.Fatal(err)
			}
			if e.Header.Tid == tid {
				end = *e
			}
		})
		return end.Header.Tid == tid
	})
	if end.Born != asleep.Born || end.Header.Start != asleep.Start || end.Header.Pid != asleep.Pid ||
		end.Ran < uint64(later) || end.Switches <= asleep.Switches || end.Arrivals < asleep.Arrivals ||
		end.Arriving < asleep.Arriving {
		t.Errorf("the end is %+v after %+v, want the same thread, and at least %v", end, asleep, later)
	}
	if ended, recorded, err := r.Ended(); err != nil || ended == 0 || recorded == 0 {
		t.Errorf("%d threads have ended, %d of them recorded: %v", ended, recorded, err)
	}
}
