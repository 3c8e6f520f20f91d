package prom

import (
	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A method is what a series of a service is about, as labels: names that look the same are the same.
type method struct{ runtime, name string }

// selfTimes is the CPU time of one window in nanoseconds, by service label and by the method that was innermost.
// It is as large as the window: one entry for each distinct innermost method.
type selfTimes map[string]map[method]uint64

// measure sums up a window. Every folded sample is in exactly one entry, those without any frame in method=(other).
func measure(p *agent.Profile) selfTimes {
	times := make(selfTimes)
	labels := make(map[string]string) // of function names: many frames share one, and making a label is slow
	for _, proc := range p.Processes {
		service, runtime := label(proc.Service), runtimeLabel(proc.Runtime)
		methods := times[service]
		if methods == nil {
			methods = make(map[method]uint64)
			times[service] = methods
		}
		for _, thread := range proc.Threads {
			if thread.Tree == nil {
				continue
			}
			for id, node := range thread.Tree.Nodes() {
				if node.Self == 0 {
					continue
				}
				name := other
				if id != cct.Root {
					name = methodLabel(labels, node.Key.Value().Function)
				}
				methods[method{runtime, name}] += node.Self * uint64(p.Period)
			}
		}
	}
	return times
}

func methodLabel(memo map[string]string, function string) string {
	l, ok := memo[function]
	if !ok {
		l = label(function)
		memo[function] = l
	}
	return l
}
