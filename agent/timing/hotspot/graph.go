package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/timing/place"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Graph is a method's control flow as package place takes it. Its frequencies are those of the time in which the VM counted, before C2's
// code took over: as of warm-up.
func Graph(flow *vmruntime.MethodFlow) *place.Graph {
	g := &place.Graph{Blocks: make([]place.Block, len(flow.Blocks))}
	for i := range flow.Blocks {
		b := &flow.Blocks[i]
		g.Blocks[i] = place.Block{Freq: float64(b.Count), Cost: b.Cost, Successors: b.Successors}
	}
	return g
}

// flow reads the control flow of the method, of its first copy.
func (p *process) flow() (*vmruntime.MethodFlow, error) {
	reader, ok := p.vm.(vmruntime.FlowReader)
	if !ok || len(p.methods) == 0 {
		return nil, fmt.Errorf("control flow of %s: %w", p.method, vmruntime.ErrUnknown)
	}
	return reader.Flow(p.methods[0])
}
