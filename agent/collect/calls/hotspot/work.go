package hotspot

import (
	"cmp"
	"maps"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of what is read to know the work of calls.
const (
	maxWorkers  = 1 << 9 // methods, some 20 us each
	workSamples = 0.95   // share of the samples whose code is looked at: that with most of them
)

// readWork adds how much bytecode the VM counted in the methods of the sampled code: how long a
// call takes follows from it. Methods whose flow cannot be read have none.
func (in *input) readWork() {
	vm, ok := in.vm.(vmruntime.FlowReader)
	if !ok {
		return
	}
	for _, m := range in.workers() {
		flow, err := vm.Flow(in.methods[m])
		if err != nil {
			continue
		}
		in.Methods[m].Work = in.workOf(flow, in.profiles[in.methods[m]])
	}
}

// workOf is the cost of all the bytecode of a method that was executed, without its calls. Without
// counts it is that of one execution, if the bytecode has no branches, else 0.
func (in *input) workOf(flow *vmruntime.MethodFlow, p *vmruntime.MethodProfile) (work float64) {
	switch {
	case p == nil:
		return 0
	case !p.Counted || !flow.Counted:
		if len(flow.Blocks) != 1 || p.Invocations > 0 {
			return 0
		}
		return max(flow.Blocks[0].Cost-float64(len(p.Calls))*vmruntime.CallCost, 1)
	}
	for i := range flow.Blocks {
		b := &flow.Blocks[i]
		cost := b.Cost
		for c := range p.Calls {
			if at := p.Calls[c].BCI; at >= b.Begin && at < b.End {
				cost -= vmruntime.CallCost
			}
		}
		work += max(cost, 0) * float64(b.Count)
	}
	return work
}

// workers are the methods whose work matters: those in the code with most samples, and then what
// they call.
func (in *input) workers() []estimate.MethodID {
	samples := map[estimate.CodeID]float64{}
	all := 0.
	for i := range in.Edges {
		samples[in.Edges[i].Callee] += in.Edges[i].Samples
		all += in.Edges[i].Samples
	}
	codes := slices.SortedFunc(maps.Keys(samples), func(a, b estimate.CodeID) int {
		return cmp.Or(cmp.Compare(samples[b], samples[a]), cmp.Compare(a, b))
	})
	var list []estimate.MethodID
	known := make([]bool, len(in.Methods))
	add := func(m estimate.MethodID) {
		if len(list) < maxWorkers && int(m) < len(known) && !known[m] {
			known[m] = true
			list = append(list, m)
		}
	}
	seen := 0.
	for _, c := range codes {
		if seen >= workSamples*all {
			break
		}
		seen += samples[c]
		add(in.Codes[c].Method)
		for i := range in.Codes[c].Copies {
			add(in.Codes[c].Copies[i].Method)
		}
	}
	for i := 0; i < len(list); i++ {
		for s := range in.Methods[list[i]].Sites {
			for _, t := range in.Methods[list[i]].Sites[s].Targets {
				if t.Count > 0 {
					add(t.Method)
				}
			}
		}
	}
	return list
}
