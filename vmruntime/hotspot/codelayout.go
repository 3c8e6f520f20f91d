package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
)

// layoutCode adds where code is, and what its headers are like.
func (p *codes) layoutCode() {
	p.layout.Blob = blobLayout(&p.schema.blob)
	p.layoutCache()
}

func (p *codes) layoutCache() {
	c := &p.schema.cache
	l := CacheLayout{
		Heaps:           p.codeCache.Heaps,
		SegmentShift:    p.codeCache.Shift,
		BlockHeaderSize: uint32(c.BlockSize),
		BlockUsed:       c.BlockUsed.Offset,
	}
	for i, h := range p.codeCache.Heaps {
		if i == 0 || h.Low < l.Low {
			l.Low = h.Low
		}
		l.High = max(l.High, h.High)
	}
	p.layout.Cache = l
}

// blobLayout is what the kernel side reads of a blob's header.
func blobLayout(s *codecache.BlobSchema) BlobLayout {
	l := BlobLayout{
		Name:              s.Name.Offset,
		Size:              s.Size.Offset,
		CodeBegin:         s.CodeBegin.Offset,
		CodeEnd:           s.CodeEnd.Offset,
		FrameSize:         s.FrameSize.Offset,
		FrameComplete:     s.FrameComplete.Offset,
		FrameCompleteIs16: s.FrameComplete.Width == 2,
		CompileID:         s.CompileID.Offset,
		State:             s.State.Offset,
		OrigPC:            s.OrigPC.Offset,
		DeoptHandler:      s.Deopt.Offset,
		DeoptHandlerMH:    s.DeoptMH.Offset,
		HasDeoptHandlerMH: s.DeoptMH.Known,
		DeoptHandlerIs32:  s.Deopt.Width == 4,
	}
	if s.CodeOffset.Known {
		l.CodeBegin, l.CodeEnd, l.CodeIsOffset = s.CodeOffset.Offset, s.DataOffset.Offset, true
	}
	return l
}

// Refresh looks for kinds of code that are still in Layout.Pending, and reports whether it found
// any: then the kernel side must learn of it. All are there at Attach unless the VM had just
// started, or has a reason never to make one (no compiled methods under -Xint): call it after the
// first Loaded, and with growing pauses, while something is pending. It walks the code cache, which
// takes some milliseconds, unless a Lookup came across a new kind already.
func (p *codes) Refresh() (changed bool, err error) {
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
func (p *codes) learnAll() (err error) {
	if p.codeCache.Heaps, p.codeCache.Shift, err = codecache.ReadHeaps(p.memory, &p.schema.cache); err != nil {
		return err
	}
	return p.codeCache.Walk(&p.schema.blob, func(blobs []codecache.Blob) error {
		names := make([]uint64, len(blobs))
		for i := range blobs {
			names[i] = blobs[i].Name
		}
		return p.learn(names)
	})
}

// updateKinds brings the part of the layout up to date that is learned.
func (p *codes) updateKinds() {
	l := &p.layout
	l.Kinds = BlobKinds{
		NMethod:      p.kinds.Pointer(codecache.KindNMethod),
		Native:       p.kinds.Pointer(codecache.KindNative),
		Interpreter:  p.kinds.Pointer(codecache.KindInterpreter),
		Vtable:       p.kinds.Pointer(codecache.KindVtable),
		Adapter:      p.kinds.Pointer(codecache.KindAdapter),
		Continuation: p.kinds.Pointer(codecache.KindContinuation),
		Upcall:       p.kinds.Pointer(codecache.KindUpcall),
	}
	if l.Kinds.Upcall == 0 && p.build.upcallName != 0 { // code of the other kinds is there early
		l.Kinds.Upcall = p.bias + p.build.upcallName
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
