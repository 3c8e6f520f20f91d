package nmethod

import (
	"fmt"
	"runtime"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
)

// InlineTree is what was inlined where in a compilation. It is made once for each that Lookup
// remembers.
func (p *Codes) InlineTree(of vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	c, err := p.codeAt(vmruntime.Site{
		Kind: vmruntime.Compiled, Version: of.Version, PC: of.Begin, Epoch: p.CurrentEpoch(), Exact: true,
	})
	if err != nil {
		return nil, err
	}
	if c.tree == nil {
		calls, err := p.madeCalls(of, c)
		if err != nil {
			return nil, err
		}
		c.tree = c.inlineTree(calls)
	}
	return c.tree, nil
}

// PassingTree is InlineTree, of which nothing is remembered: for a look at many compilations.
// Methods are not checked for being what they were.
func (p *Codes) PassingTree(of vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	if c, ok := p.byVersion.Get(of.Version & codecache.VersionMask); ok && c.contains(of.Begin) {
		return p.InlineTree(of)
	}
	header, b, err := p.readHeader(of.Addr, of.Version)
	if err != nil {
		return nil, err
	}
	c := &code{begin: b.Begin, end: b.End, method: b.Method}
	if p.Kinds.Lookup(b.Name) == codecache.KindNMethod && p.Schema.scopes.Known() {
		raw, err := debuginfo.Read(p.Memory, &p.Schema.scopes, b.Addr, header)
		if err != nil {
			return nil, err
		}
		if c.scopes, err = debuginfo.Decode(raw, p.Version.Unsigned5Bias()); err != nil {
			return nil, err
		}
	}
	calls, err := p.madeCalls(of, c)
	if err != nil {
		return nil, err
	}
	if _, after, err := p.readHeader(of.Addr, of.Version); err != nil {
		return nil, err
	} else if !after.Same(b) {
		return nil, vmruntime.ErrStale
	}
	return c.inlineTree(calls), nil
}

// inlineTree folds the scopes into copies of methods: scopes that differ only in their bytecode
// index are places in one copy. Those are kept that calls return to; all of them if calls is nil.
func (c *code) inlineTree(calls map[int32]bool) *vmruntime.InlineTree {
	tree := &vmruntime.InlineTree{Nodes: []vmruntime.InlineNode{{Parent: -1, BCI: -1, Method: c.method}}}
	if c.scopes == nil {
		return tree
	}
	type copyOf struct {
		parent, bci int
		method      uint64
	}
	nodes := map[copyOf]int{{-1, -1, c.method}: 0}
	nodeOf := make([]int, len(c.scopes.Scopes)) // by scope, plus 1
	var node func(scope int32) int
	node = func(scope int32) int { // no deeper than chains are: debuginfo.MaxInlining
		if nodeOf[scope] != 0 {
			return nodeOf[scope] - 1
		}
		s := &c.scopes.Scopes[scope]
		key := copyOf{-1, -1, c.scopes.Methods[s.Method]}
		if s.Sender != debuginfo.NoScope {
			key.parent, key.bci = node(s.Sender), int(c.scopes.Scopes[s.Sender].BCI)
		}
		i, ok := nodes[key]
		if !ok {
			i = len(tree.Nodes)
			nodes[key] = i
			tree.Nodes = append(tree.Nodes, vmruntime.InlineNode{Parent: key.parent, BCI: key.bci, Method: key.method})
		}
		nodeOf[scope] = i + 1
		return i
	}
	for _, at := range c.scopes.Positions {
		if at.Scope != debuginfo.NoScope {
			n := &tree.Nodes[node(at.Scope)]
			if bci := int(c.scopes.Scopes[at.Scope].BCI); bci >= 0 && (calls == nil || calls[at.Offset]) {
				n.Calls = append(n.Calls, bci)
			}
		}
	}
	for i := range tree.Nodes {
		n := &tree.Nodes[i]
		slices.Sort(n.Calls)
		n.Calls = slices.Clip(slices.Compact(n.Calls))
	}
	return tree
}

// Bounds on madeCalls.
const (
	maxCodeBytes = 4 << 20 // bytes of one compilation
	maxStubs     = 1 << 12 // addresses in them
)

// madeCalls returns the places in a compilation, as offsets from its begin, that calls of Java
// methods return to. Debug information alone does not distinguish them from places where a null
// check may fail, or a trap leaves the code for the interpreter: those have the bytecode index of a
// call, too, when the callee was compiled into its caller. Nil if it cannot be found out.
func (p *Codes) madeCalls(of vmruntime.Compilation, c *code) (map[int32]bool, error) {
	size := of.End - of.Begin
	if runtime.GOARCH != "amd64" || c.scopes == nil || size > maxCodeBytes {
		return nil, nil
	}
	instructions, err := p.Memory.Bytes(of.Begin, size)
	if err != nil {
		return nil, nil
	}
	calls := map[int32]bool{}
	for _, at := range c.scopes.Positions {
		to, ok := calledBefore(instructions, of.Begin, at.Offset)
		if !ok || at.Scope == debuginfo.NoScope {
			continue
		}
		if java := to >= of.Begin && to < of.End; java || p.leadsToJava(to) {
			calls[at.Offset] = true
		}
	}
	// What was read was this compilation if it still is.
	if now, err := p.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, PC: of.Begin,
		Version: of.Version}); err != nil {
		return nil, fmt.Errorf("instructions: %w", err)
	} else if now.Begin != of.Begin || now.End != of.End {
		return nil, vmruntime.ErrStale
	}
	return calls, nil
}

// leadsToJava reports whether a call of an address ends in a Java method: in its code, or in a stub
// that finds it.
func (p *Codes) leadsToJava(to uint64) bool {
	// Where the code cache has several parts, stubs are in that of the interpreter; but for some
	// that are made late and found no room there, which are those on the way to a method.
	if h := p.Cache.HeapOf(to); len(p.Cache.Heaps) > 1 && h != nil &&
		h != p.Cache.HeapOf(p.Layout.Interpreter.Low) {
		return true
	}
	name, kind, err := p.blobAt(to)
	switch {
	case err != nil:
		return false
	case kind == codecache.KindStub, kind == codecache.KindContinuation, kind == codecache.KindUpcall:
		return resolves(name)
	}
	return true
}

// blobAt returns what is at an address in the code cache. Stubs stay where they are as long as the
// VM lives.
func (p *Codes) blobAt(pc uint64) (name string, kind codecache.Kind, err error) {
	if name, known := p.stubAt[pc]; known {
		return name, codecache.KindOf(name), nil
	}
	addr, err := p.Cache.Find(pc)
	if err != nil {
		return "", 0, err
	}
	header, err := p.Memory.Bytes(addr, p.Schema.Blob.BlobHeader)
	if err != nil {
		return "", 0, err
	}
	pointer := p.Schema.Blob.Name.Read(header)
	if err := p.learn([]uint64{pointer}); err != nil {
		return "", 0, err
	}
	name, named := p.Kinds.Names[pointer]
	if kind = codecache.KindOf(name); named && kind != codecache.KindNMethod && kind != codecache.KindNative &&
		len(p.stubAt) < maxStubs {
		if p.stubAt == nil {
			p.stubAt = map[uint64]string{}
		}
		p.stubAt[pc] = name
	}
	return name, kind, nil
}

// resolves reports whether a stub finds the method to call (SharedRuntime::generate_resolve_blob):
// calls lead there until they are made for the first time, or when what was found there before does
// not fit.
func resolves(stub string) bool {
	return strings.Contains(stub, "resolve_") || strings.Contains(stub, "ic_miss") ||
		strings.Contains(stub, "wrong_method")
}
