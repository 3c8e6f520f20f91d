package prom

import (
	"math"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A method is what a series of a service is about, as labels: names that look the same are the
// same.
type method struct {
	runtime, name string
	basis         string // for calls: how they were learned; otherwise ""
}

// usage is what the methods of one window used up, by service label. It is as large as the window.
type usage map[string]map[method]uint64

// forService returns the methods of a service.
func (u usage) forService(service string) map[method]uint64 {
	methods := u[service]
	if methods == nil {
		methods = make(map[method]uint64)
		u[service] = methods
	}
	return methods
}

// selfTimes is the CPU time of a window in nanoseconds, by the method that was innermost. Every
// folded sample is in exactly one entry, those without any frame in method=(other). Time without
// samples is in that of profile.Thread.UnseenIn.
func selfTimes(p *profile.Profile) usage {
	times := make(usage)
	// labels caches the labels of function names: many frames share one, and making a label is
	// slow.
	labels := make(map[string]string)
	for _, proc := range p.Processes {
		service, runtime := label(proc.Service), runtimeLabel(proc.Runtime)
		methods := times.forService(service)
		for _, thread := range proc.Threads {
			if thread.Unseen > 0 {
				methods[method{runtime: runtime, name: methodLabel(labels,
					thread.UnseenIn.Value().Function)}] += uint64(thread.Unseen)
			}
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
				methods[method{runtime: runtime, name: name}] += uint64(math.Round(thread.Time(node.Self, p.Period)))
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
