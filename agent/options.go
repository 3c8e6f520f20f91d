package agent

import (
	"cmp"
	"log/slog"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/slow"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Options configure an Agent. The zero value samples the whole machine at 99 Hz.
type Options struct {
	Frequency int          // samples a second of CPU time, per CPU; 0 means DefaultFrequency
	Clock     attach.Clock // what decides when a sample is taken
	PIDs      []int        // only these processes and the children they start; nil means all
	// Filter chooses processes in the kernel even if PIDs is empty (more are added with Choose).
	Filter      bool
	MaxContexts int // calling contexts that open windows hold, all together; 0 means DefaultMaxContexts
	// RingBytes is the size of the event stream's buffer, a power of two; 0 means half a MiB for
	// each CPU, 1 to 4 MiB.
	RingBytes    uint32
	NameDeadline time.Duration    // how long closing a window waits for names; 0 means 2 s
	Proc         proc.Root        // where procfs is; "" means /proc
	Version      string           // version of the program, for comments in profiles
	Calls        *engines.Options // sample calls, too; nil means no
	Events       *events.Options  // record events of guests, too; nil means no
	Slow         *slow.Options    // keep the slowest invocations of a method; nil means no. It needs wall time
	// Breakpoints says whether call engines and MonitorEnters may set hardware breakpoints in
	// guests.
	Breakpoints breakpoint.Policy
	NoTime      bool         // profiles leave out where time goes
	Log         *slog.Logger // nil means none
	// Settle is called by New once what takes privileges is loaded, before anything is read of a
	// target; nil means nothing.
	Settle func() error

	Contexts     profile.ContextMode // how calling contexts are found
	WalkEvery    uint32              // ContextChain: walk one in so many samples whose link is known; 0 adapts
	LeaveUnknown bool                // ContextChain: walk samples whose link is unknown no more often than others
	// ConfirmLevels, for ContextPartial, is how many frames in a row must be known; 0 means
	// bpf.DefaultConfirmLevels.
	ConfirmLevels uint32
	CheckContexts bool // also walk every stack in full, and report how many contexts were right
}

// DefaultFrequency is not a divisor of common timer rates, so that samples do not march in step
// with them.
const DefaultFrequency = 99

// ringBytes is how large the event stream's buffer is on this machine. The kernel maps it twice, so
// that it counts as twice as much memory of the agent.
func ringBytes() uint32 {
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return bpf.DefaultRingBytes
	}
	return ringBytesOf(cpus)
}

// ringBytesOf is that for so many CPUs. Half a MiB holds more than a second of a CPU's samples at
// 999 Hz.
func ringBytesOf(cpus int) uint32 {
	const each, least = 512 << 10, 1 << 20
	size := uint32(least)
	for size < bpf.DefaultRingBytes && size < uint32(min(cpus, bpf.DefaultRingBytes/each))*each {
		size *= 2
	}
	return size
}

// DefaultMaxContexts is how many calling contexts windows hold where memory is not short: some 400
// MB with their names.
const DefaultMaxContexts = 1 << 22

func (o *Options) maxContexts() int { return cmp.Or(o.MaxContexts, DefaultMaxContexts) }

// period is the CPU time that one sample stands for.
func (a *Agent) period() time.Duration { return time.Second / time.Duration(a.opt.Frequency) }
