//go:build linux

package bpf

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// A thread's time on the CPU is its CPU time, whether others run in between or not.
func TestKernelTimeOnCPU(t *testing.T) {
	w := newWaitWatch(t, false)
	if err := w.Begin(time.Second); err != nil {
		t.Fatal(err)
	}
	const runs = 200 * time.Millisecond
	var used time.Duration
	over := make(chan struct{})
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, end := onThread(t, func() {
		begin := threadUsed(t) // others may have used the thread before
		for threadUsed(t)-begin < runs {
			for inner := threadUsed(t); threadUsed(t)-inner < runs/10; {
			}
			sleepFor(time.Millisecond)
		}
		used = threadUsed(t) - begin
		close(over)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-over
	waitFor(t, "the thread to read", func() bool { return threadState(t, tid) == 'S' })
	var on time.Duration
	if err := w.Threads(func(a *OffCPUThread) {
		if a.Tid == tid {
			on = time.Duration(a.On)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
	t.Logf("%v on the CPU, %v used", on, used)
	// A hypervisor may take the CPU away: that is time on it, and not used.
	if on < used*9/10 || on > 3*used {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
}

// Of a thread that runs when it is made known, the time from then on counts, whether it has left
// its CPU since or not.
func TestKernelTimeOnCPUFromNow(t *testing.T) {
	w := newWaitWatch(t, false)
	var used, from time.Duration
	stop, leave := make(chan struct{}), make(chan struct{})
	began := make(chan struct{}, 1)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	tid, end := onThread(t, func() {
		from = threadUsed(t)
		for done := false; !done; {
			select {
			case began <- struct{}{}:
			case <-stop:
				done = true
			default:
			}
		}
		used = threadUsed(t) - from
		close(leave)
		var b [1]byte
		unix.Read(pipe[0], b[:])
	})
	<-began
	if err := w.Begin(time.Second); err != nil {
		t.Fatal(err)
	}
	// However busy the machine is, it runs now and then when it is looked at.
	waitFor(t, "the thread to run for 50 ms since it is known", func() bool {
		a := w.known(t)[tid]
		return a.Since == 0 && time.Duration(a.On) > 50*time.Millisecond
	})
	close(stop)
	<-leave
	waitFor(t, "the thread to read", func() bool { a := w.known(t)[tid]; return threadState(t, tid) == 'S' && a.Since != 0 })
	a := w.known(t)[tid]
	if on := time.Duration(a.On); on < 50*time.Millisecond || on > used+used/10 {
		t.Errorf("%v on the CPU, %v used", on, used)
	}
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-end
}
