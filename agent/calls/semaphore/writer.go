package semaphore

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A writer does what the kernel side asks for: it sets a semaphore at a tick and clears it at the last call. In
// between a guest makes a call every few hundred nanoseconds, each of which costs it a trap. So the writer runs on
// a thread that the scheduler prefers to all ordinary ones: 0 to 2 calls too many a burst instead of a thousand.
type writer struct {
	notices *ringbuf.Reader
	wards   *wards
	tell    func(order) // must not block

	// What the writer is at, for the guard to see if it hangs.
	busy  atomic.Pointer[ward]
	since atomic.Int64 // Unix ns
	done  atomic.Bool  // somebody else does its work now
}

// realtime gives the calling goroutine a thread of its own under SCHED_FIFO. Threads that the Go runtime starts from
// there are ordinary ones.
func realtime() error {
	const (
		schedFIFO   = 1 // SCHED_FIFO and SCHED_FLAG_RESET_ON_FORK of include/uapi/linux/sched.h
		resetOnFork = 1
	)
	runtime.LockOSThread()
	err := unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: schedFIFO, Flags: resetOnFork, Priority: 1}, 0)
	if err != nil {
		return fmt.Errorf("ask for a real-time thread: %w: grant CAP_SYS_NICE, or raise the limit on real-time priority (ulimit -r)", err)
	}
	return nil
}

// run works until the notices end. What becomes of its thread is sent to started first.
func (w *writer) run(started chan<- error) {
	err := realtime()
	started <- err
	if err != nil {
		return
	}
	var rec ringbuf.Record
	for !w.done.Load() {
		err := w.notices.ReadInto(&rec)
		if errors.Is(err, ringbuf.ErrClosed) {
			return
		}
		if err != nil || len(rec.RawSample) < int(unsafe.Sizeof(bpf.PHPNotice{})) {
			continue
		}
		w.do((*bpf.PHPNotice)(unsafe.Pointer(unsafe.SliceData(rec.RawSample)))) // records of the ring are aligned
	}
}

// do acts on one notice.
func (w *writer) do(n *bpf.PHPNotice) {
	o := order{Verb: verbStray, PID: n.Pid, StartTicks: n.StartTicks}
	ward := w.wards.find(n.Pid, n.StartTicks)
	if ward == nil {
		if bpf.PHPAction(n.Action) == bpf.PHPStray {
			w.tell(o)
		}
		return
	}
	w.since.Store(time.Now().UnixNano())
	w.busy.Store(ward)
	var err error
	switch bpf.PHPAction(n.Action) {
	case bpf.PHPArm:
		err = ward.arm()
	case bpf.PHPClear, bpf.PHPStray:
		err = ward.clear()
	}
	w.busy.Store(nil)
	w.fail(n.Pid, ward, err)
}

// fail lets go of a process that cannot be written to.
func (w *writer) fail(pid uint32, ward *ward, err error) {
	if err == nil {
		return
	}
	w.wards.take(pid, ward)
	if errors.Is(err, errHeld) {
		w.tell(order{Verb: verbHeld, PID: pid, StartTicks: ward.ticks})
	}
	if !errors.Is(err, proc.ErrGone) {
		go ward.leave() // an error has been told already
	}
}

// hung returns the process whose memory did not answer for that long, or nil.
func (w *writer) hung(limit time.Duration) *ward {
	ward := w.busy.Load()
	if ward == nil || time.Since(time.Unix(0, w.since.Load())) < limit {
		return nil
	}
	return ward
}
