// Package privilege takes from the agent, once it has started, what it needs no more.
//
//	err := privilege.Drop(privilege.Make(privilege.Host()).Keep)
//
// Landlock is not used: every ruleset, also one that handles nothing but the network or scopes,
// makes the kernel refuse to read the memory, the program and the root of processes outside the
// domain, which are what the agent profiles.
package privilege

import (
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/cilium/ebpf/features"
	"golang.org/x/sys/unix"
	"kernel.org/pub/linux/libs/security/libcap/cap"
)

// Needed are the capabilities that the agent uses as long as it runs: it attaches to libraries that
// appear, opens events on CPUs that come online, and reads processes that start.
var Needed = []cap.Value{cap.BPF, cap.PERFMON, cap.SYS_PTRACE, cap.DAC_READ_SEARCH, cap.SYSLOG, cap.CHECKPOINT_RESTORE}

// A System is what a plan depends on.
type System struct {
	Held        func(cap.Value) (bool, error) // reports whether a capability is in the effective set
	UprobeMulti func() error                  // ebpf.ErrNotSupported: the kernel has none
	// OpenEvent tries a sampling event on the first CPU that is online.
	OpenEvent func() error
	// Without runs try without a capability, on this thread alone.
	Without func(c cap.Value, try func() error) error
}

// A Plan is what the agent keeps.
type Plan struct {
	Keep     []cap.Value // capabilities that it keeps of those that it holds
	Admin    string      // why CAP_SYS_ADMIN is kept; "" if it is not
	Bounding bool        // the bounding set can be emptied
}

// Make returns the plan for a system.
func Make(s System) Plan {
	held := func(c cap.Value) bool {
		yes, err := s.Held(c)
		return err == nil && yes
	}
	var p Plan
	for _, c := range Needed {
		if held(c) {
			p.Keep = append(p.Keep, c)
		}
	}
	p.Bounding = held(cap.SETPCAP)
	if !held(cap.SYS_ADMIN) {
		return p
	}
	switch {
	case !held(cap.BPF) || !held(cap.PERFMON) || !held(cap.CHECKPOINT_RESTORE):
		p.Admin = "it replaces one of CAP_BPF, CAP_PERFMON and CAP_CHECKPOINT_RESTORE that is not held"
	case s.UprobeMulti() != nil:
		p.Admin = "this kernel has no uprobe.multi links"
	case s.Without(cap.SYS_ADMIN, s.OpenEvent) != nil:
		p.Admin = "sampling events need it here, see perf_event_paranoid"
	}
	if p.Admin != "" {
		p.Keep = append(p.Keep, cap.SYS_ADMIN)
	}
	return p
}

// String lists what is kept.
func (p Plan) String() string {
	var names []string
	for _, c := range p.Keep {
		names = append(names, strings.ToUpper(c.String()))
	}
	return strings.Join(names, ", ")
}

// Host is the running system.
func Host() System {
	return System{
		Held:        func(c cap.Value) (bool, error) { return cap.GetProc().GetFlag(cap.Effective, c) },
		UprobeMulti: features.HaveBPFLinkUprobeMulti,
		OpenEvent:   openEvent,
		Without:     Without,
	}
}

// openEvent opens a sampling event on the first CPU that is online, and closes it.
func openEvent() error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Size: unix.PERF_ATTR_SIZE_VER5,
		Sample: 99, Bits: unix.PerfBitFreq | unix.PerfBitDisabled,
	}
	const maxCPUs = 8192
	for cpu := range maxCPUs {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // offline
		}
		if err != nil {
			return err
		}
		return unix.Close(fd)
	}
	return unix.ENODEV
}

// Without runs try on a thread of its own that lacks a capability meanwhile.
func Without(c cap.Value, try func() error) error {
	result := make(chan error, 1)
	go func() {
		// Not unlocked: the thread ends with the goroutine, and what it lacks with it.
		runtime.LockOSThread()
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var data [2]unix.CapUserData
		err := unix.Capget(&header, &data[0])
		if err == nil {
			data[c/32].Effective &^= 1 << (c % 32)
			err = unix.Capset(&header, &data[0])
		}
		if err != nil {
			result <- fmt.Errorf("drop %v in a thread: %w", c, err)
			return
		}
		result <- try()
	}()
	return <-result
}

// Drop leaves the process, all of its threads, with these capabilities of those that it holds. It
// sets no_new_privs, so that no program that it starts has more, and empties the bounding set if it
// may. It waits for every thread: call it before anything is read that a target can make hang.
func Drop(keep []cap.Value) error {
	have := cap.GetProc()
	var errs []error
	if may, err := have.GetFlag(cap.Effective, cap.SETPCAP); err == nil && may {
		all := make([]cap.Value, cap.MaxBits())
		for i := range all {
			all[i] = cap.Value(i)
		}
		errs = append(errs, explain("empty the bounding set", cap.DropBound(all...)))
	}
	_, err := cap.Prctlw(unix.PR_SET_NO_NEW_PRIVS, 1)
	errs = append(errs, explain("set no_new_privs", err), explain("empty the ambient set", cap.ResetAmbient()))
	want := cap.NewSet()
	for c := range cap.MaxBits() {
		if !slices.Contains(keep, c) {
			continue
		}
		for _, flag := range []cap.Flag{cap.Permitted, cap.Effective} {
			if held, err := have.GetFlag(flag, c); err == nil && held {
				errs = append(errs, want.SetFlag(flag, true, c))
			}
		}
	}
	errs = append(errs, explain("give up capabilities", want.SetProc()))
	return errors.Join(errs...)
}

func explain(step string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", step, err)
	}
	return nil
}
