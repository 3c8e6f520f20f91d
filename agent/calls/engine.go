package calls

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// An Engine samples calls of guests from its making until it is closed. What it samples arrives in the agent's event
// stream. What only some engines do is in the interfaces below, which an Engine may implement as well.
type Engine interface {
	// Name is what --engine chooses it by.
	Name() string
	// Tune changes how much is sampled, from the next tick on.
	Tune(profile.Rate) error
	// Cost is what sampling has cost the guests so far.
	Cost() Cost
	// Notes are what a reader of the profiles must know of its samples, one sentence each.
	Notes() []string
	// Close disarms everything and takes the engine out of the kernel and out of the guests.
	Close() error
}

// Add receives a weighed call of the process that a record is of.
type Add = func(h *bpf.Header, e profile.Edge, weight float64)

// A Folder names and weighs the records of its calls. Fold is false if a call cannot be named. Records must come in the
// order of the stream, each once.
type Folder interface {
	Fold(c *bpf.Call, add Add) bool
}

// A NamedFolder is a Folder whose records bring the names of their calls.
type NamedFolder interface {
	Fold(c *bpf.NamedCall, add Add) bool
}

// A SampleHolder holds samples back until it knows how many calls they stand for. Flush hands them out at once, because a window ends.
// Held is how many it holds.
type SampleHolder interface {
	Flush(add Add)
	Held() int
}

// An Unweigher hands out no edge for some of the calls that it has named. Unweighed counts those by cause.
type Unweigher interface {
	Unweighed() map[string]uint64
}

// A Waiter still has samples under way when Tune has paused it. Wait returns when they have arrived.
type Waiter interface {
	Wait()
}

// A GuestFinder finds its guests itself. Look is called with every process, and reports whether that is a guest from now on. Its error
// is vmruntime.ErrStarting for a process that is not ready yet.
type GuestFinder interface {
	Look(ctx context.Context, pid int) (bool, error)
}

// A Connector has guests that connect to it. Connected returns the names that the connected ones give their runtimes, by pid.
// EverConnected reports whether it has accepted a guest since it was started.
type Connector interface {
	Connected() map[int]string
	EverConnected() bool
}

// A Watching engine observes calls in watches of breakpoints. Watches counts these since the engine began.
type Watching interface {
	Watches() Watches
}
