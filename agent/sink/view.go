package sink

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// ViewOptions says how much of a profile a view shows. The zero value shows everything.
type ViewOptions struct {
	N        int     // methods in the table; 0 for all
	MinShare float64 // of all samples, in percent: contexts below are left out of the tree
	Width    int     // columns that lines should keep to, by shortening names; 0 to keep names whole
}

// DefaultViewOptions is what fits on a terminal. The share is that of Figure 12 of Inoue and Nakatani (OOPSLA 2009).
func DefaultViewOptions() *ViewOptions { return &ViewOptions{N: 20, MinShare: 0.3, Width: 79} }

// A view is a stored profile as a calling context tree of method names: lines, addresses and threads are merged.
type view struct {
	tree cct.Tree[string]
	how  []how  // by NodeID: how that context's innermost method was executed
	unit string // what the weights are: "samples"
}

// method is one line of a location.
type method struct {
	name string
	how  how
}

// newView builds the tree of a profile. With processes, and if there are several, the outermost frame of each
// stack names its process. It fails if p does not count anything that can be added up.
func newView(p *profile.Profile, processes bool) (*view, error) {
	if len(p.SampleType) == 0 {
		return nil, errors.New("the profile has no values")
	}
	index, err := p.SampleIndexByName("samples")
	if err != nil {
		index, err = p.SampleIndexByName("") // some other profiler's default
	}
	if err != nil {
		return nil, fmt.Errorf("choose a sample type: %w", err)
	}
	v := &view{how: make([]how, 1), unit: printable(p.SampleType[index].Type)} // how of Root: none
	processes = processes && severalProcesses(p)
	methods := make(map[*profile.Location][]method)
	var stack []method
	var names []string
	for _, sample := range p.Sample {
		value := sample.Value[index]
		if value < 0 {
			return nil, errors.New("the profile has negative values, as differences of profiles do: compare with go tool pprof instead")
		}
		if uint64(value) > math.MaxInt64-v.tree.Total() {
			return nil, errors.New("the values of the profile add up to more than 63 bits")
		}
		stack = stack[:0]
		for _, loc := range sample.Location {
			lines, ok := methods[loc]
			if !ok {
				lines = locationMethods(loc)
				methods[loc] = lines
			}
			stack = append(stack, lines...)
		}
		if len(stack) == 0 {
			stack = append(stack, method{name: unnamed})
		}
		if processes {
			stack = append(stack, method{name: processName(sample)})
		}
		names = names[:0]
		for _, m := range stack {
			names = append(names, m.name)
		}
		v.add(stack, v.tree.Add(names, uint64(value)))
	}
	return v, nil
}

// add notes how the methods of a stack were executed that was added as id.
func (v *view) add(stack []method, id cct.NodeID) {
	if missing := v.tree.Len() + 1 - len(v.how); missing > 0 {
		v.how = append(v.how, make([]how, missing)...)
	}
	for id != cct.Root {
		n := v.tree.Node(id)
		v.how[id] |= stack[len(stack)-n.Depth].how
		id = n.Parent
	}
}

// share returns the part of the whole profile that weight is, in percent.
func (v *view) share(weight uint64) float64 {
	if v.tree.Total() == 0 {
		return 0
	}
	return 100 * float64(weight) / float64(v.tree.Total())
}

// writeLegend explains the marks that a view used, and what it could not show.
func (v *view) writeLegend(out *bufio.Writer, used how) {
	if legend := used.legend(); legend != "" {
		fmt.Fprintf(out, "marks: %s\n", legend)
	}
	if n := v.tree.Overflow(); n > 0 {
		fmt.Fprintf(out, "too many contexts: %d %s are counted for a caller instead\n", n, v.unit)
	}
}

// locationMethods returns the methods of a location, innermost first.
func locationMethods(loc *profile.Location) []method {
	kind := mappingHow(loc.Mapping)
	methods := make([]method, 0, max(len(loc.Line), 1))
	for i, line := range loc.Line {
		m := method{unnamed, kind | inlined}
		if i == len(loc.Line)-1 {
			m.how = kind | called
		}
		if line.Function != nil && line.Function.Name != "" {
			m.name = printable(line.Function.Name)
		}
		methods = append(methods, m)
	}
	if len(methods) == 0 {
		methods = append(methods, method{unnamed, kind | called})
	}
	for i := range methods {
		if methods[i].name == unnamed && loc.Mapping != nil && loc.Mapping.File != "" {
			methods[i].name += " " + printable(filepath.Base(loc.Mapping.File))
		}
	}
	return methods
}

// severalProcesses says that the samples carry more than one pid.
func severalProcesses(p *profile.Profile) bool {
	var first int64
	for i, sample := range p.Sample {
		if pid := processID(sample); i == 0 {
			first = pid
		} else if pid != first {
			return true
		}
	}
	return false
}

func processID(sample *profile.Sample) int64 {
	if pids := sample.NumLabel[labelPID]; len(pids) > 0 {
		return pids[0]
	}
	return 0
}

// processName is what a process is called at the root of a tree.
func processName(sample *profile.Sample) string {
	comm := unnamed
	if comms := sample.Label[labelComm]; len(comms) > 0 {
		comm = printable(comms[0])
	}
	return fmt.Sprintf("%s (pid %d)", comm, processID(sample))
}
