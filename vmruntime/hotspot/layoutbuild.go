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
	p.layout.Thread, p.layout.Method = p.thread.layout(), p.method.layout()
	p.layoutCode()
	loom := func() error { return p.layoutLoom(p.returnBarrier) }
	for _, part := range []func() error{p.layoutThread, p.layoutInterpreter, p.layoutObjects, loom} {
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

// layoutThread adds what is different in every process.
func (p *Process) layoutThread() (err error) {
	l := &p.layout.Thread
	if l.CallStubReturn, err = p.memory.Word(p.codes.schema.stubs.CallStubReturn); err != nil {
		return err
	}
	if l.CallStubReturn == 0 {
		return vmruntime.ErrStarting
	}
	if vtable, ok := p.symbol(symbolJavaThread); ok {
		const header = 16 // bytes before the first function pointer: Itanium C++ ABI, section 2.5
		l.Vtable = vtable + header
	}
	offset, ok := p.build.symbols[symbolCurrentThread]
	if !ok || l.Vtable == 0 || p.build.tlsSlot == 0 {
		return p.layoutThreadIDs()
	}
	const maxModules = 1 << 16
	module, err := p.memory.Word(p.bias + p.build.tlsSlot)
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
	l, s := &p.layout.Thread, &p.thread
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
	if l.Low, l.High, err = codecache.InterpreterCode(p.memory, &p.codes.schema.stubs); err != nil {
		return err
	}
	if p.build.machine != elf.EM_X86_64 {
		p.missing("The layout of interpreter frames is unknown on " + p.build.machine.String() + ".")
		return nil
	}
	// src/hotspot/cpu/x86/frame_x86.hpp; only the first one is exported.
	l.SenderSP = int32(p.thread.senderSPWord) * vmstructs.WordSize
	l.Method = -3 * vmstructs.WordSize
	l.Bytecode = int32(p.version.bytecodeWord()) * vmstructs.WordSize
	return nil
}

// Layout returns what the kernel side must know. The caller must not change it; Refresh does.
func (p *Process) Layout() *Layout { return &p.layout }
