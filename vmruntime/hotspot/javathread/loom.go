package javathread

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// firstLoom is the first release in which virtual threads are no preview: see the table in hotspot/jdks.go.
const firstLoom = 21

// Classes of the VM's part of virtual threads, in the VM's form.
const (
	continuationClass = "jdk/internal/vm/Continuation"
	chunkClass        = "jdk/internal/vm/StackChunk"
	virtualClass      = "java/lang/VirtualThread"
	platformClass     = "java/lang/Thread"
)

// A loomSchema leads to virtual threads.
type loomSchema struct {
	contEntry   vmstructs.Field // field of JavaThread, from JDK 21 on
	contReturn  uint64          // static: see LoomLayout.EnterReturn
	contParent  vmstructs.Field // field of ContinuationEntry; exported from JDK 28 on
	contBarrier uint64          // static: see LoomLayout.ReturnBarrier; exported from JDK 28 on
	// threadObject and tiThread are fields of JavaThread: its java.lang.Thread, and what JVM TI
	// takes for the current one.
	threadObject, tiThread vmstructs.Field
	initState              vmstructs.Field // field of InstanceKlass
	initialized            int64           // its value once a class is initialized
}

func newLoomSchema(r *vmstructs.Resolver) loomSchema {
	return loomSchema{
		contEntry:    r.Optional("JavaThread._cont_entry"),
		contReturn:   r.OptionalStatic("ContinuationEntry._return_pc"),
		contParent:   r.Optional("ContinuationEntry._parent"),
		contBarrier:  r.OptionalStatic("StubRoutines._cont_returnBarrier"),
		threadObject: r.Optional("JavaThread._threadObj"),
		tiThread:     r.Optional("JavaThread._jvmti_vthread"),
		initState:    r.Optional("InstanceKlass._init_state"),
		initialized:  r.Constant("InstanceKlass::fully_initialized"),
	}
}

// LayoutLoom adds what is known of virtual threads. It needs what LayoutObjects found, and something
// that finds the stub by which they return to their callers.
func (p *Lister) LayoutLoom(returnBarrier func() uint64) error {
	s := &p.loom
	if p.Version.JDK < firstLoom {
		return nil
	}
	l := &p.Layout.Loom
	p.layoutMounted()
	l.ContEntry, l.HasContEntry = s.contEntry.Offset, s.contEntry.Known
	l.EnterReturn = s.contReturn
	if hidden, ok := p.Symbol(javavm.SymbolEnterReturn); ok && l.EnterReturn == 0 { // JDK 21
		l.EnterReturn = hidden
	}
	var err error
	if l.ReturnBarrier, err = p.barrier(returnBarrier); err != nil {
		return err
	}
	if l.ReturnBarrier == 0 {
		p.NoteMissing("The return barrier of virtual threads was not found: their stacks may look complete when they " +
			"are not.")
		return nil
	}
	const attempts = 3 // the JVM may unload classes during a read
	for range attempts {
		if l.Chunks, err = p.chunkLayout(); !errors.Is(err, vmruntime.ErrStale) {
			break
		}
	}
	if err != nil {
		p.NoteMissing(fmt.Sprintf("The layout of virtual threads' frames on the heap was not found (%v): "+
			"stacks of those that have yielded end early.", err))
		return nil
	}
	l.HasChunks = true
	return nil
}

// layoutMounted adds what leads from a JavaThread to the virtual thread on it.
func (p *Lister) layoutMounted() {
	l, err := p.mountedLayout()
	if err != nil {
		p.NoteMissing(fmt.Sprintf("The virtual thread that a thread of the kernel runs cannot be read (%v): virtual "+
			"threads are not followed.", err))
		return
	}
	p.Layout.Loom.Mounted, p.Layout.Loom.HasMounted = l, true
}

func (p *Lister) mountedLayout() (l javavm.MountedLayout, err error) {
	klasses, err := p.WellKnown(platformClass, virtualClass)
	if err != nil {
		return l, err
	}
	p.virtualClass = klasses[1]
	s := &p.loom
	// javaThread.hpp: JavaThread::_vthread is not exported. It is between two that are.
	l.Current = s.threadObject.Offset + vmstructs.WordSize
	if !s.threadObject.Known || !s.tiThread.Known || s.tiThread.Offset != l.Current+vmstructs.WordSize ||
		!p.Layout.HasObjects {
		return l, errors.New("the VM does not export where it is")
	}
	const attempts = 3 // the JVM may unload classes during a read
	var class *javaobject.Class
	for range attempts {
		if class, err = p.Klass(klasses[0], p.CurrentEpoch()); !errors.Is(err, vmruntime.ErrStale) {
			break
		}
	}
	if err != nil {
		return l, err
	}
	id, ok := class.FieldNamed("tid")
	if !ok {
		return l, fmt.Errorf("%s has no field tid", class.Name)
	}
	l.ID = id.Offset
	return l, nil
}

// RanVirtualThreads reports whether the class of virtual threads is initialized, which the first
// one does. It costs one read of a byte, and none once there was one.
func (p *Lister) RanVirtualThreads() (bool, error) {
	s := &p.loom
	switch {
	case p.Version.JDK < firstLoom, p.virtualClass == 0, !s.initState.Known, s.initialized == 0:
		return false, nil // an older JDK, or Layout.Missing says why it is not known
	case p.ranVirtual:
		return true, nil
	}
	state, err := p.Memory.Bytes(s.initState.At(p.virtualClass), 1)
	if err != nil {
		return false, fmt.Errorf("state of the class of virtual threads: %w", err)
	}
	p.ranVirtual = int64(state[0]) == s.initialized
	return p.ranVirtual, nil
}

// barrier is the address of that stub, 0 if it is not known.
func (p *Lister) barrier(find func() uint64) (uint64, error) {
	if static := p.loom.contBarrier; static != 0 {
		return p.Memory.Word(static)
	}
	return find(), nil
}

// chunkLayout reads how stacks are kept on the heap (src/hotspot/share/oops/stackChunkOop.hpp). All
// but the class of a chunk is the same in every process of a build.
func (p *Lister) chunkLayout() (l javavm.ChunkLayout, err error) {
	if !p.Layout.HasObjects {
		return l, errors.New("the object layout is unknown")
	}
	if p.Layout.Loom.EnterReturn == 0 {
		return l, errors.New("the VM does not export the entry point of virtual threads")
	}
	// continuationEntry.hpp: behind a word for what is the platform's comes the entry's parent,
	// then its Continuation.
	parent := uint32(vmstructs.WordSize)
	if exported := p.loom.contParent; exported.Known { // JDK 28
		parent = exported.Offset
	}
	l.EntryContinuation = parent + vmstructs.WordSize
	klasses, err := p.WellKnown(continuationClass, chunkClass)
	if err != nil {
		return l, err
	}
	l.Klass = klasses[1]
	epoch := p.CurrentEpoch()
	continuation, err := p.Klass(klasses[0], epoch)
	if err != nil {
		return l, err
	}
	chunk, err := p.Klass(l.Klass, epoch)
	if err != nil {
		return l, err
	}
	l.Stack = uint32(chunk.InstanceSize()) // InstanceStackChunkKlass::_offset_of_stack
	_, l.BottomIsArgSize = chunk.FieldNamed("argsize")
	bottom := "bottom"
	if l.BottomIsArgSize { // JDK 21
		bottom = "argsize"
	}
	for _, f := range []struct {
		to    *uint32
		class *javaobject.Class
		name  string
	}{
		{&l.Tail, continuation, "tail"},
		{&l.Parent, chunk, "parent"},
		{&l.Continuation, chunk, "cont"},
		{&l.Size, chunk, "size"},
		{&l.SP, chunk, "sp"},
		{&l.Bottom, chunk, bottom},
		{&l.PC, chunk, "pc"},
	} {
		field, ok := f.class.FieldNamed(f.name)
		if !ok {
			return l, fmt.Errorf("%s has no field %s", f.class.Name, f.name)
		}
		*f.to = field.Offset
	}
	return l, nil
}
