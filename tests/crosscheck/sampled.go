package main

import (
	"slices"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A sampled is where samples in Java code were taken.
type sampled struct {
	// compiled counts them by the method whose code ran: interpreted, or compiled with others
	// inlined in it. That does not depend on what the JVM recorded of inlined methods.
	compiled events.Weights
	// innermost counts them by the innermost method, inlined ones too.
	innermost events.Weights
}

func (s sampled) add(compiled, innermost string, count int64) {
	s.compiled[compiled] += float64(count)
	s.innermost[innermost] += float64(count)
}

// sampledBy counts the samples in Java code. JFR takes none in the JVM's stubs, such as those that
// copy arrays, so these are left out.
func sampledBy(p *pprof.Profile) sampled {
	s := sampled{compiled: events.Weights{}, innermost: events.Weights{}}
	for _, stack := range stacks.FromProfile(p) {
		if len(stack.Frames) == 0 || !stack.Frames[0].Java() {
			continue
		}
		compiled := slices.IndexFunc(stack.Frames, func(f stacks.Frame) bool { return !f.Inlined })
		s.add(stack.Frames[compiled].Function, stack.Frames[0].Function, stack.Count)
	}
	return s
}

// unnamed is the share of samples in [inlined in M], in percent.
func (s sampled) unnamed() float64 {
	sum := 0.
	for method, weight := range s.innermost {
		if stacks.InlinedIn(method) {
			sum += weight
		}
	}
	return 100 * sum / max(s.innermost.Total(), 1)
}

// alike is the overlap that two samples of one distribution would have, on average.
func alike(a, b events.Weights) float64 {
	mean, _ := events.Alike(a, b)
	return mean
}
