package prom

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// calledMethods is how often methods were called in a window according to one engine, by callee and
// by basis.
func calledMethods(p *profile.Profile, engine string) usage {
	called := make(usage)
	labels := make(map[string]string)
	for _, proc := range p.Processes {
		for _, c := range proc.Calls {
			if c.Engine != engine || c.Basis == profile.Unmeasured {
				continue // a least number in one window is an estimate in the next: a sum of both says nothing
			}
			runtime := runtimeLabel(proc.Runtime)
			weights := make(map[method]float64)
			for e, weight := range c.Graph.Edges() {
				weights[method{runtime, methodLabel(labels, e.Callee.Value().Function), c.Basis.String()}] += weight
			}
			methods := called.forService(label(proc.Service))
			for m, weight := range weights {
				methods[m] += uint64(math.Round(weight))
			}
		}
	}
	return called
}
