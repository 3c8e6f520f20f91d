package listener

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// entered is called to be listened to. It has no check of the stack's size, so that a call executes its first
// instruction once.
//
//go:nosplit
//go:noinline
func entered() {}

var (
	errSilent = errors.New("they do not trap: the hypervisor of this machine keeps the debug registers to itself")
	// On arm64 the kernel stepped over the instruction under a breakpoint only for perf's own users, until Linux 6.6.
	errRepeats = errors.New("one call traps again and again: kernels before 6.6 cannot use them with BPF on this machine")
)

// calibrate listens to the agent itself and returns what a hit takes, without the program. What else runs on the machine
// can only make it longer: the shortest of some rounds counts.
func (l *Listener) calibrate() (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, err := l.root.Identify(os.Getpid())
	if err != nil {
		return 0, err
	}
	const rounds = 8
	best := time.Duration(1 << 62)
	for range rounds {
		took, err := l.round(id.Ticks(), uint32(id.PID))
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	return best, nil
}

// round is one window on this thread.
func (l *Listener) round(startTicks uint64, pid uint32) (took time.Duration, err error) {
	const called = 32
	address := uint64(reflect.ValueOf(entered).Pointer())
	w := bpf.ListenerWindow{Number: 1, StartTicks: startTicks, Entries: [bpf.ListenerEntries]uint64{address}, Limit: bpf.MaxListenerHits}
	if err := l.objects.ListenerWindows.Update(pid, &w, ebpf.UpdateNoExist); err != nil {
		return 0, fmt.Errorf("open window: %w", err)
	}
	defer func() { err = errors.Join(err, l.objects.ListenerWindows.Delete(pid)) }()
	b, err := attach.NewBreakpoints(l.objects.ListenerBreakpoint, []uint64{address}, []int{unix.Gettid()}, 2*called)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	if err := b.Arm(); err != nil {
		return 0, err
	}
	begin := proc.OwnThreadTime()
	for range called {
		entered()
	}
	took = proc.OwnThreadTime() - begin
	if err := b.Close(); err != nil {
		return 0, err
	}
	if err := l.objects.ListenerWindows.Lookup(pid, &w); err != nil {
		return 0, fmt.Errorf("read window: %w", err)
	}
	switch {
	case w.Runs == 0:
		return 0, errSilent
	case w.Runs > called+1: // some kernels count the first one twice
		return 0, errRepeats
	}
	return max(0, (took-time.Duration(w.Ns))/called), nil
}
