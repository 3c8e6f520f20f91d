//go:build linux

package bpf

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// onThread runs do on a thread of its own, which ends with it, and returns its id.
func onThread(t testing.TB, do func()) (tid uint32, done <-chan struct{}) {
	t.Helper()
	ids, end := make(chan uint32, 1), make(chan struct{})
	var start func()
	start = func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // the main thread does not end: another one is used while this has it
			defer runtime.UnlockOSThread()
			go start()
			<-end
			return
		}
		defer close(end)
		ids <- uint32(unix.Gettid())
		do()
	}
	go start()
	return <-ids, end
}

func sleepFor(d time.Duration) {
	left := unix.NsecToTimespec(d.Nanoseconds())
	for unix.Nanosleep(&left, &left) == unix.EINTR {
	}
}

// threadUsed is the CPU time of the thread.
func threadUsed(t testing.TB) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts); err != nil {
		t.Error(err)
	}
	return time.Duration(ts.Nano())
}

// threadState is the kernel's letter for what a thread of this process does.
func threadState(t *testing.T, tid uint32) byte {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/self/task/%d/stat", tid))
	if err != nil {
		t.Fatal(err)
	}
	return stat[bytes.LastIndexByte(stat, ')')+2]
}

// waitFor waits until a condition holds. It looks more often than package wait does: what follows is
// often measured.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
