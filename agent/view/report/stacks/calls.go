package stacks

import (
	"errors"
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

type (
	// A CallGraph is a dynamic call graph of stored methods.
	CallGraph = cct.Graph[Method, profile.Site]
	// A CallEdge is an edge of one.
	CallEdge = cct.Edge[Method, profile.Site]
)

// Calls are the calls in a stored profile that one engine recorded on one basis at one rate, of all
// processes. Strings are printable, empty where the profile does not say; numbers are 0 then.
type Calls struct {
	Engine  string
	Basis   string
	Stride  int64
	Samples int64 // a tick
	Graph   *CallGraph
	// Intervals are those of edges whose calls are estimated.
	Intervals map[CallEdge]profile.Interval
}

// MaxWays bounds how many Calls a file may hold; one of our own has a few.
const MaxWays = 64

// ErrNoCalls is the error of views of calls if a profile has none. It says how to record one that
// has.
var ErrNoCalls = errors.New("the profile has no calls: record some with vmprof-agent record -e calls")

// CallsOf returns the calls in a stored profile, in the order in which they are stored. The call of
// a sample is its innermost frame, the caller the next one, be that inlined in the same location or
// not. It fails if there are none.
func CallsOf(p *pprof.Profile) ([]*Calls, error) {
	if !HasCalls(p) {
		return nil, ErrNoCalls
	}
	s, err := NewSamples(p, stored.TypeCalls)
	if err != nil {
		return nil, err
	}
	if s.Total == 0 {
		return nil, ErrNoCalls
	}
	var (
		all   []*Calls
		index = make(map[callSource]*Calls) // by what its labels say
	)
	for sample, value := range s.All() {
		way := sourceOf(sample)
		c := index[way]
		if c == nil {
			if len(all) == MaxWays {
				return nil, fmt.Errorf("the profile has calls of more than %d engines, bases and rates", MaxWays)
			}
			c = &Calls{
				Engine: way.engine, Basis: way.basis, Stride: way.stride, Samples: way.samples, Graph: new(CallGraph),
				Intervals: make(map[CallEdge]profile.Interval),
			}
			index[way] = c
			all = append(all, c)
		}
		edge := s.Edge(sample)
		c.Graph.Add(edge, float64(value))
		if within, ok := IntervalOf(sample, float64(value), c.Basis); ok {
			c.Intervals[edge] = c.Intervals[edge].Add(within)
		}
	}
	return all, nil
}

// A callSource is where calls come from, by the labels of their samples.
type callSource struct {
	engine, basis   string
	stride, samples int64
}

// sourceOf reads the source of the calls of a sample.
func sourceOf(sample *pprof.Sample) callSource {
	return callSource{Label(sample, stored.LabelEngine), Label(sample, stored.LabelBasis),
		Number(sample, stored.LabelStride), Number(sample, stored.LabelSamples)}
}

// IntervalOf reads the interval of a sample's calls; ok is false if it says nothing of one.
func IntervalOf(sample *pprof.Sample, value float64, basis string) (within profile.Interval, ok bool) {
	factor := float64(Number(sample, stored.LabelFactor)) / 100
	switch {
	case factor < 1:
		return profile.Interval{Low: value, High: value}, false
	case basis == profile.Unmeasured.String():
		return profile.Interval{Low: value, High: value * factor * factor}, true
	}
	return profile.Interval{Low: value / factor, High: value * factor}, true
}

// EdgesOf returns the two innermost frames of all samples of a type as a call graph. Of calls it is
// the graph of all engines together; of CPU time it is the call graph that a profiler with only a
// timer would show.
func EdgesOf(p *pprof.Profile, sampleType string) (*CallGraph, error) {
	s, err := NewSamples(p, sampleType)
	if err != nil {
		return nil, err
	}
	g := new(CallGraph)
	for sample, value := range s.All() {
		g.Add(s.Edge(sample), float64(value))
	}
	return g, nil
}
