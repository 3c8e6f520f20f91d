//go:build linux

package bpf

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The stack of a thread that waits is read from outside, and is the one that its record has once it
// goes on.
func TestKernelStillWaiting(t *testing.T) {
	w := newWaitWatch(t, false)
	still, err := w.o.LoadWaiting()
	needKernel(t, err)
	defer still.Close()
	if still.lack != nil {
		t.Errorf("virtual threads cannot be read: %v", still.lack)
	}
	checkVerified(t, still.objects.Read, still.objects.ReadVirtual)
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	reader, ends := onThread(t, func() {
		var b [1]byte
		for {
			if _, err := unix.Read(pipe[0], b[:]); err != unix.EINTR {
				return
			}
		}
	})
	waitFor(t, "the reader to sleep", func() bool { return threadState(t, reader) == 'S' })
	const mean = time.Millisecond
	if err := w.Begin(mean); err != nil {
		t.Fatal(err)
	}
	const since = 12345
	var read []Observation
	see := func(raw []byte) {
		var o Observation
		if err := DecodeObservation(bytes.Clone(raw), &o); err != nil {
			t.Fatal(err)
		}
		read = append(read, o)
	}
	running := uint32(unix.Gettid())
	waitFor(t, "one stack: the reader has none if it went on meanwhile, for the Go runtime", func() bool {
		read = nil
		if err := still.Read(map[uint32]uint64{reader: since, running: since, 1 << 30: since},
			time.Now().Add(time.Minute), copyOwn, see); err != nil {
			t.Fatal(err)
		}
		return len(read) == 1
	})
	o := read[0]
	if o.Pid != uint32(os.Getpid()) || o.Tid != reader || o.Seen.What != ObservedWait ||
		o.Seen.Values[WaitSince] != since || o.Start == 0 {
		t.Errorf("%+v, %+v", o.Header, o.Seen)
	}
	sleepFor(2 * mean) // so that the wait is recorded for certain
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-ends
	w.balanced(t)
	all := w.waits(t)
	pc := o.Seen.Values[WaitPC]
	// before, it may have waited for the Go runtime
	i := slices.IndexFunc(all, func(s seenWait) bool { return s.tid == reader && s.state == OffCPUBlocked && s.pc == pc })
	if i < 0 {
		t.Fatalf("no wait of thread %d at %#x among %+v", reader, pc, all)
	}
	if s := all[i]; !slices.Equal(s.user, o.User) || len(o.User) < 3 || len(o.Kernel) < 4 {
		t.Errorf("read were %v and %d of the kernel at %#x; when it went on they were %v", o.User, len(o.Kernel), pc,
			s.user)
	}
	if n := still.objects.Pages.Iterate(); n.Next(new(uint64), new(PageCopy)) {
		t.Error("pages are left")
	}
	// Nobody is asked for once it is over.
	read = nil
	if err := still.Read(nil, time.Now(), copyOwn, see); err != nil || len(read) != 0 {
		t.Errorf("%d stacks, %v", len(read), err)
	}
}

// A thread that goes on between two walks of its stack, and waits again, has none: the copies of
// its pages are of before.
func TestKernelWentOnMeanwhile(t *testing.T) {
	w := newWaitWatch(t, false)
	still, err := w.o.LoadWaiting()
	needKernel(t, err)
	defer still.Close()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	reader, ends := onThread(t, func() {
		var b [1]byte
		for n := 0; n < 2; {
			switch _, err := unix.Read(pipe[0], b[:]); err {
			case nil:
				n++
			case unix.EINTR:
			default:
				return
			}
		}
	})
	sleeps := func() { waitFor(t, "the reader to sleep", func() bool { return threadState(t, reader) == 'S' }) }
	sleeps()
	goesOn := func() {
		before := threadSwitches(t, reader)
		if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
			t.Fatal(err)
		}
		waitFor(t, "the reader to go on", func() bool { return threadSwitches(t, reader) > before })
	}
	copies := 0
	read := func(each func()) (stacks int) {
		if err := still.Read(map[uint32]uint64{reader: 1}, time.Now().Add(time.Minute),
			func(at []uint64, to []PageCopy) error {
				err := copyOwn(at, to)
				each()
				return err
			}, func([]byte) { stacks++ }); err != nil {
			t.Fatal(err)
		}
		return stacks
	}
	// At first the thread may not be waiting: Go's runtime may have it handle a signal.
	waitFor(t, "a copy of the stack", func() bool {
		if n := read(func() {
			if copies++; copies == 1 {
				goesOn()
				sleeps()
			}
		}); n != 0 {
			t.Errorf("%d stacks of a thread that went on after %d copies", n, copies)
		}
		return copies > 0
	})
	waitFor(t, "the stack of a thread that does not go on", func() bool { return read(func() {}) == 1 })
	if _, err := unix.Write(pipe[1], []byte{1}); err != nil {
		t.Fatal(err)
	}
	<-ends
}

// threadSwitches is how often a thread of this process gave up its CPU.
func threadSwitches(t *testing.T, tid uint32) (n int) {
	t.Helper()
	const field = "\nvoluntary_ctxt_switches:"
	_, text, _ := strings.Cut(string(readFile(t, fmt.Sprintf("/proc/self/task/%d/status", tid))), field)
	if _, err := fmt.Sscan(text, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// copyOwn copies pages of this process.
func copyOwn(at []uint64, to []PageCopy) error {
	for i, address := range at {
		for length := len(to[i].Bytes); length > 0 && to[i].Length == 0; length -= len(to[i].Bytes) / 2 {
			local := []unix.Iovec{{Base: &to[i].Bytes[0], Len: uint64(length)}}
			n, err := unix.ProcessVMReadv(os.Getpid(), local, []unix.RemoteIovec{{Base: uintptr(address), Len: length}},
				0)
			if err == nil {
				to[i].Length = uint64(n)
			}
		}
	}
	return nil
}
