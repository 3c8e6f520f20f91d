package program

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// labelMetric is the metric by which the program labels a process. As with the info metrics of
// Prometheus, its labels are what it says:
//
//	process_labels{pid="4711",team="checkout"} 1
const labelMetric = "process_labels"

// A processKey is a process as labels know it: pids are reused.
type processKey struct {
	pid                    int
	comm, service, runtime string
}

func keyOf(p *profile.Process) processKey { return processKey{p.PID, p.Comm, p.Service, p.Runtime} }

// processLabels are the labels of processes, each list by name.
type processLabels map[processKey][]profile.Label

// labelsIn takes the labels of processes of a window out of what the program said of it.
func labelsIn(list []Series, w *profile.Profile) (metrics []Series, labels processLabels, err error) {
	processes := make(map[int][]processKey) // several after an exec
	for _, p := range w.Processes {
		processes[p.PID] = append(processes[p.PID], keyOf(p))
	}
	labels = make(processLabels)
	for _, s := range list {
		if s.Name != labelMetric {
			metrics = append(metrics, s)
			continue
		}
		if s.Counter || s.Value != 1 {
			return nil, nil, fmt.Errorf("%s is a gauge of value 1", labelMetric)
		}
		pid, err := strconv.Atoi(s.Labels[stored.LabelPID])
		keys := processes[pid]
		switch {
		case err != nil:
			return nil, nil, fmt.Errorf("%s needs the label %s, a number", labelMetric, stored.LabelPID)
		case len(keys) == 0:
			return nil, nil, fmt.Errorf("%s of process %d, which is not in the window", labelMetric, pid)
		case labels[keys[0]] != nil:
			return nil, nil, fmt.Errorf("%s of process %d appears twice", labelMetric, pid)
		}
		given := []profile.Label{}
		for _, name := range slices.Sorted(maps.Keys(s.Labels)) {
			switch {
			case name == stored.LabelPID || s.Labels[name] == "": // to Prometheus an empty label is a missing one
			case stored.IsLabel(name):
				return nil, nil, fmt.Errorf("%s cannot set %s, a label of the agent's own: choose another name",
					labelMetric, name)
			default:
				given = append(given, profile.Label{Name: name, Value: s.Labels[name]})
			}
		}
		for _, key := range keys {
			labels[key] = given
		}
	}
	return metrics, labels, nil
}

// Label returns the window with the labels that the program gave to its processes last. The window
// itself does not change. It may be called from any goroutine.
func (p *Program) Label(w *profile.Profile) *profile.Profile {
	p.mu.Lock()
	defer p.mu.Unlock()
	labelled := *w
	labelled.Processes = slices.Clone(w.Processes)
	for i, of := range w.Processes {
		if given := p.labelsOf(keyOf(of)); len(given) > 0 {
			with := *of
			with.Labels = given
			labelled.Processes[i] = &with
		}
	}
	return &labelled
}

// labelsOf are the labels of a process by name. If the answers of several parts have one, that of
// the first part counts.
func (p *Program) labelsOf(key processKey) (list []profile.Label) {
	for _, part := range p.o.Parts {
		for _, l := range p.labels[part.Name][key] {
			if !slices.ContainsFunc(list, func(other profile.Label) bool { return other.Name == l.Name }) {
				list = append(list, l)
			}
		}
	}
	slices.SortFunc(list, func(a, b profile.Label) int { return cmp.Compare(a.Name, b.Name) })
	return list
}
