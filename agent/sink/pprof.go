package sink

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Keys of the labels that samples carry.
const (
	labelThread      = "thread"
	labelComm        = "comm"
	labelRuntime     = "runtime"
	labelService     = "service"
	labelPID         = "pid" // numeric, as is tid
	labelTID         = "tid"
	labelAttribution = "attribution"
	// approximate is the attribution of a sample whose innermost method may owe its time to a method inlined in it.
	approximate = "approximate"
)

// Pprof converts a window. Every sample has two values, samples/count and cpu/nanoseconds, the second being the
// default. It fails if a value does not fit into 63 bits.
//
// Everything is symbolised and marked so, so that pprof never tries again with files that may have changed since.
// Methods inlined into each other are lines of one location, innermost first. The first mapping, which pprof takes
// for the main program, is the executable of the process that a reader most likely cares for: the busiest guest.
//
// The samples of one thread share their label maps.
func Pprof(p *agent.Profile) (*profile.Profile, error) {
	b := newPprofBuilder()
	b.profile.SampleType = []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	b.profile.DefaultSampleType = "cpu"
	b.profile.PeriodType = &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}
	b.profile.Period = p.Period.Nanoseconds()
	b.profile.DurationNanos = p.Duration.Nanoseconds()
	if !p.Start.IsZero() {
		b.profile.TimeNanos = p.Start.UnixNano()
	}
	b.profile.Comments = comments(p)
	if main := busiest(p.Processes); main != nil && main.Executable.File != "" {
		b.mapping(main.Executable)
	}
	for _, proc := range p.Processes {
		for _, thread := range proc.Threads {
			if err := b.thread(proc, thread); err != nil {
				return nil, fmt.Errorf("convert thread %d of process %d: %w", thread.TID, proc.PID, err)
			}
		}
	}
	b.finish()
	if err := b.profile.CheckValid(); err != nil {
		return nil, fmt.Errorf("check pprof profile: %w", err)
	}
	return b.profile, nil
}

// comments tells what the rest of the format has no place for: the accounts come first.
func comments(p *agent.Profile) []string {
	lines := []string{Summary(p.Counts)}
	if p.Event != "" {
		lines = append(lines, fmt.Sprintf("event: %s, one sample per %v of CPU time", printable(p.Event), p.Period))
	}
	for _, c := range p.Comments {
		lines = append(lines, printable(c))
	}
	return append(lines, notes(p)...)
}

// busiest returns the process with most samples, a guest if there is one, or nil.
func busiest(processes []*agent.Process) *agent.Process {
	if len(processes) == 0 {
		return nil
	}
	rank := func(p *agent.Process) (guest int, samples uint64) {
		if p.Runtime != "" {
			guest = 1
		}
		for _, thread := range p.Threads {
			if thread.Tree != nil {
				samples += thread.Tree.Total()
			}
		}
		return guest, samples
	}
	return slices.MaxFunc(processes, func(a, b *agent.Process) int {
		guestA, samplesA := rank(a)
		guestB, samplesB := rank(b)
		return cmp.Or(cmp.Compare(guestA, guestB), cmp.Compare(samplesA, samplesB))
	})
}

// thread appends the samples of one thread.
func (b *pprofBuilder) thread(proc *agent.Process, thread *agent.Thread) error {
	if thread.Tree == nil {
		return nil
	}
	labels := make(map[string][]string)
	for key, value := range map[string]string{
		labelThread:  thread.Name,
		labelComm:    proc.Comm,
		labelRuntime: proc.Runtime,
		labelService: proc.Service,
	} {
		if value != "" { // to pprof an empty label is a missing one
			labels[key] = []string{printable(value)}
		}
	}
	approximated := maps.Clone(labels)
	approximated[labelAttribution] = []string{approximate}
	numbers := map[string][]int64{labelPID: {int64(proc.PID)}, labelTID: {int64(thread.TID)}}

	period := uint64(max(b.profile.Period, 0))
	for id, n := range thread.Tree.Nodes() {
		if n.Self == 0 {
			continue
		}
		if n.Self > math.MaxInt64/max(period, 1) {
			return fmt.Errorf("%d samples of %d ns are too many for the format", n.Self, period)
		}
		sample := &profile.Sample{
			Location: b.stack(thread.Tree, id),
			Value:    []int64{int64(n.Self), int64(n.Self * period)},
			Label:    labels,
			NumLabel: numbers,
		}
		if id != cct.Root && n.Key.Value().Approximate {
			sample.Label = approximated
		}
		b.profile.Sample = append(b.profile.Sample, sample)
	}
	return nil
}

// stack returns the locations of a context, innermost first. There is always one.
func (b *pprofBuilder) stack(tree *cct.Tree[symbolize.Symbol], id cct.NodeID) []*profile.Location {
	if id == cct.Root {
		// A sample without any frame, or one that found no room in its tree.
		return []*profile.Location{b.complete(b.location(nil, symbolize.Frame{Kind: symbolize.KindMarker}))}
	}
	locations := make([]*profile.Location, 0, tree.Node(id).Depth)
	var inlined *profile.Location // lines so far of the location that is being put together
	for id != cct.Root {
		n := tree.Node(id)
		id = n.Parent
		frame := n.Key.Value()
		inlined = b.location(inlined, frame)
		if !frame.Inlined || id == cct.Root {
			locations = append(locations, b.complete(inlined))
			inlined = nil
		}
	}
	return locations
}
