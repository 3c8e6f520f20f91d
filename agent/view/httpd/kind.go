package httpd

import (
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A kind is something that the agent may record.
type kind struct {
	Name    string // name as -e has it, and in file names
	Title   string // title of its profiles
	About   string // what they show
	Things  string // what happened, in the plural
	missing string // what an agent does not do that has none
	content sink.Content
	// recorded says whether there are any.
	recorded func(profile.Stats) bool
	// shown is how pages show the kind; nil if they do not, as its stacks are not whole.
	shown *view
}

// kinds are all there are. Pages show the first that is recorded and can be shown.
var kinds = []*kind{
	{"cpu", "CPU profile", "methods by CPU time", "CPU time", "CPU time is not sampled", sink.Time,
		func(s profile.Stats) bool { return s.Time }, &view{column: "CPU", whole: "100 % is one CPU.",
			amount: cpuTime}},
	{"calls", "Call graph", "call counts by caller and callee", "calls", "calls are not sampled", sink.CallCounts,
		func(s profile.Stats) bool { return s.Calls != nil }, nil},
	ofEvents(profile.Allocations, "Allocations", "allocated objects, by class and method", "allocated bytes",
		"allocations are not recorded",
		view{column: "Allocated", value: 1, leaf: []string{"class"}, aside: profile.ExactAllocations,
			asideAre: "exact counts, which have no stacks"}),
	ofEvents(profile.Locks, "Locks", "who waits for locks, and for how long", "delay by locks",
		"locks are not recorded",
		view{column: "Delay", value: 2, leaf: []string{"kind", "class"}, aside: profile.WaitForWork,
			asideAre: "waits for work", whole: "100 % is one thread that waits all the time. Waits for work are not " +
				"included."}),
	ofEvents(profile.Values, "Values", "values read at probes", "executions of probes", "values are not recorded",
		view{column: "Executions", leaf: []string{"probe", "value"}}),
	ofEvents(profile.Pauses, "Pauses", "safepoint pauses and their reasons", "time stopped",
		"safepoints are not recorded",
		view{column: "Stopped", value: 1, leaf: []string{"kind"},
			whole: "100 % is a VM that is stopped all the time."}),
	ofEvents(profile.Faults, "Page faults", "first touches of memory", "page faults", "page faults are not recorded",
		view{column: "Faults", leaf: []string{"class"}}),
	ofEvents(profile.Cycles, "Cycles", "CPU cycles and instructions", "cycles", "cycles are not counted",
		view{column: "Cycles"}),
	ofEvents(profile.OffCPU, "Off-CPU time", "what threads wait for", "off-CPU time", "off-CPU time is not recorded",
		view{column: "Off CPU", value: 1, leaf: []string{"cause"}, aside: cause.Idle,
			asideAre: "threads with nothing to do",
			whole:    "100 % is one thread that is off the CPU all the time. Idle threads are not included."}),
	ofEvents(profile.Wall, "Wall time", "what threads do all the time, on the CPU and off it", "wall time",
		"wall time is not recorded",
		view{column: "Wall", leaf: []string{"cause"}, aside: cause.Idle, asideAre: "threads with nothing to do",
			whole: "100 % is one thread, all the time. Idle threads are not included."}),
	ofEvents(profile.Barriers, "Write barriers", "stores of references into old objects", "cards made dirty",
		"write barriers are not recorded",
		view{column: "Cards", leaf: []string{"class"}}),
}

// ofEvents is a kind of events.
func ofEvents(of profile.EventKind, title, about, things, missing string, shown view) *kind {
	shown.amount = func(p *profile.Profile, proc *profile.Process) float64 { return shown.eventAmount(of, proc) }
	shown.events, shown.kind = true, of
	shown.unit = of.Values()[shown.value].Unit
	return &kind{of.String(), title, about, things, missing, sink.OfEvents(of),
		func(s profile.Stats) bool { return s.Events != nil && slices.Contains(s.Events.Kinds, of) }, &shown}
}

// recordedKinds are those that the agent records.
func recordedKinds(s profile.Stats) (recorded []*kind) {
	for _, k := range kinds {
		if k.recorded(s) {
			recorded = append(recorded, k)
		}
	}
	return recorded
}

// shownKind is what pages show of what is recorded: the first kind that they can show; nil if there
// is none.
func shownKind(recorded []*kind) *kind {
	if i := slices.IndexFunc(recorded, func(k *kind) bool { return k.shown != nil }); i >= 0 {
		return recorded[i]
	}
	return nil
}

// refusal says why there are no profiles of the kind and what to do; it is empty if there are.
func (k *kind) refusal(s profile.Stats) string {
	if k.recorded(s) {
		return ""
	}
	var names []string // in the order of kinds, for all that there would be
	for _, other := range kinds {
		if other == k || other.recorded(s) {
			names = append(names, other.Name)
		}
	}
	text := k.missing + ": start the agent with serve -e " + strings.Join(names, ",")
	if k.content == sink.OfEvents(profile.Values) {
		text += " and a --probe"
	}
	return text
}
