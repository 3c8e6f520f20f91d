package hotspot

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// search walks all compilations, for copies of the method that are new. That takes milliseconds per
// thousand of them.
func (p *process) search() error {
	var all []vmruntime.Compilation
	if err := p.vm.Compilations(func(c vmruntime.Compilation) bool {
		all = append(all, c)
		return true
	}); err != nil {
		return err
	}
	methods := make([]uint64, len(all))
	for i := range all {
		methods[i] = all[i].Method
	}
	trees := p.trees(all)
	for _, tree := range trees {
		for i := range tree.Nodes {
			methods = append(methods, tree.Nodes[i].Method)
		}
	}
	for i := range all {
		if tree := trees[all[i].Version]; tree != nil && all[i].Tier == vmruntime.TierC2 {
			p.copies(tree)
		}
	}
	if err := p.nameMethods(methods); err != nil {
		return err
	}
	p.osrCode, p.inside = p.osrCode[:0], p.inside[:0]
	for i := range all {
		c := &all[i]
		if p.names[c.Method] && c.EntryBCI >= 0 {
			p.osr[c.Version] = true
			if len(p.osrCode) < maxOSR {
				p.osrCode = append(p.osrCode, *c)
			}
		}
		if tree := trees[c.Version]; tree != nil {
			p.searchInlined(c, tree)
		}
		if in := p.searched[c.Version]; in != nil && c.InUse {
			p.inside = append(p.inside, *in)
		}
	}
	if len(p.inside) == 0 {
		if err := p.searchVanished(all); err != nil {
			return err
		}
	}
	// The nearest first, but calls of those that are inlined themselves may enter no code of theirs
	// either.
	rank := func(c container) int {
		if p.copied[c.method] {
			return maxNamed + c.depth
		}
		return c.depth
	}
	slices.SortFunc(p.inside, func(a, b container) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a.function, b.function))
	})
	return nil
}

// trees are what is inlined into compilations that have not been searched, by version.
func (p *process) trees(all []vmruntime.Compilation) map[uint32]*vmruntime.InlineTree {
	trees := map[uint32]*vmruntime.InlineTree{}
	for i := range all {
		c := &all[i]
		if _, done := p.searched[c.Version]; done || c.Native() || !c.InUse || len(p.searched)+
			len(trees) >= maxInliners {
			continue
		}
		if tree, err := p.vm.InlineTree(*c); err == nil { // otherwise it went away, or it is looked at again
			trees[c.Version] = tree
		}
	}
	return trees
}

// copies notes of which methods C2's code has copies.
func (p *process) copies(tree *vmruntime.InlineTree) {
	for i := range tree.Nodes {
		if m := tree.Nodes[i].Method; m != tree.Nodes[0].Method && len(p.copied) < maxNamed {
			p.copied[m] = true
		}
	}
}

// nameMethods names the methods that have no name yet.
func (p *process) nameMethods(all []uint64) error {
	if len(p.names) > maxNamed {
		clear(p.names)
	}
	var places []vmruntime.Scope
	asked := map[uint64]bool{}
	for _, m := range all {
		if _, known := p.names[m]; !known && !asked[m] {
			asked[m] = true
			places = append(places, vmruntime.Scope{Method: m})
		}
	}
	const chunk = 1024
	for part := range slices.Chunk(places, chunk) {
		frames, err := p.vm.Names(part)
		if err != nil {
			return err
		}
		for i := range frames {
			if frames[i].Function != "" {
				p.names[part[i].Method] = p.is(&frames[i])
			}
		}
	}
	var methods []uint64
	for m, is := range p.names {
		if is && len(methods) < maxMethods {
			methods = append(methods, m)
		}
	}
	slices.Sort(methods)
	p.methods = methods
	if len(p.forms) > 1 && p.method.Signature == "" {
		return &AmbiguousError{p.method, slices.Sorted(maps.Keys(p.forms))}
	}
	return nil
}

func (p *process) is(f *vmruntime.Frame) bool {
	if f.Function != p.method.Function {
		return false
	}
	p.forms[f.Signature] = true
	return p.method.Signature == "" || f.Signature == p.method.Signature
}

// An AmbiguousError says that a class has several methods of the name.
type AmbiguousError struct {
	Method     Method
	Signatures []string
}

func (e *AmbiguousError) Error() string {
	return fmt.Sprintf("there are several methods %s: add the signature of one, as in %s%s (others: %s)",
		e.Method.Function, e.Method.Function,
		e.Signatures[0], strings.Join(e.Signatures[1:], ", "))
}

// A container is code of another method that contains a copy of this one.
type container struct {
	method   uint64
	function string
	depth    int  // depth of the copy: 1 if the other method itself calls it
	entered  bool // by calls; otherwise in the middle of a loop
	final    bool // C2's: the VM does not compile the method again unless an assumption fails
}

// searchInlined notes whether a compilation of another method contains this one.
func (p *process) searchInlined(c *vmruntime.Compilation, tree *vmruntime.InlineTree) {
	var found *container
	for i := range tree.Nodes {
		if i == 0 || !slices.Contains(p.methods, tree.Nodes[i].Method) {
			continue
		}
		if depth := depthOf(tree, i); found == nil || depth < found.depth {
			found = &container{method: c.Method, depth: depth, entered: c.EntryBCI < 0,
				final: c.Tier == vmruntime.TierC2}
		}
	}
	if found != nil {
		frames, err := p.vm.Names([]vmruntime.Scope{{Method: c.Method}})
		if err != nil || frames[0].Function == "" {
			return
		}
		found.function = frames[0].Function
		p.inlined[fmt.Sprintf("%s (%s)", found.function, versionName(c))] = true
	}
	p.searched[c.Version] = found
}

// searchVanished looks for final code that contains the method without a trace: such code needs no
// debug information in the copy. By its profile a method in the code calls this one, but the code
// does not.
func (p *process) searchVanished(all []vmruntime.Compilation) error {
	type copied struct {
		c      *vmruntime.Compilation
		method uint64
		depth  int
	}
	profiles := map[uint64]*vmruntime.MethodProfile{}
	read := func(methods []uint64) error {
		methods = slices.DeleteFunc(methods, func(m uint64) bool { return profiles[m] != nil })
		methods = methods[:min(len(methods), max(maxProfiled-len(profiles), 0))]
		more, err := p.vm.Profiles(methods)
		maps.Copy(profiles, more)
		return err
	}
	trees := map[*vmruntime.Compilation]*vmruntime.InlineTree{}
	var methods []uint64
	for i := range all {
		c := &all[i]
		if c.Tier != vmruntime.TierC2 || !c.InUse || len(methods) >= maxProfiled {
			continue
		}
		if tree, err := p.vm.InlineTree(*c); err == nil {
			trees[c] = tree
			for n := range tree.Nodes {
				methods = append(methods, tree.Nodes[n].Method)
			}
		}
	}
	slices.Sort(methods)
	if err := read(slices.Compact(methods)); err != nil {
		return err
	}
	var level []copied
	for c, tree := range trees {
		for n := range tree.Nodes {
			if of := profiles[tree.Nodes[n].Method]; of != nil {
				for _, m := range tree.Vanished(n, of) {
					level = append(level, copied{c, m, depthOf(tree, n) + 1})
				}
			}
		}
	}
	seen := map[copied]bool{}
	for range maxVanished {
		methods = methods[:0]
		for _, v := range level {
			methods = append(methods, v.method)
		}
		slices.Sort(methods)
		methods = slices.Compact(methods)
		if err := errors.Join(p.nameMethods(methods), read(methods)); err != nil {
			return err
		}
		var next []copied
		for _, v := range level {
			if seen[v] || len(seen) > maxNamed {
				continue
			}
			seen[v] = true
			if v.method != v.c.Method && len(p.copied) < maxNamed {
				p.copied[v.method] = true
			}
			if p.names[v.method] {
				p.contains(v.c, v.depth)
			}
			if of := profiles[v.method]; of != nil {
				alone := vmruntime.InlineTree{Nodes: []vmruntime.InlineNode{{Parent: -1, BCI: -1, Method: v.method}}}
				for _, m := range alone.Vanished(0, of) {
					next = append(next, copied{v.c, m, v.depth + 1})
				}
			}
		}
		level = next
	}
	return nil
}

// contains notes that a compilation of another method contains this one without a trace.
func (p *process) contains(c *vmruntime.Compilation, depth int) {
	frames, err := p.vm.Names([]vmruntime.Scope{{Method: c.Method}})
	if err != nil || frames[0].Function == "" || len(p.inside) >= maxMethods {
		return
	}
	p.inside = append(p.inside, container{method: c.Method, function: frames[0].Function, depth: depth,
		entered: c.EntryBCI < 0, final: true})
	p.inlined[fmt.Sprintf("%s (%s)", frames[0].Function, versionName(c))] = true
}

// depthOf is how many calls a node of a tree is away from the method that was compiled.
func depthOf(tree *vmruntime.InlineTree, n int) (depth int) {
	for at := n; at > 0; at = tree.Nodes[at].Parent {
		depth++
	}
	return depth
}

// An InlinedError says that calls of a method enter no code of its own, because it is inlined into
// its callers.
type InlinedError struct {
	Method  Method
	Callers []string // methods whose code contains it and has an entry, the nearest first; it may be empty
	Loops   []string // methods with code that contains it and is entered in the middle of a loop
}

func (e *InlinedError) Error() string {
	const shown = 5
	text := fmt.Sprintf("%s is inlined wherever it is called: its calls have no entry for a breakpoint; ", e.Method)
	if len(e.Callers) == 0 {
		return text + fmt.Sprintf("it is in code that loops (%s), which has no entry either: choose another method "+
			"that the loop calls", strings.Join(e.Loops[:min(len(e.Loops), shown)], ", "))
	}
	text += "choose the nearest caller with compiled code of its own: " + e.Callers[0]
	if others := e.Callers[1:min(len(e.Callers), shown)]; len(others) > 0 {
		text += " (others: " + strings.Join(others, ", ") + ")"
	}
	return text
}

// everywhere returns an InlinedError if the last search found final code that contains the method;
// nil if it did not. Whether calls also enter code of the method is for the caller to know.
func (p *process) everywhere() error {
	e := &InlinedError{Method: p.method}
	for _, c := range p.inside {
		switch {
		case !c.final || c.function == p.method.Function:
		case c.entered && !slices.Contains(e.Callers, c.function):
			e.Callers = append(e.Callers, c.function)
		case !c.entered && !slices.Contains(e.Loops, c.function):
			e.Loops = append(e.Loops, c.function)
		}
	}
	if len(e.Callers)+len(e.Loops) == 0 {
		return nil
	}
	return e
}

// current returns the code that calls of the method enter now: one compilation for each copy of the
// method.
func (p *process) current() (list []vmruntime.Compilation, err error) {
	if len(p.methods) == 0 {
		return nil, nil
	}
	found, err := p.vm.Current(p.methods)
	if err != nil {
		return nil, err
	}
	for _, c := range found {
		if c.InUse && c.EntryBCI < 0 && c.VerifiedEntry != 0 {
			list = append(list, c)
		}
	}
	slices.SortFunc(list, func(a, b vmruntime.Compilation) int { return cmp.Compare(a.Version, b.Version) })
	return list, nil
}

// still reports whether calls enter a compilation now. Numbers of compilations are never used
// again, so if that was so before and after a window it was so all the time.
func (p *process) still(c *vmruntime.Compilation) bool {
	found, err := p.vm.Current([]uint64{c.Method})
	now, ok := found[c.Method]
	return err == nil && ok && now.Version == c.Version && now.VerifiedEntry == c.VerifiedEntry && now.InUse
}

// exists reports whether a compilation is still where it was: threads may run in it, whether or not
// calls enter it.
func (p *process) exists(c *vmruntime.Compilation) bool {
	now, err := p.vm.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, PC: c.Begin, Version: c.Version})
	return err == nil && now.Begin == c.Begin && now.End == c.End
}

// notes are what a reader of timings must know about what they do not contain.
func (p *process) notes(done string) (notes []string) {
	const shown = 5
	if len(p.inlined) > 0 {
		names := slices.Sorted(maps.Keys(p.inlined))
		more := ""
		if n := len(names) - shown; n > 0 {
			names, more = names[:shown], fmt.Sprintf(" and %d more", n)
		}
		note := fmt.Sprintf("process %d: %s is inlined into %s%s; calls there have no entry and are not %s", p.PID,
			p.method, strings.Join(names, ", "), more, done)
		if e := (*InlinedError)(nil); errors.As(p.everywhere(), &e) && len(e.Callers) > 0 {
			note += "; the nearest caller with compiled code of its own is " + e.Callers[0]
		}
		notes = append(notes, note)
	}
	if len(p.osr) > 0 {
		notes = append(notes, fmt.Sprintf("process %d: %s has %d OSR versions, which are entered in the middle of a "+
			"loop: invocations are not %s there", p.PID, p.method, len(p.osr), done))
	}
	if len(p.methods) == 0 {
		notes = append(notes, fmt.Sprintf("process %d: no compiled code of %s was found: it is interpreted, inlined "+
			"everywhere, or not called", p.PID, p.method))
	}
	return notes
}

// searchPause is how long to wait between searches that take so long.
func searchPause(took time.Duration) time.Duration { return max(time.Second, 100*took) }

// searchDue searches if it is time to. notes are sentences about invocations that are not done so,
// such as timed. An error says that to go on is of no use: others are of this moment, as the VM moves
// its code while it is read, and failed is why the search failed.
func (p *process) searchDue(done string) (searched bool, notes []string, failed, err error) {
	now := proc.Monotonic()
	if now < p.due {
		return false, nil, nil, nil
	}
	failed = p.search()
	after := proc.Monotonic()
	p.due = after + searchPause(after-now)
	if ambiguous := (*AmbiguousError)(nil); errors.As(failed, &ambiguous) {
		err = failed
	}
	return true, p.notes(done), failed, err
}
