package hitcost

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
)

// ErrKind says that a kind cannot be measured: no kernel allows a probe there.
var ErrKind = errors.New("a hit of this kind cannot be measured")

// Options are the amount of measurements. The zero value takes about 50 ms, for 30 of which one CPU
// is busy.
type Options struct {
	Hits   int // per round; 0 means 2,000
	Rounds int // 0 means 5
}

const (
	defaultHits   = 2000
	defaultRounds = 5
)

// Measure returns the time of a probe's hit on an instruction of that kind: into the kernel, the
// program, and back. It is the median of several rounds of a loop of this process with the probe,
// minus that of the same loop without. The loop itself takes 1 ns.
//
// The program is p; nil means one that returns at once. Root is needed, or the capabilities
// for uprobes. In a profiled process a hit also evicts cache lines, which costs tens of nanoseconds
// more.
func Measure(k probesite.Kind, p *ebpf.Program, o Options) (_ time.Duration, err error) {
	if o.Hits <= 0 {
		o.Hits = defaultHits
	}
	if o.Rounds <= 0 {
		o.Rounds = defaultRounds
	}
	run, addr, err := loopOf(k)
	if err != nil {
		return 0, err
	}
	if p == nil {
		if p, err = empty(); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, p.Close()) }()
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	without := median(run, o)
	detach, err := attachTo(addr, p)
	if err != nil {
		return 0, fmt.Errorf("measure a hit on a %v: %w", k, err)
	}
	run(1) // at the first hit the kernel prepares the place
	with := median(run, o)
	if err := detach(); err != nil {
		return 0, fmt.Errorf("measure a hit on a %v: %w", k, err)
	}
	return max(0, with-without), nil
}

// median runs rounds and returns the median of the time that one turn of the loop takes.
func median(run func(uint64), o Options) time.Duration {
	rounds := make([]time.Duration, o.Rounds)
	for i := range rounds {
		begin := threadTime()
		run(uint64(o.Hits))
		rounds[i] = threadTime() - begin
	}
	slices.Sort(rounds)
	return rounds[len(rounds)/2] / time.Duration(o.Hits)
}

// threadTime is the CPU time of this thread: on a busy machine, the wall time of a round includes
// time slices of others.
func threadTime() time.Duration {
	var t unix.Timespec
	if unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t) != nil {
		return time.Duration(time.Now().UnixNano())
	}
	return time.Duration(t.Nano())
}

// attachTo attaches the program to the instruction of this process at addr.
func attachTo(addr uint64, p *ebpf.Program) (detach func() error, err error) {
	self := os.Getpid()
	maps, err := proc.Root("/proc").Maps(self, proc.Executable)
	if err != nil {
		return nil, err
	}
	m := maps.Find(addr)
	if m == nil || !m.IsFile() {
		return nil, fmt.Errorf("code at %#x of this process is in no file", addr)
	}
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	links, err := attach.NewUprobes().Attach(file, self, p, []attach.Site{{Offset: addr - m.Start + m.Offset,
		OwnsStack: true}})
	if err != nil {
		return nil, err
	}
	return func() error {
		var errs []error
		for _, l := range links {
			errs = append(errs, l.Close())
		}
		return errors.Join(errs...)
	}, nil
}

// empty loads a program that does nothing.
func empty() (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{
		Name: "hitcost_empty", Type: ebpf.Kprobe, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	}
	if attach.NewUprobes().Multi() {
		spec.AttachType = ebpf.AttachTraceUprobeMulti
	}
	p, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load an empty program: %w", err)
	}
	return p, nil
}
