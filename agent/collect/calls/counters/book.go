package counters

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Book caches callees and names, for when the VM has ended or unloaded its classes. The zero
// value is empty. It is immutable: a holder may read it while another goroutine calls Learn.
type Book struct {
	epoch   uint32
	targets map[Call]callee
	frames  map[vmruntime.Scope]vmruntime.Frame
}

// A callee is the method that a call leads to, 0 if it was not found in that many tries.
type callee struct {
	method uint64
	tries  int
}

// maxTries bounds how often the VM is asked what a call leads to: its class may not be linked yet.
const maxTries = 3

// Learn asks the VM for the callees that the book lacks, which takes ten microseconds per calling
// method. epoch is the number of times that the VM has unloaded or changed classes. If it has
// grown, the new book does not keep what was known before.
func (b *Book) Learn(vm VM, epoch uint32, d *Difference) (*Book, error) {
	next := &Book{epoch: epoch, targets: map[Call]callee{}, frames: map[vmruntime.Scope]vmruntime.Frame{}}
	if b.targets != nil && b.epoch == epoch {
		next.targets, next.frames = maps.Clone(b.targets), maps.Clone(b.frames)
	}
	if err := next.learnTargets(vm, d); err != nil {
		return nil, fmt.Errorf("look up callees: %w", err)
	}
	if err := next.learnNames(vm, d); err != nil {
		return nil, fmt.Errorf("name methods: %w", err)
	}
	return next, nil
}

func (b *Book) learnTargets(vm VM, d *Difference) error {
	open := map[uint64][]Call{} // by method
	for c := range d.Calls {
		if t := b.targets[c]; t.method == 0 && t.tries < maxTries {
			open[c.Method] = append(open[c.Method], c)
		}
	}
	if len(open) == 0 {
		return nil
	}
	methods := make([]uint64, 0, len(open))
	for m := range open {
		methods = append(methods, m)
	}
	slices.Sort(methods)
	profiles, err := vm.Profiles(methods)
	if err != nil {
		return err
	}
	for m, list := range open {
		for _, c := range list {
			t := b.targets[c]
			t.tries++
			if p := profiles[m]; p != nil {
				t.method = targetOf(p.Call(c.BCI), c.Klass)
			}
			b.targets[c] = t
		}
	}
	return nil
}

// targetOf returns the method that a call leads to for a class of receivers, 0 if unknown.
func targetOf(call *vmruntime.CallCount, klass uint64) uint64 {
	switch {
	case call == nil:
		return 0
	case call.Target != 0:
		return call.Target
	case klass == 0:
		return 0
	}
	for _, r := range call.Receivers {
		if r.Klass == klass {
			return r.Target
		}
	}
	return 0
}

func (b *Book) learnNames(vm VM, d *Difference) error {
	var places []vmruntime.Scope
	ask := func(s vmruntime.Scope) {
		if _, known := b.frames[s]; s.Method != 0 && !known {
			b.frames[s] = vmruntime.Frame{}
			places = append(places, s)
		}
	}
	for c := range d.Calls {
		ask(vmruntime.Scope{Method: c.Method, BCI: c.BCI})
		ask(vmruntime.Scope{Method: b.targets[c].method, BCI: -1})
	}
	slices.SortFunc(places, func(a, b vmruntime.Scope) int {
		return cmp.Or(cmp.Compare(a.Method, b.Method), cmp.Compare(a.BCI, b.BCI))
	})
	frames, err := vm.Names(places)
	if err != nil {
		return err
	}
	for i, s := range places {
		if frames[i].Function == "" {
			delete(b.frames, s) // a later Learn tries again
		} else {
			b.frames[s] = frames[i]
		}
	}
	return nil
}

// Markers stand in for methods that are missing.
const (
	unnamed       = "[unknown]"        // a method without a name
	unknownCallee = "[unknown callee]" // what was called is not known
)

// Graph returns the call graph. named makes a method from a frame, and marker one from a text.
func (b *Book) Graph(
	d *Difference, limit int, named func(vmruntime.Frame) symbol.Symbol, marker func(string) symbol.Symbol,
) *profile.Graph {
	g := &profile.Graph{Limit: limit}
	name := func(s vmruntime.Scope) (symbol.Symbol, vmruntime.Frame) {
		f, ok := b.frames[s]
		if !ok {
			return marker(unnamed), f
		}
		line := f
		f.Line = 0
		return named(f), line
	}
	for c, n := range d.Calls {
		caller, at := name(vmruntime.Scope{Method: c.Method, BCI: c.BCI})
		callee := marker(unknownCallee)
		if t := b.targets[c].method; t != 0 {
			callee, _ = name(vmruntime.Scope{Method: t, BCI: -1})
		}
		g.Add(profile.Edge{Caller: caller, Site: profile.Site{Line: int32(at.Line), Offset: int32(c.BCI)},
			Callee: callee}, float64(n))
	}
	return g
}

// Callees returns how often each method was called, by address; 0 is for unknown callees.
func (b *Book) Callees(d *Difference) cct.Weights[uint64] {
	w := cct.Weights[uint64]{}
	for c, n := range d.Calls {
		w[b.targets[c].method] += float64(n)
	}
	return w
}

// Elsewhere returns how often counted methods were entered by calls that the VM does not count:
// calls by native methods, by reflection, by the VM, and by methods that it did not yet count in.
func (b *Book) Elsewhere(d *Difference) (n uint64) {
	callees := b.Callees(d)
	for m, entered := range d.entered {
		if called := uint64(callees[m]); entered > called {
			n += entered - called
		}
	}
	return n
}
