package javavm

import (
	"debug/elf"
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// LayoutFrames adds to the layout what leads to threads and to methods, and what frames of the
// interpreter are like. ErrStarting if the VM has not generated the code that every walk needs.
func (p *VM) LayoutFrames(stubs *codecache.StubSchema) error {
	p.Layout.Method = p.Method.Layout()
	if err := p.layoutThread(stubs); err != nil {
		return err
	}
	return p.layoutInterpreter(stubs)
}

// layoutThread adds what is different in every process.
func (p *VM) layoutThread(stubs *codecache.StubSchema) (err error) {
	p.Layout.Thread = p.Thread.layout()
	l := &p.Layout.Thread
	if l.CallStubReturn, err = p.Memory.Word(stubs.CallStubReturn); err != nil {
		return err
	}
	if l.CallStubReturn == 0 {
		return vmruntime.ErrStarting
	}
	if vtable, ok := p.Symbol(symbolJavaThread); ok {
		const header = 16 // bytes before the first function pointer: Itanium C++ ABI, section 2.5
		l.Vtable = vtable + header
	}
	offset, ok := p.Build.Symbols[symbolCurrentThread]
	if !ok || l.Vtable == 0 || p.Build.TLSSlot == 0 {
		return p.layoutThreadIDs()
	}
	const maxModules = 1 << 16
	module, err := p.Memory.Word(p.Bias + p.Build.TLSSlot)
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
func (p *VM) layoutThreadIDs() error {
	l, s := &p.Layout.Thread, &p.Thread
	err := errors.New("the VM does not export the ids of its threads")
	const attempts = 3 // threads come and go
	for i := 0; i < attempts && err != nil && s.osThread.Known && s.osThreadID.Known; i++ {
		if l.Vtable == 0 {
			l.Vtable, err = p.javaThreadVtable()
		} else {
			_, err = p.ThreadAddresses(1)
		}
	}
	switch {
	case errors.Is(err, vmruntime.ErrStarting):
		return err
	case err != nil:
		p.NoteMissing(fmt.Sprintf("The Java threads of this JVM cannot be identified, because its libjvm has no "+
			"symbol Thread::_thr_current "+
			"(it is stripped, older than JDK 9, or built for musl), and %v: the Java callers of native code are "+
			"missing.", err))
		return nil
	}
	l.ByID = true
	p.Note("Threads of this JVM are found by their ids, because its libjvm has no symbol Thread::_thr_current (it is " +
		"stripped, older than " +
		"JDK 9, or built for musl). Samples of a thread in native code have no Java callers until the agent has " +
		"sampled it in Java " +
		"code, or has read it in the JVM's list of threads (at most 4 times a second).")
	return nil
}

func (p *VM) layoutInterpreter(stubs *codecache.StubSchema) (err error) {
	l := &p.Layout.Interpreter
	if l.Low, l.High, err = codecache.InterpreterCode(p.Memory, stubs); err != nil {
		return err
	}
	if p.Build.Machine != elf.EM_X86_64 {
		p.NoteMissing("The layout of interpreter frames is unknown on " + p.Build.Machine.String() + ".")
		return nil
	}
	// src/hotspot/cpu/x86/frame_x86.hpp; only the first one is exported.
	l.SenderSP = int32(p.Thread.senderSPWord) * vmstructs.WordSize
	l.Method = -3 * vmstructs.WordSize
	l.Bytecode = int32(p.Version.bytecodeWord()) * vmstructs.WordSize
	return nil
}
