package hotspot

import "fmt"

// Layout returns what the kernel side must know. The caller must not change it; Refresh does.
func (p *Process) Layout() *Layout { return &p.layout }

// Refresh looks for kinds of code that are still in Layout.Pending, and reports whether it found any: then the kernel
// side must be told. All are there at Attach unless the VM had just started, or has a reason never to make one (no
// compiled methods under -Xint): call it after the first Loaded, and with growing pauses, while something is pending. It
// walks the code cache, which takes some milliseconds, unless a Lookup came across a new kind already.
func (p *Process) Refresh() (changed bool, err error) {
	if len(p.layout.Pending) == 0 {
		return false, nil
	}
	if !p.learned {
		if err := p.learnAll(); err != nil {
			return false, fmt.Errorf("code cache: %w", err)
		}
	}
	before := p.layout.Kinds
	p.updateKinds()
	return p.layout.Kinds != before, nil
}

// learnAll takes down the kinds of all blobs.
func (p *Process) learnAll() (err error) {
	if p.heaps, p.shift, err = readHeaps(p.target, &p.schema.cache); err != nil {
		return err
	}
	return p.walk(&p.schema.blob, func(blobs []blob) error {
		names := make([]uint64, len(blobs))
		for i := range blobs {
			names[i] = blobs[i].name
		}
		return p.learn(names)
	})
}

// updateKinds brings the part of the layout up to date that is learned.
func (p *Process) updateKinds() {
	l := &p.layout
	l.Kinds = BlobKinds{
		NMethod:      p.kinds.pointer(kindNMethod),
		Native:       p.kinds.pointer(kindNative),
		Interpreter:  p.kinds.pointer(kindInterpreter),
		Vtable:       p.kinds.pointer(kindVtable),
		Adapter:      p.kinds.pointer(kindAdapter),
		Continuation: p.kinds.pointer(kindContinuation),
	}
	l.Pending = nil
	for _, kind := range []struct {
		pointer uint64
		name    string
	}{
		{l.Kinds.NMethod, "compiled methods"},
		{l.Kinds.Native, "wrappers of native methods"},
		{l.Kinds.Interpreter, "the interpreter"},
		{l.Kinds.Vtable, "vtable stubs"},
		{l.Kinds.Adapter, "adapters"},
	} {
		if kind.pointer == 0 {
			l.Pending = append(l.Pending, kind.name)
		}
	}
	p.learned = false
}
