package hotspot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// inlineLimits returns the limits of the VM's inliner. They do not change, so that they are read
// once.
func (e *Engine) inlineLimits(g *guest.VM, p *fold.Process) profile.InlineLimits {
	e.mu.Lock()
	own := e.guestOf(p)
	e.mu.Unlock()
	if own.limits != nil {
		return *own.limits
	}
	own.limits = &profile.InlineLimits{}
	vm, err := guest.As[interface {
		Number(name string) (int64, error)
	}](g)
	if err != nil {
		return *own.limits
	}
	for name, to := range map[string]*int{
		"FreqInlineSize":                  &own.limits.FreqInlineSize,
		"InlineSmallCode":                 &own.limits.InlineSmallCode,
		"TypeProfileMajorReceiverPercent": &own.limits.TypeProfileMajorReceiverPercent,
	} {
		if n, err := vm.Number(name); err == nil && n > 0 && n <= math.MaxInt32 {
			*to = int(n)
		}
	}
	return *own.limits
}

// Bounds on calls with several receivers.
const (
	maxVirtualSites   = 1 << 10 // the most frequent ones
	fewestReceivers   = 3       // C2 inlines all of fewer
	maxVirtualTargets = 8
)

// inlining returns the sizes of callees, and the receivers of calls with many.
func (in *input) inlining(r *estimate.Result) (*profile.Inlining, error) {
	var out profile.Inlining
	entering := in.entering()
	callees, callers := map[estimate.MethodID]bool{}, map[estimate.Place]bool{}
	var methods []estimate.MethodID
	var sites []estimate.Place
	for _, c := range r.Calls {
		if c.Callee != estimate.NoMethod && !callees[c.Callee] {
			callees[c.Callee] = true
			methods = append(methods, c.Callee)
		}
		if !callers[c.Caller] && in.manyReceivers(c.Caller) != nil {
			callers[c.Caller] = true
			sites = append(sites, c.Caller)
		}
	}
	slices.SortStableFunc(sites, func(a, b estimate.Place) int {
		return cmp.Compare(in.manyReceivers(b).Count, in.manyReceivers(a).Count)
	})
	sites = sites[:min(len(sites), maxVirtualSites)]
	places := make([]vmruntime.Scope, 0, len(methods)+4*len(sites))
	for _, m := range methods {
		places = append(places, in.scope(estimate.Place{Method: m, BCI: -1}))
	}
	for _, s := range sites {
		places = append(places, in.scope(s))
		for _, t := range targetsOf(in.manyReceivers(s)) {
			places = append(places, vmruntime.Scope{Method: t.Target, BCI: -1})
		}
	}
	frames, err := in.vm.Names(places)
	if err != nil {
		return nil, fmt.Errorf("name callees: %w", err)
	}
	next := func() string { // returns the name of the next place; "" if it has none
		f := frames[0]
		frames = frames[1:]
		return f.Function + f.Signature
	}
	for _, m := range methods {
		name, size := next(), 0
		if p := in.profiles[in.methods[m]]; p != nil {
			size = p.Bytecode
		}
		if name != "" {
			out.Callees = append(out.Callees, profile.Callee{Method: name, Bytecode: size, Entering: entering[m]})
		}
	}
	slices.SortStableFunc(out.Callees, func(a, b profile.Callee) int { return strings.Compare(a.Method, b.Method) })
	for _, s := range sites {
		call := in.manyReceivers(s)
		site := profile.VirtualSite{Caller: next(), Offset: s.BCI, Calls: call.Count}
		for _, t := range targetsOf(call) {
			site.Targets = append(site.Targets, profile.VirtualTarget{Callee: next(), Calls: t.Count})
		}
		if site.Caller != "" {
			out.Sites = append(out.Sites, site)
		}
	}
	return &out, nil
}

// manyReceivers returns a call for which the VM counted receivers of three classes or more; nil
// otherwise.
func (in *input) manyReceivers(at estimate.Place) *vmruntime.CallCount {
	if at.Method < 0 || int(at.Method) >= len(in.methods) {
		return nil
	}
	p := in.profiles[in.methods[at.Method]]
	if p == nil || !p.Counted {
		return nil
	}
	call := p.Call(int(at.BCI))
	if call == nil {
		return nil
	}
	classes, distinguished := len(call.Receivers), uint64(0)
	for _, r := range call.Receivers {
		distinguished += r.Count
	}
	if call.Count > distinguished {
		classes++ // a class that the VM had no room for
	}
	if len(call.Receivers) == 0 || classes < fewestReceivers {
		return nil
	}
	return call
}

// targetsOf are the receivers of which the method is known, most calls first.
func targetsOf(c *vmruntime.CallCount) []vmruntime.Receiver {
	known := slices.DeleteFunc(slices.Clone(c.Receivers), func(r vmruntime.Receiver) bool { return r.Target == 0 })
	return known[:min(len(known), maxVirtualTargets)]
}

// entering returns the CPU time in prologues and epilogues, by method.
func (in *input) entering() map[estimate.MethodID]time.Duration {
	times := map[estimate.MethodID]time.Duration{}
	for _, e := range in.Edges {
		if e.AtEdge > 0 {
			times[in.Codes[e.Callee].Method] += time.Duration(e.AtEdge * in.Period * float64(time.Second))
		}
	}
	return times
}
