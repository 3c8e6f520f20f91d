package hotspot

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// buildLayout fills in the layout. ErrStarting if the VM has not generated the code that every walk
// needs.
func (p *Process) buildLayout() error {
	s := p.schema
	p.layout = Layout{
		JDK:    p.version.jdk,
		Blob:   blobLayout(&s.blob),
		Thread: s.thread.layout(),
		Method: MethodLayout{
			ConstMethod:     s.method.constMethod.Offset,
			Code:            s.method.code.Offset,
			ConstMethodSize: uint32(s.method.constMethodSize),
			CodeSize:        s.method.codeSize.Offset,
			Constants:       s.method.constants.Offset,
			PoolSize:        uint32(s.method.poolSize),
			NameShift:       s.method.nameShift(),
			MayRedefine:     s.method.mayRedefine,
		},
	}
	p.layoutCache()
	for _, part := range []func() error{p.layoutThread, p.layoutInterpreter, p.layoutObjects, p.layoutLoom} {
		if err := part(); err != nil {
			return err
		}
	}
	p.updateKinds()
	for _, missing := range p.layout.Missing {
		p.note("%s", missing)
	}
	return nil
}

func (p *Process) missing(sentence string) { p.layout.Missing = append(p.layout.Missing, sentence) }

func (p *Process) layoutCache() {
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

// layoutThread adds what is different in every process.
func (p *Process) layoutThread() (err error) {
	l := &p.layout.Thread
	if l.CallStubReturn, err = p.memory.Word(p.schema.stubs.CallStubReturn); err != nil {
		return err
	}
	if l.CallStubReturn == 0 {
		return vmruntime.ErrStarting
	}
	if vtable, ok := p.symbol(symbolJavaThread); ok {
		const header = 16 // bytes before the first function pointer: Itanium C++ ABI, section 2.5
		l.Vtable = vtable + header
	}
	offset, ok := p.image.symbols[symbolCurrentThread]
	if !ok || l.Vtable == 0 || p.image.tlsSlot == 0 {
		return p.layoutThreadIDs()
	}
	const maxModules = 1 << 16
	module, err := p.memory.Word(p.bias + p.image.tlsSlot)
	if err != nil {
		return err
	}
	if module == 0 || module > maxModules {
		return fmt.Errorf("TLS module %d of libjvm: %w", module, vmruntime.ErrMalformed)
	}
	l.TLSModule, l.TLSOffset = module, offset
	return nil
}

// layoutThreadIDs is for builds in which nothing leads from a thread to its JavaThread. ErrStarting
// if there is none yet.
func (p *Process) layoutThreadIDs() error {
	l, s := &p.layout.Thread, &p.schema.thread
	err := errors.New("the VM does not export the ids of its threads")
	const attempts = 3 // threads come and go
	for i := 0; i < attempts && err != nil && s.osThread.Known && s.osThreadID.Known; i++ {
		if l.Vtable == 0 {
			l.Vtable, err = p.javaThreadVtable()
		} else {
			_, err = p.threads(1)
		}
	}
	switch {
	case errors.Is(err, vmruntime.ErrStarting):
		return err
	case err != nil:
		p.missing(fmt.Sprintf("The Java threads of this JVM cannot be identified, because its libjvm has no symbol "+
			"Thread::_thr_current "+
			"(it is stripped, older than JDK 9, or built for musl), and %v: the Java callers of native code are "+
			"missing.", err))
		return nil
	}
	l.ByID = true
	p.note("Threads of this JVM are found by their ids, because its libjvm has no symbol Thread::_thr_current (it is " +
		"stripped, older than " +
		"JDK 9, or built for musl). Samples of a thread in native code have no Java callers until the agent has " +
		"sampled it in Java " +
		"code, or has read it in the JVM's list of threads (at most 4 times a second).")
	return nil
}

func (p *Process) layoutInterpreter() (err error) {
	l := &p.layout.Interpreter
	if l.Low, l.High, err = codecache.InterpreterCode(p.memory, &p.schema.stubs); err != nil {
		return err
	}
	if p.image.machine != elf.EM_X86_64 {
		p.missing("The layout of interpreter frames is unknown on " + p.image.machine.String() + ".")
		return nil
	}
	// src/hotspot/cpu/x86/frame_x86.hpp; only the first one is exported.
	l.SenderSP = int32(p.schema.thread.senderSPWord) * vmstructs.WordSize
	l.Method = -3 * vmstructs.WordSize
	l.Bytecode = int32(p.version.bytecodeWord()) * vmstructs.WordSize
	return nil
}

// Layout returns what the kernel side must know. The caller must not change it; Refresh does.
func (p *Process) Layout() *Layout { return &p.layout }

// Refresh looks for kinds of code that are still in Layout.Pending, and reports whether it found
// any: then the kernel side must learn of it. All are there at Attach unless the VM had just
// started, or has a reason never to make one (no compiled methods under -Xint): call it after the
// first Loaded, and with growing pauses, while something is pending. It walks the code cache, which
// takes some milliseconds, unless a Lookup came across a new kind already.
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
func (p *Process) updateKinds() {
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
	if l.Kinds.Upcall == 0 && p.image.upcallName != 0 { // code of the other kinds is there early
		l.Kinds.Upcall = p.bias + p.image.upcallName
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
