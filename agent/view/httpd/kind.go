package httpd

import (
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/httpd/api"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// A kind is something that the agent may record.
type kind struct {
	api.Kind
	About   string // what its profiles show
	Things  string // what happened, in the plural
	missing string // what an agent does not do that has none
	// recorded says whether there are any.
	recorded func(profile.Stats) bool
	// shown is how pages show the kind; nil if they do not, as its stacks are not whole.
	shown *view
}

// kinds are all there are. Pages show the first that is recorded and can be shown.
var kinds = func() []*kind {
	all := []*kind{
		{api.Kind{Name: "cpu", Title: "CPU profile", Content: sink.Time}, "methods by CPU time", "CPU time",
			"CPU time is not sampled",
			func(s profile.Stats) bool { return s.Time },
			&view{column: "CPU", whole: "100 % is one CPU.", amount: cpuTime}},
		{api.Kind{Name: "calls", Title: "Call graph", Content: sink.CallCounts}, "call counts by caller and callee",
			"calls", "calls are not sampled",
			func(s profile.Stats) bool { return s.Calls != nil }, nil},
	}
	for of := range profile.EventKinds {
		all = append(all, ofEvents(of))
	}
	return all
}()

// ofEvents is a kind of events.
func ofEvents(of profile.EventKind) *kind {
	d := of.Describe()
	shown := &view{column: d.Page.Column, value: d.Main, leaf: d.Leaf, aside: d.Page.Aside, asideAre: d.Page.Asides,
		whole: d.Page.Whole, events: true, kind: of, unit: d.Values[d.Main].Unit}
	shown.amount = func(p *profile.Profile, proc *profile.Process) float64 { return shown.eventAmount(of, proc) }
	return &kind{api.Kind{Name: d.Name, Title: d.Page.Title, Content: sink.OfEvents(of)}, d.Page.About, d.Page.Things,
		d.Page.Lack,
		func(s profile.Stats) bool { return s.Events != nil && slices.Contains(s.Events.Kinds, of) }, shown}
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
	if k.Content == sink.OfEvents(profile.Values) {
		text += " and a --probe"
	}
	return text
}
