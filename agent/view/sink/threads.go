package sink

import (
	"fmt"
	"maps"
	"math"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// thread appends the tree of one thread, which counts samples or calls.
func (b *pprofBuilder) thread(proc *profile.Process, thread *profile.Thread, of Content) error {
	if thread.Tree == nil && thread.Unseen == 0 {
		return nil
	}
	labels := processLabels(proc)
	setLabel(labels, stored.LabelThread, thread.Name)
	setLabel(labels, stored.LabelThreadGroup, stored.ThreadGroup(thread.Name))
	if of == CallCounts { // whole contexts are only known where every call was counted
		setLabel(labels, stored.LabelEngine, stored.ExactEngine)
		setLabel(labels, stored.LabelBasis, profile.Counted.String())
	}
	if thread.Context != profile.Certain {
		setLabel(labels, stored.LabelContext, thread.Context.String())
	}
	if thread.Stopped {
		setLabel(labels, stored.LabelStopped, stored.StoppedYes)
	}
	approximated := maps.Clone(labels)
	setLabel(approximated, stored.LabelAttribution, stored.Approximate)
	numbers := b.numbers(proc)
	numbers[stored.LabelTID] = []int64{int64(thread.TID)}

	if of == Time && thread.Unseen > 0 {
		b.profile.Sample = append(b.profile.Sample, &pprof.Sample{
			Location: []*pprof.Location{b.complete(b.location(nil, thread.UnseenIn))}, Label: labels, NumLabel: numbers,
			Value: b.content.values(0, thread.Unseen.Nanoseconds(), 0, 0),
		})
	}
	if thread.Tree == nil {
		return nil
	}
	var samples uint64 // so far
	// before is the time of these samples in ns, rounded as a sum, so that the thread's CPU time
	// stays.
	before := int64(0)
	// approximate says, by node, whether a frame of the stack is. Parents come before their
	// children.
	approximate := make([]bool, thread.Tree.Len()+1)
	for id, n := range thread.Tree.Nodes() {
		if of == Time && id != cct.Root {
			approximate[id] = approximate[n.Parent] || n.Key.Approximate()
		}
		var entered uint64
		if of == Time && b.content.entries() {
			entered = n.Entered
		}
		if n.Self == 0 && entered == 0 {
			continue
		}
		samples += n.Self
		time := thread.Time(samples, b.period)
		if of == Time && time >= math.MaxInt64 || samples > math.MaxInt64 || entered > math.MaxInt64 {
			return fmt.Errorf("%d samples, or %d entries, are too many for the format", samples, entered)
		}
		sample := &pprof.Sample{Location: b.stack(thread.Tree, id), Label: labels, NumLabel: numbers}
		if of == Time {
			sample.Value = b.content.values(int64(n.Self), int64(math.Round(time))-before, 0, int64(entered))
			before = int64(math.Round(time))
		} else {
			sample.Value = b.content.values(0, 0, int64(n.Self), 0)
		}
		if n.Self > 0 && approximate[id] {
			sample.Label = approximated
		}
		b.profile.Sample = append(b.profile.Sample, sample)
	}
	return nil
}

// numbers are the numeric labels of all samples of a process.
func (b *pprofBuilder) numbers(proc *profile.Process) map[string][]int64 {
	numbers := map[string][]int64{stored.LabelPID: {int64(proc.PID)}}
	if b.window > 0 {
		numbers[stored.LabelWindow] = []int64{b.window}
	}
	return numbers
}

// processLabels are the labels of all samples of a process.
func processLabels(proc *profile.Process) map[string][]string {
	labels := make(map[string][]string)
	setLabel(labels, stored.LabelComm, proc.Comm)
	setLabel(labels, stored.LabelRuntime, proc.Runtime)
	setLabel(labels, stored.LabelService, proc.Service)
	for _, l := range proc.Labels {
		setLabel(labels, stored.Printable(l.Name), l.Value)
	}
	return labels
}

func setLabel(labels map[string][]string, key, value string) {
	if value != "" { // to pprof an empty label is a missing one
		labels[key] = []string{stored.Printable(value)}
	}
}

// noFrame stands for the frames of a sample that has none.
var noFrame = symbol.Intern(symbol.Frame{Kind: symbol.KindMarker})

// stack returns the locations of a context, innermost first. There is always one.
func (b *pprofBuilder) stack(tree *cct.Tree[symbol.Symbol], id cct.NodeID) []*pprof.Location {
	if id == cct.Root {
		// A sample without any frame, or one that found no room in its tree.
		return []*pprof.Location{b.complete(b.location(nil, noFrame))}
	}
	locations := make([]*pprof.Location, 0, tree.Node(id).Depth)
	var inlined *pprof.Location // lines so far of the location that is being put together
	for id != cct.Root {
		n := tree.Node(id)
		id = n.Parent
		inlined = b.location(inlined, n.Key)
		if !n.Key.Inlined() || id == cct.Root {
			locations = append(locations, b.complete(inlined))
			inlined = nil
		}
	}
	return locations
}
