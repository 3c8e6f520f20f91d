package report

import (
	"bufio"
	"cmp"
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A view is a stored profile as a calling context tree of method names: lines, addresses and
// threads are merged.
type view struct {
	tree cct.Tree[string]
	// flags says, by NodeID, how that context's innermost method was executed, and how its samples'
	// context was found.
	flags []stacks.Flags
	// entered is, by NodeID, how often samples found that context newly entered; nil if the profile
	// does not say.
	entered []uint64
	missing uint64               // part of entered that the tree had no room for
	unit    string               // what the weights are: "samples"
	format  func(float64) string // shows weights, as stacks.amount does
	leftOut string               // what is not in the tree, for the legend, or nothing
	kinds   map[string]string    // kind of work, by method; nil unless the VM's own work is summed
	outside map[string]bool      // methods that are not the application's, if there are kinds
}

// A viewForm says what a view makes of stacks.
type viewForm uint8

const (
	// byProcess has the outermost frame of each stack name its process, if there are several.
	byProcess  viewForm = 1 << iota
	summed              // samples of the VM's own work are one frame for each kind of it
	withIdle            // threads that have nothing to do are shown
	byTime              // samples have their CPU time
	withWakers          // stacks of waits end with those of who ended them
)

// formOf is that of views by method.
func formOf(o *layout.Options) viewForm {
	var form viewForm
	if o.SumVM {
		form |= summed
	}
	if o.Idle {
		form |= withIdle
	}
	return form
}

// newView builds the tree of a profile. It fails if p does not count anything that can be added up.
func newView(p *pprof.Profile, form viewForm) (*view, error) {
	typeOf := stacks.MainType
	if form&byTime != 0 {
		typeOf = stacks.TimeType
	}
	sampleType, err := typeOf(p)
	if err != nil {
		return nil, err
	}
	s, err := stacks.NewSamples(p, sampleType)
	if err != nil {
		return nil, err
	}
	v := &view{flags: make([]stacks.Flags, 1), unit: s.Unit(), format: s.Amount} // Root has no flags
	if form&withIdle == 0 {
		if waited := s.LeaveWaits(); waited > 0 {
			v.leftOut = fmt.Sprintf("omitted: waits for work, %s", v.amount(waited))
		}
	}
	processes := form&byProcess != 0 && stacks.SeveralProcesses(p)
	if form&summed != 0 {
		v.kinds, v.outside = make(map[string]string), make(map[string]bool)
	}
	var stack []stacks.Frame
	var names []string
	place := func(sample *pprof.Sample, value uint64) cct.NodeID {
		service := ""
		if form&summed != 0 {
			if kind, ok := stacks.VMWork(sample); ok {
				service = kind.String()
			}
		}
		if service != "" {
			stack = append(stack[:0], stacks.ServiceFrame(service))
		} else {
			locations := s.Own(sample)
			if form&withWakers != 0 {
				locations = sample.Location
			}
			stack = s.AppendLocations(stack[:0], locations)
		}
		v.addKinds(stack, service, sample)
		if processes {
			stack = append(stack, stacks.Frame{Method: stacks.Method{Name: stacks.ProcessName(sample)}})
		}
		names = names[:0]
		for _, f := range stack {
			names = append(names, f.Name)
		}
		id := v.tree.Add(names, value)
		v.add(stack, id)
		return id
	}
	for sample, value := range s.All() {
		v.flags[place(sample, value)] |= stacks.CertaintyOf(sample)
	}
	if sampleType != stored.TypeSamples || !stacks.HasEntries(p) {
		return v, nil
	}
	e, err := stacks.NewSamples(p, stored.TypeEntries)
	if err != nil {
		return nil, err
	}
	for sample, count := range e.All() {
		id := place(sample, 0)
		if v.tree.Node(id).Depth < len(names) { // its caller was not entered more often on its account
			v.missing += count
			continue
		}
		v.entered = grown(v.entered, int(id)+1)
		v.entered[id] += count
	}
	if v.entered != nil {
		v.entered = grown(v.entered, v.tree.Len()+1)
	}
	return v, nil
}

// addKinds notes of which kind of work the methods of a stack are.
func (v *view) addKinds(stack []stacks.Frame, service string, sample *pprof.Sample) {
	if v.kinds == nil {
		return
	}
	runtime := stacks.Label(sample, stored.LabelRuntime)
	for _, f := range stack {
		if v.kinds[f.Name] == "" {
			v.kinds[f.Name] = cmp.Or(service, stacks.WorkOf(f.Flags, runtime))
			v.outside[f.Name] = f.Native || f.Library
		}
	}
}

// grown returns list with zeros at its end, so that its length is at least n.
func grown[T any](list []T, n int) []T {
	return append(list, make([]T, max(n-len(list), 0))...)
}

// add notes how the methods of a stack were executed that was added as id.
func (v *view) add(stack []stacks.Frame, id cct.NodeID) {
	v.flags = grown(v.flags, v.tree.Len()+1)
	for id != cct.Root {
		n := v.tree.Node(id)
		v.flags[id] |= stack[len(stack)-n.Depth].Flags
		id = n.Parent
	}
}

// entries returns how often samples found a context newly entered, 0 if the profile does not say.
func (v *view) entries(id cct.NodeID) uint64 {
	if v.entered == nil {
		return 0
	}
	return v.entered[id]
}

// amount writes a weight for people.
func (v *view) amount(weight uint64) string { return v.format(float64(weight)) }

// share returns the part of the whole profile that weight is, in percent.
func (v *view) share(weight uint64) float64 {
	if v.tree.Total() == 0 {
		return 0
	}
	return 100 * float64(weight) / float64(v.tree.Total())
}

// writeLegend explains the marks that a view used, and what it could not show.
func (v *view) writeLegend(out *bufio.Writer, used stacks.Flags, width int) {
	if legend := used.Legend(); legend != "" {
		layout.Fold(out, "marks: "+legend, width)
	}
	if v.leftOut != "" {
		layout.Fold(out, v.leftOut, width)
	}
	if n := v.tree.Overflow(); n > 0 {
		fmt.Fprintf(out, "too many contexts: %s %s count for a caller instead\n", v.amount(n), v.unit)
	}
	if v.missing > 0 {
		fmt.Fprintf(out, "too many contexts: %d entries are omitted\n", v.missing)
	}
}
