package hotspot

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of the input for one estimate.
const (
	maxEstimated = 1 << 13 // call sites with callees, the most sampled ones; and compilations
	maxProfiled  = 1 << 13 // methods whose counters are read: some 10 us each
	profileDepth = 3       // how deep methods are followed that were inlined without a trace in the code
)

// An input is what is known about one process in the ids of package estimate, and the meaning of
// the ids. The worker that handles the process makes it.
type input struct {
	estimate.Input
	guest   *guest.VM
	vm      vmruntime.CallCounter
	epoch   uint32           // epoch of classes when the input is made
	entries []listener.Entry // by CodeID; entries with Address 0 cannot have breakpoints
	methods []uint64         // by MethodID: addresses

	codeIDs   map[codeKey]estimate.CodeID
	methodIDs map[uint64]estimate.MethodID
	entered   map[uint64]bool                     // methods with a code that their calls enter
	profiles  map[uint64]*vmruntime.MethodProfile // by method, once they are read
	lost      losses
}

// losses are what the input of an estimate lacks.
type losses struct {
	samples  float64 // samples of call sites beyond the bounds
	gone     float64 // samples in compilations that no longer exist, or in methods of unloaded classes
	code     int     // compilations that were sampled or observed, and no longer exist
	windows  int     // windows of breakpoints on such compilations
	threads  int     // windows in which threads were left out; they are used all the same
	compiled int     // compilations beyond maxEstimated
	methods  int     // methods beyond maxProfiled
}

// String is a clause for people, "" if nothing was lost.
func (l losses) String() string {
	var parts []string
	for _, part := range []struct {
		n    int
		what string
	}{
		{int(l.samples), "samples of rare call sites"},
		{l.code, "compilations that are gone"},
		{l.windows, "windows of such"},
		{l.threads, "windows' threads whose debug registers were in use, or that were beyond the bound"},
		{l.compiled, "compilations that were not sampled"},
		{l.methods, "methods' counters"},
	} {
		if part.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", part.n, part.what))
		}
	}
	if parts == nil {
		return ""
	}
	return "without " + strings.Join(parts, ", ")
}

// A codeKey is a compilation by its version, or a method as the interpreter executes it.
type codeKey struct {
	version uint32
	method  uint64
}

// newInput combines timer samples (top, from a time of that length) with what breakpoints observed.
func newInput(
	g *guest.VM, vm vmruntime.CallCounter, epoch uint32, top fold.TopEdges, windows []observedWindow, length, period,
	hit time.Duration,
) *input {
	in := emptyInput(g, vm, epoch)
	in.Input = estimate.Input{
		Duration: length.Seconds(), CPU: top.All * period.Seconds(), Period: period.Seconds(), HitCost: hit.Seconds(),
	}
	in.observe(top, windows)
	return in
}

// emptyInput returns an input without samples and observations.
func emptyInput(g *guest.VM, vm vmruntime.CallCounter, epoch uint32) *input {
	return &input{
		guest: g, vm: vm, epoch: epoch,
		codeIDs: map[codeKey]estimate.CodeID{}, methodIDs: map[uint64]estimate.MethodID{}, entered: map[uint64]bool{},
	}
}

// observe adds samples and observations.
func (in *input) observe(top fold.TopEdges, windows []observedWindow) {
	in.addEdges(top)
	in.addBelow(top)
	for _, w := range windows {
		in.addWindow(w)
	}
}

// addEdges adds timer samples. Edges that differ only in the place within the callee are merged.
func (in *input) addEdges(top fold.TopEdges) {
	edges := slices.SortedFunc(maps.Keys(top.Edges), func(a, b fold.TopEdge) int {
		return cmp.Or(cmp.Compare(top.Edges[b], top.Edges[a]), cmp.Compare(a.At.Frame, b.At.Frame),
			cmp.Compare(a.From.Frame, b.From.Frame))
	})
	type key struct {
		from   guest.RawFrame
		callee estimate.CodeID
	}
	index := map[key]int{}
	kept := min(len(edges), maxEstimated)
	in.lost.samples += top.Left
	for _, e := range edges[kept:] {
		in.lost.samples += top.Edges[e]
	}
	for _, e := range edges[:kept] {
		callee := in.code(e.At, true)
		if callee == estimate.VM {
			in.lost.gone += top.Edges[e]
			continue
		}
		k := key{e.From, callee}
		i, known := index[k]
		if !known {
			i = len(in.Edges)
			index[k] = i
			caller, site := in.place(e.From)
			in.Edges = append(in.Edges, estimate.Edge{Caller: caller, Site: site, Callee: callee})
		}
		in.Edges[i].Samples += top.Edges[e]
		if e.At.Frame.Kind() == bpf.FrameJIT {
			if edge, err := in.vm.AtEdge(in.guest.Site(e.At.Frame, true, e.At.Epoch)); err == nil && edge {
				in.Edges[i].AtEdge += top.Edges[e]
			}
		}
	}
}

// maxBelow bounds the calls that addBelow adds: for each method of theirs the VM's counts and call
// sites are read, and remembered.
const maxBelow = 1 << 9

// addBelow adds the callers of code that was in stacks, but never at the top of one. Without a
// sample, nothing else may show who calls it: the VM counts only the calls of methods that are
// called themselves. Of many calls it adds those that were in most stacks.
func (in *input) addBelow(top fold.TopEdges) {
	sampled := map[estimate.CodeID]bool{}
	for i := range in.Edges {
		sampled[in.Edges[i].Callee] = true
	}
	edges := slices.SortedFunc(maps.Keys(top.Below), func(a, b fold.TopEdge) int {
		return cmp.Or(cmp.Compare(top.Below[b], top.Below[a]), cmp.Compare(a.At.Frame, b.At.Frame),
			cmp.Compare(a.From.Frame, b.From.Frame))
	})
	most := min(len(in.Edges)+maxBelow, maxEstimated)
	for _, e := range edges {
		if len(in.Edges) >= most {
			return
		}
		callee := in.code(e.At, false)
		if callee == estimate.VM || sampled[callee] {
			continue
		}
		caller, site := in.place(e.From)
		in.Edges = append(in.Edges, estimate.Edge{Caller: caller, Site: site, Callee: callee})
	}
}

// addWindow adds the observations of one window.
func (in *input) addWindow(w observedWindow) {
	if w.partial {
		in.lost.threads++
	}
	out := estimate.Window{Length: w.length.Seconds(), Armed: w.ran.Seconds(), Full: w.capped}
	for _, f := range w.entries {
		if c := in.code(guest.RawFrame{Frame: f, Kind: guest.RawExact}, true); c != estimate.VM {
			out.Codes = append(out.Codes, c)
		}
	}
	if len(out.Codes) < len(w.entries) {
		in.lost.windows++
		return // the rest would misrepresent the callers
	}
	for h, n := range w.hits {
		callee := in.code(guest.RawFrame{Frame: h.callee, Kind: guest.RawExact}, true)
		caller, _ := in.place(h.caller)
		out.Hits = append(out.Hits, estimate.Hit{Caller: caller, Callee: callee, Count: float64(n)})
	}
	slices.SortFunc(out.Hits, func(a, b estimate.Hit) int {
		return cmp.Or(cmp.Compare(a.Caller, b.Caller), cmp.Compare(a.Callee, b.Callee))
	})
	in.Windows = append(in.Windows, out)
}

// code returns the id of the code that a frame is in; VM if it is in none, or in code that no
// longer exists.
func (in *input) code(r guest.RawFrame, exact bool) estimate.CodeID {
	switch r.Frame.Kind() {
	case bpf.FrameJIT:
		k := codeKey{version: r.Frame.CompileID()}
		if id, known := in.codeIDs[k]; known {
			return id
		}
		c, err := in.vm.Compilation(in.guest.Site(r.Frame, exact, r.Epoch))
		if err != nil {
			in.lost.code++
			in.codeIDs[k] = estimate.VM
			return estimate.VM
		}
		return in.addCode(k, &c)
	case bpf.FrameInterpreted:
		if r.Epoch != in.epoch {
			return estimate.VM // its Method structure may belong to another method by now
		}
		k := codeKey{method: r.Frame.Method()}
		if id, known := in.codeIDs[k]; known {
			return id
		}
		return in.add(k, estimate.Code{Method: in.method(k.method), Tier: estimate.Interpreted}, listener.Entry{})
	}
	return estimate.VM
}

func (in *input) add(k codeKey, c estimate.Code, e listener.Entry) estimate.CodeID {
	id := estimate.CodeID(len(in.Codes))
	in.codeIDs[k] = id
	in.Codes, in.entries = append(in.Codes, c), append(in.entries, e)
	return id
}

// notLoop is Compilation.EntryBCI of code that calls enter.
const notLoop = -1

func (in *input) addCode(k codeKey, c *vmruntime.Compilation) estimate.CodeID {
	code := estimate.Code{Method: in.method(c.Method), Loop: c.EntryBCI != notLoop, Replaced: !c.InUse}
	switch {
	case c.Native():
		code.Tier = estimate.Native
	case c.Level == 2 || c.Level == 3: // C1's code that counts; level 2 counts only invocations
		code.Tier = estimate.Profiling
		code.CountsCalls = c.Level == 3
	}
	if tree, err := in.vm.InlineTree(*c); err == nil {
		for _, n := range tree.Nodes {
			copied := estimate.Copy{Method: in.method(n.Method), Parent: int32(n.Parent), BCI: int32(n.BCI)}
			for _, bci := range n.Calls {
				copied.Calls = append(copied.Calls, int32(bci))
			}
			code.Copies = append(code.Copies, copied)
		}
	}
	if !code.Loop && !code.Replaced {
		in.entered[c.Method] = true
	}
	entry, ok := listener.EntryOf(*c)
	if !ok {
		entry = listener.Entry{}
	}
	return in.add(k, code, entry)
}

// place returns the code that contains a return address, and the inline chain there.
func (in *input) place(r guest.RawFrame) (estimate.CodeID, []estimate.Place) {
	id := in.code(r, false)
	if id == estimate.VM {
		return id, nil
	}
	if r.Frame.Kind() == bpf.FrameInterpreted {
		return id, []estimate.Place{{Method: in.method(r.Frame.Method()), BCI: r.Frame.BCI()}}
	}
	scopes, err := in.vm.Scopes(in.guest.Site(r.Frame, false, r.Epoch))
	if err != nil {
		return id, nil
	}
	var chain []estimate.Place
	for _, s := range scopes {
		chain = append(chain, estimate.Place{Method: in.method(s.Method), BCI: int32(s.BCI)})
	}
	return id, chain
}

func (in *input) method(addr uint64) estimate.MethodID {
	id, known := in.methodIDs[addr]
	if !known {
		id = estimate.MethodID(len(in.methods))
		in.methodIDs[addr] = id
		in.methods = append(in.methods, addr)
	}
	return id
}

// readProfiles adds what the VM counted in all methods of the codes, and in their callees as far as
// these may have been inlined. before is an earlier reading, from which rates follow; this reading
// replaces it.
func (in *input) readProfiles(before *reading, now time.Duration) error {
	profiles := map[uint64]*vmruntime.MethodProfile{}
	for fresh, depth := in.methods, 0; len(fresh) > 0 && depth <= profileDepth; depth++ {
		room := max(0, maxProfiled-len(profiles))
		in.lost.methods += max(0, len(fresh)-room)
		fresh = fresh[:min(len(fresh), room)]
		read, err := in.vm.Profiles(fresh)
		if err != nil {
			return err
		}
		maps.Copy(profiles, read)
		known := len(in.methods)
		var called []uint64
		for _, m := range fresh {
			if p := read[m]; p != nil {
				called = append(called, in.addTargets(p)...)
			}
		}
		if err := in.addCurrent(called); err != nil {
			return err
		}
		fresh = in.methods[known:]
	}
	in.Methods = make([]estimate.Profile, len(in.methods))
	for i, m := range in.methods {
		if p := profiles[m]; p != nil {
			in.Methods[i] = in.profile(p)
			before.rates(p, now, time.Duration(in.Duration*float64(time.Second)), &in.Methods[i])
		}
	}
	in.profiles = profiles
	before.replace(profiles, now)
	in.markLoops()
	return nil
}

// markLoops marks code of methods that were not entered in the window, and run all the same: they
// loop, like those that are entered in the middle. The interpreter counts the calls of a loop only
// if its method's calls were counted when it was entered, so these counts may lack some.
func (in *input) markLoops() {
	for i := range in.Codes {
		c := &in.Codes[i]
		p := &in.Methods[c.Method]
		if !p.EntersKnown || p.Entered > 0 || c.Tier != estimate.Interpreted && c.Tier != estimate.Profiling {
			continue
		}
		c.Loop = true
		if c.Tier == estimate.Interpreted {
			p.Covered = 0
		}
	}
}

// maxSearched bounds the compilations that are searched for methods whose calls are not all
// counted, some 100 us each.
const maxSearched = 1 << 9

// markElsewhere marks methods of which code that does not count contains a copy, if counts are
// used. Beyond its bound it marks all.
func (in *input) markElsewhere() error {
	if !in.MostlyCounts() {
		return nil
	}
	var others []vmruntime.Compilation
	if err := in.vm.Compilations(func(c vmruntime.Compilation) bool {
		if !c.Native() && c.Level != 3 {
			others = append(others, c)
		}
		return len(others) <= maxSearched
	}); err != nil {
		return err
	}
	if len(others) > maxSearched {
		in.markAll()
		return nil
	}
	elsewhere := map[uint64]bool{}
	for i := range others {
		tree, err := in.vm.PassingTree(others[i])
		if err != nil {
			in.markAll()
			return nil
		}
		for n := range tree.Nodes {
			elsewhere[tree.Nodes[n].Method] = true
			in.markVanished(tree, n, elsewhere)
		}
	}
	for i := range in.Methods {
		in.Methods[i].Elsewhere = elsewhere[in.methods[i]]
	}
	return nil
}

func (in *input) markAll() {
	for m := range in.Methods {
		in.Methods[m].Elsewhere = true
	}
}

// markVanished marks methods that were inlined into a copy without a trace: the copy neither calls
// nor contains them.
func (in *input) markVanished(tree *vmruntime.InlineTree, n int, elsewhere map[uint64]bool) {
	p := in.profiles[tree.Nodes[n].Method]
	if p == nil {
		return
	}
	var mark func(m uint64)
	mark = func(m uint64) {
		if elsewhere[m] {
			return
		}
		elsewhere[m] = true
		if p := in.profiles[m]; p != nil {
			for i := range p.Calls {
				for t := range callTargets(&p.Calls[i]) {
					mark(t)
				}
			}
		}
	}
	for _, m := range tree.Vanished(n, p) {
		mark(m)
	}
}

// addTargets gives ids to the callees of a method, and returns its counted callees.
func (in *input) addTargets(p *vmruntime.MethodProfile) (called []uint64) {
	for i := range p.Calls {
		to := callTargets(&p.Calls[i])
		for _, t := range slices.Sorted(maps.Keys(to)) {
			in.method(t)
			if to[t] > 0 {
				called = append(called, t)
			}
		}
	}
	return called
}

// addCurrent adds the code that calls of methods enter, for methods without samples: most code of a
// program is never sampled.
func (in *input) addCurrent(methods []uint64) error {
	methods = slices.DeleteFunc(methods, func(m uint64) bool { return in.entered[m] })
	room := max(0, maxEstimated-len(in.Codes))
	in.lost.compiled += max(0, len(methods)-room)
	methods = methods[:min(len(methods), room)]
	current, err := in.vm.Current(methods)
	if err != nil {
		return err
	}
	for _, m := range methods {
		c, ok := current[m]
		if _, known := in.codeIDs[codeKey{version: c.Version}]; ok && !known {
			in.addCode(codeKey{version: c.Version}, &c)
		}
	}
	return nil
}

func (in *input) profile(p *vmruntime.MethodProfile) estimate.Profile {
	out := estimate.Profile{Invocations: float64(p.Invocations)}
	for i := range p.Calls {
		c := &p.Calls[i]
		site := estimate.Site{BCI: int32(c.BCI), Count: float64(c.Count)}
		for t, n := range callTargets(c) {
			site.Targets = append(site.Targets, estimate.Target{Method: in.method(t), Count: float64(n)})
		}
		slices.SortFunc(site.Targets, func(a, b estimate.Target) int { return cmp.Compare(a.Method, b.Method) })
		out.Sites = append(out.Sites, site)
	}
	return out
}

// callTargets returns the methods called at a site, with their counts.
func callTargets(c *vmruntime.CallCount) map[uint64]uint64 {
	if c.Target != 0 {
		return map[uint64]uint64{c.Target: c.Count}
	}
	to := map[uint64]uint64{}
	for _, r := range c.Receivers {
		if r.Target != 0 {
			to[r.Target] += r.Count
		}
	}
	return to
}
