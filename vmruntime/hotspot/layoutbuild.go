package hotspot

import (
	"debug/elf"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// buildLayout fills in the layout. ErrStarting if the VM has not generated the code that every walk needs.
func (p *Process) buildLayout() error {
	s := p.schema
	p.layout = Layout{
		JDK:    p.version.jdk,
		Blob:   s.blob.layout(),
		Thread: s.thread.layout(),
		Method: MethodLayout{
			ConstMethod:     s.method.constMethod.offset,
			Code:            s.method.code.offset,
			ConstMethodSize: uint32(s.method.constMethodSize),
			CodeSize:        s.method.codeSize.offset,
			MayRedefine:     s.method.mayRedefine,
		},
	}
	p.layoutCache()
	for _, part := range []func() error{p.layoutThread, p.layoutInterpreter, p.layoutLoom, p.layoutObjects} {
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
		Heaps:           p.heaps,
		SegmentShift:    p.shift,
		BlockHeaderSize: uint32(c.blockSize),
		BlockUsed:       c.blockUsed.offset,
	}
	for i, h := range p.heaps {
		if i == 0 || h.Low < l.Low {
			l.Low = h.Low
		}
		l.High = max(l.High, h.High)
	}
	p.layout.Cache = l
}

// layoutThread adds what is different in every process.
func (p *Process) layoutThread() (err error) {
	l := &p.layout.Thread
	if l.CallStubReturn, err = p.word(p.schema.stubs.callStubReturn); err != nil {
		return err
	}
	if l.CallStubReturn == 0 {
		return vmruntime.ErrStarting
	}
	if vtable, ok := p.symbol(symbolJavaThread); ok {
		const header = 16 // bytes before the first function pointer: Itanium C++ ABI, section 2.5
		l.Vtable = vtable + header
	} else {
		p.missing("This libjvm is stripped of the symbol of JavaThread's vtable: which threads run Java code cannot be told.")
	}
	offset, ok := p.image.symbols[symbolCurrentThread]
	if !ok || p.image.tlsSlot == 0 {
		p.missing("This libjvm has no symbol Thread::_thr_current (it is stripped, or older than JDK 9): " +
			"the Java callers of native code cannot be found.")
		return nil
	}
	const maxModules = 1 << 16
	module, err := p.word(p.bias + p.image.tlsSlot)
	if err != nil {
		return err
	}
	if module == 0 || module > maxModules {
		return fmt.Errorf("TLS module %d of libjvm: %w", module, vmruntime.ErrMalformed)
	}
	l.TLSModule, l.TLSOffset = module, offset
	return nil
}

func (p *Process) layoutInterpreter() (err error) {
	l := &p.layout.Interpreter
	if l.Low, l.High, err = interpreterCode(p.target, &p.schema.stubs); err != nil {
		return err
	}
	if p.image.machine != elf.EM_X86_64 {
		p.missing("Frames of the interpreter are not known on " + p.image.machine.String() + " yet.")
		return nil
	}
	// src/hotspot/cpu/x86/frame_x86.hpp; only the first one is exported.
	l.SenderSP = int32(p.schema.thread.senderSPWord) * wordSize
	l.Method = -3 * wordSize
	l.Bytecode = int32(p.version.bytecodeWord()) * wordSize
	return nil
}

func (p *Process) layoutLoom() error {
	s := &p.schema.thread
	if !s.contEntry.known || s.contReturn == 0 {
		return nil
	}
	l := &p.layout.Loom
	l.ContEntry, l.HasContEntry = s.contEntry.offset, true
	var err error
	if l.EnterReturn, err = p.word(s.contReturn); err != nil {
		return err
	}
	routine, ok := p.stubs.routine(p, isReturnBarrier)
	if !ok {
		p.missing("The return barrier of virtual threads was not found: their stacks may look complete when they are not.")
		return nil
	}
	l.ReturnBarrier = routine.begin
	return nil
}
