package sink

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Content is a set of what a profile tells of: time, calls, or both; or else events of one kind, see OfEvents.
type Content uint16

const (
	// Time is where CPU time was spent: the sample types samples/count and cpu/nanoseconds.
	Time Content = 1 << iota
	// CallCounts is how often calls were made: the sample type calls/count.
	CallCounts
	// Entries is how often samples found a context newly entered, which is Whaley's weight of an edge (Java Grande
	// 2000): the sample type entries/count. It is there beside Time only.
	Entries
)

// Names and units of sample types.
const (
	typeSamples = "samples"
	typeCPU     = "cpu"
	typeCalls   = "calls"
	typeEntries = "entries"
	unitCount   = "count"
	unitTime    = "nanoseconds"
)

// ContentOf returns what was recorded in p: time, unless nothing but calls was; and entries where they were counted. If
// there are neither samples nor calls, it is the first of Kinds, if there is one.
func ContentOf(p *profile.Profile) Content {
	if p.Unit == profile.CallCounts {
		return CallCounts
	}
	var content Content
	for _, proc := range p.Processes {
		if len(proc.Calls) > 0 {
			content |= CallCounts
		}
		for _, thread := range proc.Threads {
			if thread.Tree != nil && thread.Tree.Total() > 0 {
				content |= Time
			}
			if thread.Tree != nil && thread.Tree.EdgeTotal() > 0 {
				content |= Time | Entries
			}
		}
	}
	if content != 0 {
		return content
	}
	if kinds := Kinds(p); len(kinds) > 0 {
		return OfEvents(kinds[0])
	}
	return Time
}

// entries says that there is a column for them.
func (c Content) entries() bool { return c&(Time|Entries) == Time|Entries }

// sampleTypes returns the columns of values that c takes, which values fills, and the column that readers are to see
// first.
func (c Content) sampleTypes() (types []*pprof.ValueType, first string) {
	if kind, ok := c.Events(); ok {
		return eventTypes(kind)
	}
	if c&Time != 0 {
		types = append(types, &pprof.ValueType{Type: typeSamples, Unit: unitCount}, &pprof.ValueType{Type: typeCPU, Unit: unitTime})
		first = typeCPU
	}
	if c&CallCounts != 0 {
		types = append(types, &pprof.ValueType{Type: typeCalls, Unit: unitCount})
		first = typeCalls
	}
	if c.entries() { // the last one: see Windows.Add
		types = append(types, &pprof.ValueType{Type: typeEntries, Unit: unitCount})
	}
	return types, first
}

// values are those of one sample: of the sampling event, with the entries of its context, or of calls.
func (c Content) values(samples, cpu, calls, entries int64) []int64 {
	values := make([]int64, 0, 4)
	if c&Time != 0 {
		values = append(values, samples, cpu)
	}
	if c&CallCounts != 0 {
		values = append(values, calls)
	}
	if c.entries() {
		values = append(values, entries)
	}
	return values
}

func isCalls(t *pprof.ValueType) bool { return t.Type == typeCalls && t.Unit == unitCount }

// HasCalls says that a stored profile has a sample type for calls, though maybe none of them.
func HasCalls(p *pprof.Profile) bool { return slices.ContainsFunc(p.SampleType, isCalls) }

// holdsCalls says that a stored profile has calls.
func holdsCalls(p *pprof.Profile) bool {
	return HasCalls(p) && anyCalls(p, func(*pprof.Sample) bool { return true })
}

// holdsContexts says that a stored profile has calls with their whole context. Sampled edges have two frames.
func holdsContexts(p *pprof.Profile) bool { return HasCalls(p) && anyCalls(p, hasContext) }

// hasContext says of a sample of calls that it is a whole stack: one of ours, or whatever another profiler wrote.
func hasContext(s *pprof.Sample) bool {
	engine := label(s, labelEngine)
	return engine == "" || engine == exactEngine
}

func anyCalls(p *pprof.Profile, which func(*pprof.Sample) bool) bool {
	index := typeIndex(p, typeCalls)
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 && which(s) })
}

// HasTime says that a stored profile has a sample type for samples.
func HasTime(p *pprof.Profile) bool { return typeIndex(p, typeSamples) >= 0 }

// HasEntries says that a stored profile tells how often samples found contexts newly entered.
func HasEntries(p *pprof.Profile) bool {
	index := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == typeEntries && t.Unit == unitCount })
	return index >= 0 && slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 })
}
