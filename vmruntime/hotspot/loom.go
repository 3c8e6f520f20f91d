package hotspot

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// firstLoom is the first release in which virtual threads are no preview: see the table in jdks.go.
const firstLoom = 21

// Classes of the VM's part of virtual threads, in the VM's form.
const (
	continuationClass = "jdk/internal/vm/Continuation"
	chunkClass        = "jdk/internal/vm/StackChunk"
	virtualClass      = "java/lang/VirtualThread"
)

// layoutLoom adds what is known of virtual threads. It needs what layoutObjects found, and something
// that finds the stub by which they return to their callers.
func (p *lister) layoutLoom(returnBarrier func() uint64) error {
	s := &p.thread
	if p.version.jdk < firstLoom {
		return nil
	}
	l := &p.layout.Loom
	p.layoutMounted()
	l.ContEntry, l.HasContEntry = s.contEntry.Offset, s.contEntry.Known
	l.EnterReturn = s.contReturn
	if hidden, ok := p.symbol(symbolEnterReturn); ok && l.EnterReturn == 0 { // JDK 21
		l.EnterReturn = hidden
	}
	var err error
	if l.ReturnBarrier, err = p.barrier(returnBarrier); err != nil {
		return err
	}
	if l.ReturnBarrier == 0 {
		p.missing("The return barrier of virtual threads was not found: their stacks may look complete when they are " +
			"not.")
		return nil
	}
	const attempts = 3 // the JVM may unload classes during a read
	for range attempts {
		if l.Chunks, err = p.chunkLayout(); !errors.Is(err, vmruntime.ErrStale) {
			break
		}
	}
	if err != nil {
		p.missing(fmt.Sprintf("The layout of virtual threads' frames on the heap was not found (%v): "+
			"stacks of those that have yielded end early.", err))
		return nil
	}
	l.HasChunks = true
	return nil
}

// layoutMounted adds what leads from a JavaThread to the virtual thread on it.
func (p *lister) layoutMounted() {
	l, err := p.mountedLayout()
	if err != nil {
		p.missing(fmt.Sprintf("The virtual thread that a thread of the kernel runs cannot be read (%v): virtual "+
			"threads are not followed.", err))
		return
	}
	p.layout.Loom.Mounted, p.layout.Loom.HasMounted = l, true
}

func (p *lister) mountedLayout() (l MountedLayout, err error) {
	klasses, err := p.wellKnown(threadClass, virtualClass)
	if err != nil {
		return l, err
	}
	p.virtualClass = klasses[1]
	s := &p.thread
	// javaThread.hpp: JavaThread::_vthread is not exported. It is between two that are.
	l.Current = s.threadObject.Offset + vmstructs.WordSize
	if !s.threadObject.Known || !s.tiThread.Known || s.tiThread.Offset != l.Current+vmstructs.WordSize ||
		!p.layout.HasObjects {
		return l, errors.New("the VM does not export where it is")
	}
	const attempts = 3 // the JVM may unload classes during a read
	var class *Class
	for range attempts {
		if class, err = p.Klass(klasses[0], p.currentEpoch()); !errors.Is(err, vmruntime.ErrStale) {
			break
		}
	}
	if err != nil {
		return l, err
	}
	id, ok := class.fieldNamed("tid")
	if !ok {
		return l, fmt.Errorf("%s has no field tid", class.Name)
	}
	l.ID = id.Offset
	return l, nil
}

// RanVirtualThreads reports whether the class of virtual threads is initialized, which the first
// one does. It costs one read of a byte, and none once there was one.
func (p *lister) RanVirtualThreads() (bool, error) {
	s := &p.thread
	switch {
	case p.version.jdk < firstLoom, p.virtualClass == 0, !s.initState.Known, s.initialized == 0:
		return false, nil // an older JDK, or Layout.Missing says why it is not known
	case p.ranVirtual:
		return true, nil
	}
	state, err := p.memory.Bytes(s.initState.At(p.virtualClass), 1)
	if err != nil {
		return false, fmt.Errorf("state of the class of virtual threads: %w", err)
	}
	p.ranVirtual = int64(state[0]) == s.initialized
	return p.ranVirtual, nil
}

// barrier is the address of that stub, 0 if it is not known.
func (p *lister) barrier(find func() uint64) (uint64, error) {
	if static := p.thread.contBarrier; static != 0 {
		return p.memory.Word(static)
	}
	return find(), nil
}

// chunkLayout reads how stacks are kept on the heap (src/hotspot/share/oops/stackChunkOop.hpp). All
// but the class of a chunk is the same in every process of a build.
func (p *lister) chunkLayout() (l ChunkLayout, err error) {
	if !p.layout.HasObjects {
		return l, errors.New("the object layout is unknown")
	}
	if p.layout.Loom.EnterReturn == 0 {
		return l, errors.New("the VM does not export the entry point of virtual threads")
	}
	// continuationEntry.hpp: behind a word for what is the platform's comes the entry's parent,
	// then its Continuation.
	parent := uint32(vmstructs.WordSize)
	if exported := p.thread.contParent; exported.Known { // JDK 28
		parent = exported.Offset
	}
	l.EntryContinuation = parent + vmstructs.WordSize
	klasses, err := p.wellKnown(continuationClass, chunkClass)
	if err != nil {
		return l, err
	}
	l.Klass = klasses[1]
	epoch := p.currentEpoch()
	continuation, err := p.Klass(klasses[0], epoch)
	if err != nil {
		return l, err
	}
	chunk, err := p.Klass(l.Klass, epoch)
	if err != nil {
		return l, err
	}
	l.Stack = uint32(chunk.InstanceSize()) // InstanceStackChunkKlass::_offset_of_stack
	_, l.BottomIsArgSize = chunk.fieldNamed("argsize")
	bottom := "bottom"
	if l.BottomIsArgSize { // JDK 21
		bottom = "argsize"
	}
	for _, f := range []struct {
		to    *uint32
		class *Class
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
		field, ok := f.class.fieldNamed(f.name)
		if !ok {
			return l, fmt.Errorf("%s has no field %s", f.class.Name, f.name)
		}
		*f.to = field.Offset
	}
	return l, nil
}
