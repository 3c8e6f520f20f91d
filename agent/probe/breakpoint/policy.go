package breakpoint

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Policy says on which machines hardware breakpoints may be set in other processes.
//
// On x86-64, register DR6 shows which breakpoint raised a debug exception. Some hypervisors lose
// its content: observed on KVM about once in 10,000 to 100,000 exceptions. The kernel takes an
// exception without a cause for an INT1 instruction, and sends the thread SIGTRAP (exc_debug_user
// in arch/x86/kernel/traps.c), which ends a process that does not expect it. A virtual machine
// cannot find out whether its hypervisor does this, now or after a migration.
type Policy string

// Policies, as users write them.
const (
	Auto   Policy = "auto"   // not in virtual machines on x86-64; "" is the same
	Always Policy = "always" // there as well, unless a trial in this process loses an exception
	Never  Policy = "never"
)

// policies returns all of them.
func policies() []Policy {
	return []Policy{Auto, Always, Never}
}

var (
	// ErrUnsafe: the policy keeps breakpoints out of other processes on this machine.
	ErrUnsafe = errors.New("hardware breakpoints are not used in virtual machines, because some hypervisors " +
		"lose debug exceptions, which ends the process with the breakpoint; use --breakpoints=always to accept " +
		"this risk")
	// ErrOff: the user disabled breakpoints.
	ErrOff = errors.New("--breakpoints=never was given")
	// ErrLost: a trial in this process lost a debug exception.
	ErrLost = errors.New("the hypervisor of this machine loses debug exceptions: a hardware breakpoint " +
		"can end the process")
)

// Check returns nil if breakpoints may be set in other processes here, else one of the errors
// above. The first call with Always in a virtual machine takes a second for the trial.
func (p Policy) Check() error { return p.check(virtualDR6(), firstTrial) }

func (p Policy) check(virtual bool, trial func() error) error {
	switch {
	case p == Never:
		return ErrOff
	case !virtual:
		return nil
	case p == Always:
		return trial()
	}
	return ErrUnsafe
}

// trialTime is how long a trial in Check takes.
const trialTime = time.Second

var firstTrial = sync.OnceValue(func() error { return Try(trialTime) })

// Try repeatedly sets a breakpoint in a busy thread of this process and removes it, for that long.
// It returns ErrLost once an exception was lost: most are lost while a breakpoint is removed. A
// trial without a loss proves nothing.
func Try(length time.Duration) error {
	if err := catchLostTraps(); err != nil {
		return err
	}
	busy := make(chan int)
	var over atomic.Bool
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		busy <- unix.Gettid()
		for !over.Load() {
			for range 50 {
				tried()
			}
			// The Go runtime interrupts goroutines by signals. These would arrive at the trap, in a
			// function that cannot be preempted: a garbage collection once waited for minutes.
			runtime.Gosched()
		}
		close(busy)
	}()
	tid := <-busy
	defer func() {
		over.Store(true)
		<-busy
	}()
	attr := event(uint64(reflect.ValueOf(tried).Pointer()), false)
	attr.Sample = 1 << 40 // never reached: hits are only counted
	before := lostTraps()
	for begin := time.Now(); time.Since(begin) < length; {
		fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if err != nil {
			return explain(tid, err)
		}
		const standing = 200 * time.Microsecond
		time.Sleep(standing)
		if err := unix.Close(fd); err != nil {
			return fmt.Errorf("remove breakpoint: %w", err)
		}
		if lostTraps() != before {
			return ErrLost
		}
	}
	return nil
}

// tried is the function with the breakpoint of a trial.
//
//go:nosplit
//go:noinline
func tried() {}

var hypervisorFlag = regexp.MustCompile(`(?m)^flags\s*:.*\bhypervisor\b`)

// virtualDR6 reports whether debug exceptions pass through a hypervisor that may lose DR6. It
// returns true if that cannot be found out. arm64 has no such register: the kernel finds the
// breakpoint by its address.
var virtualDR6 = sync.OnceValue(func() bool {
	if runtime.GOARCH != "amd64" {
		return false
	}
	info, err := os.ReadFile("/proc/cpuinfo")
	return err != nil || hypervisorFlag.Match(info)
})

// Virtual reports whether this is known to be a virtual machine. It is not known on arm64.
func Virtual() bool { return virtualDR6() }

// MarshalText implements encoding.TextMarshaler.
func (p Policy) MarshalText() ([]byte, error) { return []byte(p), nil }

// UnmarshalText implements encoding.TextUnmarshaler. The error for an unknown policy lists all.
func (p *Policy) UnmarshalText(text []byte) error {
	var known []string
	for _, policy := range policies() {
		if string(policy) == string(text) {
			*p = policy
			return nil
		}
		known = append(known, string(policy))
	}
	return fmt.Errorf("choose one of %s", strings.Join(known, ", "))
}
