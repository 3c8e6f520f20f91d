//go:build linux

package bpf

import (
	"os"
	"slices"
	"testing"
	"time"
)

// The run time of a thread is its own clock's: from the iterator while it exists, from a record once it has ended.
func TestKernelRunTimes(t *testing.T) {
	o := load(t, Options{})
	r, err := o.LoadRunTimes()
	needKernel(t, err)
	defer r.Close()
	checkVerified(t, r.objects.Each, r.objects.Ends, r.objects.Freed)
	const work = 20 * time.Millisecond
	used, read := make(chan time.Duration), make(chan struct{})
	tid, ended := onThread(t, func() {
		for begin := threadUsed(t); threadUsed(t)-begin < work; {
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
	if end.Born != asleep.Born || end.Header.Start != asleep.Start || end.Header.Pid != asleep.Pid || end.Ran < uint64(later) || end.Switches <= asleep.Switches {
		t.Errorf("the end is %+v after %+v, want the same thread, and at least %v", end, asleep, later)
	}
	if ended, recorded, err := r.Ended(); err != nil || ended == 0 || recorded == 0 {
		t.Errorf("%d threads have ended, %d of them recorded: %v", ended, recorded, err)
	}
}
