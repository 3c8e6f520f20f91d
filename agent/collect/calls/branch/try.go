package branch

import (
	"errors"
	"fmt"
	"io/fs"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// The rates for a trial of what the engine can sample from.
const (
	trialHz     = 1
	trialPeriod = 1 << 30
)

// Try loads the kernel side next to o and finds out what the machine supports. It samples nothing
// until Tune. root is the root of the file system, for /sys and /proc. The error says what is
// missing for both ways of sampling. Close must be called before o's.
func Try(o *bpf.Objects, root fs.FS) (*Engine, error) {
	machine, err := findPMU(root)
	if err != nil {
		return nil, err
	}
	spec, err := bpf.LoadBranch()
	if err != nil {
		return nil, fmt.Errorf("read branch object: %w", err)
	}
	e := &Engine{}
	if err := o.LoadBeside(spec, &e.objects); err != nil {
		return nil, fmt.Errorf("load branch programs: %w", err)
	}
	if err = e.try(machine); err != nil {
		return nil, errors.Join(err, e.objects.Close())
	}
	return e, nil
}

func (e *Engine) try(machine *pmu) error {
	stacks := e.tryStacks(machine)
	if stacks == nil {
		return nil
	}
	retired := e.tryRetired(machine)
	if retired == nil {
		return nil
	}
	return fmt.Errorf("no branch records: %w; no retired calls: %w", stacks, retired)
}

// tryStacks opens an event with branch records.
func (e *Engine) tryStacks(machine *pmu) error {
	t, err := attach.NewBranchTicks(e.objects.BranchStack, trialHz)
	if err != nil {
		return explainStacks(err, machine.branches())
	}
	e.source, e.ticks = stacks, t
	return nil
}

// explainStacks says why branch records cannot be used on a CPU that has them.
func explainStacks(err error, branches int) error {
	switch {
	case errors.Is(err, unix.EOPNOTSUPP), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT),
		errors.Is(err, unix.ENODEV):
		if branches == 0 {
			return fmt.Errorf("%w: this CPU keeps none, or its kernel does not expose them (caps/branches): "+
				"needs Intel with LBR, AMD from Zen 4 on, or Arm with BRBE and Linux 6.17; in a virtual machine the "+
				"hypervisor must expose them", err)
		}
		return fmt.Errorf("%w: this CPU keeps %d, but cannot select them by kind of branch", err, branches)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("%w: another profiler uses them", err)
	}
	return err
}

// tryRetired opens the event of retired calls, and checks that it counts calls.
func (e *Engine) tryRetired(machine *pmu) error {
	event, err := machine.retiredCalls()
	if err != nil {
		return err
	}
	if err := countsCalls(event); err != nil {
		return err
	}
	t, err := attach.NewRetiredTicks(e.objects.BranchRetired, event, trialPeriod)
	if err != nil {
		return err
	}
	e.source, e.event, e.ticks = retired, event, t
	return nil
}
