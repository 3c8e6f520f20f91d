package probes

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
)

// Options say which events are recorded.
type Options struct {
	Kinds [profile.EventKinds]bool
	// ExactAllocations also counts every object, in JVMs started with -XX:+DTraceAllocProbes.
	ExactAllocations bool
	// MonitorEnters also estimates how often compiled code acquires free monitors, if Kinds has
	// Locks.
	MonitorEnters bool
	// Wakers also records who ended the waits of off-CPU time.
	Wakers bool
	// Slow has more waits recorded of threads in invocations of a method that is followed (package
	// slow).
	Slow bool
	// Values are the probes at which values are read, if Kinds has Values.
	Values []valueprobe.Spec
	// Budget is the share of the processes' CPU time that their probes may take; 0 means the
	// default of the agent.
	Budget float64
}

// Counters reports whether events of the CPU's own counters are recorded; o may be nil.
func (o *Options) Counters() bool { return o != nil && o.Kinds[profile.Cycles] }

// Waits reports whether off-CPU time is needed; o may be nil.
func (o *Options) Waits() bool { return o != nil && (o.Kinds[profile.OffCPU] || o.Kinds[profile.Wall]) }

// Wall reports whether wall time is recorded; o may be nil.
func (o *Options) Wall() bool { return o != nil && o.Kinds[profile.Wall] }

// Any reports whether any kind is recorded.
func (o *Options) Any() bool {
	for _, on := range o.Kinds {
		if on {
			return true
		}
	}
	return false
}
