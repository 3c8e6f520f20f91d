package nmethod

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// LayoutCode adds where code is, and what its headers are like.
func (p *Codes) LayoutCode() {
	p.Layout.Blob = blobLayout(&p.Schema.Blob)
	p.layoutCache()
}

func (p *Codes) layoutCache() {
	c := &p.Schema.Cache
	l := javavm.CacheLayout{
		Heaps:           p.Cache.Heaps,
		SegmentShift:    p.Cache.Shift,
		BlockHeaderSize: uint32(c.BlockSize),
		BlockUsed:       c.BlockUsed.Offset,
	}
	for i, h := range p.Cache.Heaps {
		if i == 0 || h.Low < l.Low {
			l.Low = h.Low
		}
		l.High = max(l.High, h.High)
	}
	p.Layout.Cache = l
}

// blobLayout is what the kernel side reads of a blob's header.
func blobLayout(s *codecache.BlobSchema) javavm.BlobLayout {
	l := javavm.BlobLayout{
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
func (p *Codes) Refresh() (changed bool, err error) {
	if len(p.Layout.Pending) == 0 {
		return false, nil
	}
	if !p.learned {
		if err := p.learnAll(); err != nil {
			return false, fmt.Errorf("code cache: %w", err)
		}
	}
	before := p.Layout.Kinds
	p.UpdateKinds()
	return p.Layout.Kinds != before, nil
}

// learnAll takes down the kinds of all blobs.
func (p *Codes) learnAll() (err error) {
	if p.Cache.Heaps, p.Cache.Shift, err = codecache.ReadHeaps(p.Memory, &p.Schema.Cache); err != nil {
		return err
	}
	return p.walk(&p.Cache, func(*codecache.Blob) {})
}

// UpdateKinds brings the part of the layout up to date that is learned.
func (p *Codes) UpdateKinds() {
	l := &p.Layout
	l.Kinds = javavm.BlobKinds{
		NMethod:      p.Kinds.Pointer(codecache.KindNMethod),
		Native:       p.Kinds.Pointer(codecache.KindNative),
		Interpreter:  p.Kinds.Pointer(codecache.KindInterpreter),
		Vtable:       p.Kinds.Pointer(codecache.KindVtable),
		Adapter:      p.Kinds.Pointer(codecache.KindAdapter),
		Continuation: p.Kinds.Pointer(codecache.KindContinuation),
		Upcall:       p.Kinds.Pointer(codecache.KindUpcall),
	}
	if l.Kinds.Upcall == 0 && p.UpcallName() != 0 { // code of the other kinds is there early
		l.Kinds.Upcall = p.UpcallName()
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
