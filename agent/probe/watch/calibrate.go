package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// entered is called to be watched. It has no check of the stack's size, so that a call executes its
// first instruction once.
//
//go:nosplit
//go:noinline
func entered() {}

var (
	errSilent = errors.New("they do not trap: the hypervisor of this machine reserves the debug registers")
	// On arm64 the kernel stepped over the instruction under a breakpoint only for perf's own
	// users, until Linux 6.6.
	errRepeats = errors.New("one call traps repeatedly: boot Linux 6.6 or newer to use them with BPF on this machine")
)

// calibrate watches the agent itself and returns what a hit takes, without the program. What else
// runs on the machine can only make it longer: the shortest of some rounds counts.
func (o *Observer) calibrate(k Kernel) (time.Duration, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	id, err := o.watcher.root.Identify(os.Getpid())
	if err != nil {
		return 0, err
	}
	leave, err := o.watcher.enter(context.Background(), id.PID) // as long as a watch of the agent lasts
	if err != nil {
		return 0, err
	}
	defer leave()
	const rounds = 8
	best := time.Duration(1 << 62)
	for range rounds {
		took, err := o.round(id.Ticks(), uint32(id.PID), k)
		if err != nil {
			return 0, err
		}
		best = min(best, took)
	}
	return best, nil
}

// round is one watch on this thread.
func (o *Observer) round(startTicks uint64, pid uint32, k Kernel) (took time.Duration, err error) {
	const called = 32
	address := uint64(reflect.ValueOf(entered).Pointer())
	h := k.Head()
	*h = bpf.Watch{Number: o.watcher.next(), StartTicks: startTicks, Addresses: [bpf.WatchAddresses]uint64{address},
		Limit: 2 * called}
	if err := o.program.Watches.Update(pid, k, ebpf.UpdateNoExist); err != nil {
		return 0, fmt.Errorf("open watch: %w", err)
	}
	defer func() { err = errors.Join(err, o.program.Watches.Delete(pid)) }()
	b, err := breakpoint.NewSet(o.program.Breakpoint, []uint64{address}, []int{unix.Gettid()}, 2*called)
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
	if err := o.program.Watches.Lookup(pid, k); err != nil {
		return 0, fmt.Errorf("read watch: %w", err)
	}
	switch {
	case h.Runs == 0:
		return 0, errSilent
	case h.Runs > called+1: // some kernels count the first one twice
		return 0, errRepeats
	}
	return max(0, (took-time.Duration(h.Ns))/called), nil
}
