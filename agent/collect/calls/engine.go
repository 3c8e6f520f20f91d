package calls

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An Engine samples calls in processes from its creation until it is closed. Its samples arrive in
// the agent's event stream. Optional abilities are in the interfaces below, which an Engine may
// implement as well.
type Engine interface {
	// Name is the engine's name for --engine.
	Name() string
	// Tune changes how much is sampled, from the next tick on.
	Tune(profile.Rate) error
	// Cost is what sampling has cost the profiled processes so far.
	Cost() budget.Cost
	// Notes are what a reader of the profiles must know about its samples, one sentence each.
	Notes() []string
	// Close disarms everything and removes the engine from the kernel and from the profiled
	// processes.
	Close() error
}

// Add receives a weighed call of the process in the record's header.
type Add = func(h *bpf.Header, e profile.Edge, weight float64)

// A Folder names and weighs the records of its calls. Fold returns false if a call cannot be named.
// Each record must be passed once, in the order of the stream.
type Folder interface {
	Fold(c *bpf.Call, add Add) bool
}

// A NamedFolder is a Folder whose records carry the names of their calls.
type NamedFolder interface {
	Fold(c *bpf.NamedCall, add Add) bool
}

// A SampleHolder holds samples back until it knows how many calls they stand for. Flush hands them
// out at once, because a window ends. Held is the number of samples that it holds.
type SampleHolder interface {
	Flush(add Add)
	Held() int
}

// An Unweigher hands out no edge for some of the calls that it has named. Unweighed counts those by
// cause.
type Unweigher interface {
	Unweighed() map[string]uint64
}

// A Waiter may still have samples on their way after Tune has paused it. Wait returns when they
// have arrived.
type Waiter interface {
	Wait()
}

// A GuestFinder finds its processes itself. Look is called with every process, and reports whether
// the engine samples it from now on. Its error is vmruntime.ErrStarting for a process that is not
// ready yet.
type GuestFinder interface {
	Look(ctx context.Context, pid int) (bool, error)
}

// A Connector is an engine to which processes connect by themselves. Connected returns the runtime
// names that the connected processes gave, by pid. EverConnected reports whether any process has
// connected since the start.
type Connector interface {
	Connected() map[int]string
	EverConnected() bool
}

// A Watching engine observes calls in watches of breakpoints. Watches counts them since the engine
// began.
type Watching interface {
	Watches() Watches
}
