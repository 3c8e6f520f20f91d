// Package source says what an agent records from: a Source of CPU time, events, lock acquisitions
// or calls, and the Services that it gets. What only some sources take part in is an interface of
// its own here, which the agent looks for by type assertion.
//
//	type mySource struct {
//		source.Passive
//		*source.Services
//	}
//
//	func (m *mySource) Start(ctx context.Context) error { … }
package source

import (
	"context"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Source is something that an agent records. It embeds Passive, and implements what it takes part
// in. Records of it reach it through the agent's table of handlers.
type Source interface {
	guest.Follower

	// Start begins to record. What it begins goes on until Stop, or until ctx ends.
	Start(ctx context.Context) error
	// Stop ends what Start began, also if Start failed or was not called.
	Stop() error
	// Close takes everything out of the kernel. No worker runs any more.
	Close() error
}

// Passive is a source that does nothing.
type Passive struct{ guest.NopFollower }

func (Passive) Start(context.Context) error { return nil }
func (Passive) Stop() error                 { return nil }
func (Passive) Close() error                { return nil }

// What a source may implement besides. Methods that take a *fold.State are called by functions that
// have it; functions that have it must not call the others.
type (
	// A Refresher follows CPUs that came online or went.
	Refresher interface{ Refresh() error }
	// A Failer has a channel that receives the error for which Run ends.
	Failer interface{ Failed() <-chan error }
	// A Requester has workers do things: EndRequests ends what waits for them, while they still
	// run.
	Requester interface{ EndRequests() error }
	// An Expecter prepares for a window of that length that opens now.
	Expecter interface{ Expect(length time.Duration) }
	// A Finder reports whether a process that maps these files is to be attached to, though it may
	// have no VM.
	Finder interface{ Finds(maps proc.Maps) bool }
	// A HotUser wants to know which code is busy, if NeedsHot says so: see fold.State.Hot.
	HotUser interface{ NeedsHot() bool }
	// A Holder holds what it received until more arrives: Flush folds that, because a window or a
	// process ends.
	Holder interface{ Flush(*fold.State) }
	// A Finisher has something to add to a window that ends which is in no record. Finishing reads
	// what takes long, without a State, and returns what adds it to the window.
	Finisher interface {
		Finishing() func(*fold.State, *fold.Window)
	}
	// An Opener notes something in a window that is about to begin, unless it begins where another
	// one ends.
	Opener interface {
		Opened(*fold.State, *fold.Window)
	}
	// A Chooser must know when a process was chosen. Follow may also be called before Start and
	// after Stop.
	Chooser interface{ Follow() error }
	// A Namer calls Need for the frames whose names must be kept, besides those of windows.
	Namer interface {
		NeedNames(*fold.State, fold.NamesOf)
	}
	// A Counter has counts of its own in a Snapshot. Count reads what takes long, without a State,
	// and returns what takes the others with it.
	Counter interface{ Count() func(*fold.State) any }
	// A Reporter adds its part to the agent's Stats, given the kernel side's counters.
	Reporter interface {
		Report(*bpf.Counts, *profile.Stats)
	}
	// A Mapper has BPF maps besides those of samples and code, as fields of the structs that
	// KernelMaps returns.
	Mapper interface{ KernelMaps() []any }
	// A Filler adds its part to the profile of a closed window, before the parts of processes are
	// made.
	Filler interface {
		Fill(context.Context, *Closed, *profile.Profile) Part
	}
	// An Ender makes the whole profile of a window, instead of the agent.
	Ender interface {
		// End closes the window. Begin closes it and returns its profile before anything is in it.
		End(ctx context.Context, begin func() *profile.Profile) (*profile.Profile, error)
	}
)

// A Part is what is left to do of a profile after Fill. Functions may be nil.
type Part struct {
	Process func(*fold.Process, *profile.Process) // adds to the part of a process
	// Finish is called once the parts of all processes with samples are in the profile.
	Finish func()
}

// A Closed is a window that was closed and of which the profile is made.
type Closed struct {
	*fold.Window
	Processes     []*fold.Process // processes that have samples in it
	Before, After Snapshot        // snapshots at its begin and its end
	Unsampled     []Unsampled     // times in which CPUs had no ticks; the clock fills them in before Parts are finished
}

// An Unsampled is a CPU that was online in a window without being sampled, for no longer than that
// time.
type Unsampled struct {
	CPU  int
	Time time.Duration
}

// A Snapshot is what has been counted since the agent started.
type Snapshot struct {
	Kernel bpf.Counts
	fold.Counts
	BySource map[Source]any // what sources that implement Counter have counted
}
