package hotspot

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// threadSchema is what a walker of stacks needs to know about threads and frames.
type threadSchema struct {
	anchor, stackBase, stackSize field  // of JavaThread
	state                        field  // of JavaThread
	inJava                       int64  // its value while a thread runs Java code
	osThread                     field  // of JavaThread
	osThreadID                   field  // of OSThread
	contEntry                    field  // of JavaThread, from JDK 21 on
	lastSP, lastPC, lastFP       field  // of JavaFrameAnchor
	wrapperAnchor                field  // of JavaCallWrapper
	wrapperWord                  int64  // word of an entry frame that points to its JavaCallWrapper
	senderSPWord                 int64  // word of an interpreter frame that has the caller's stack pointer
	contReturn                   uint64 // static: see LoomLayout.EnterReturn
	contParent                   field  // of ContinuationEntry; exported from JDK 28 on
	contBarrier                  uint64 // static: see LoomLayout.ReturnBarrier; exported from JDK 28 on
}

func newThreadSchema(r *resolver) threadSchema {
	s := threadSchema{
		anchor:        r.field("JavaThread._anchor"),
		stackBase:     r.field("JavaThread._stack_base", "Thread._stack_base"),
		stackSize:     r.field("JavaThread._stack_size", "Thread._stack_size"),
		state:         r.field("JavaThread._thread_state"),
		inJava:        r.constant("_thread_in_Java"),
		osThread:      r.optional("JavaThread._osthread", "Thread._osthread"),
		osThreadID:    r.optional("OSThread._thread_id"),
		contEntry:     r.optional("JavaThread._cont_entry"),
		lastSP:        r.field("JavaFrameAnchor._last_Java_sp"),
		lastPC:        r.field("JavaFrameAnchor._last_Java_pc"),
		lastFP:        r.field("JavaFrameAnchor._last_Java_fp"),
		wrapperAnchor: r.field("JavaCallWrapper._anchor"),
		wrapperWord:   r.constant("frame::entry_frame_call_wrapper_offset"),
		senderSPWord:  r.constant("frame::interpreter_frame_sender_sp_offset"),
		contReturn:    r.optionalStatic("ContinuationEntry._return_pc"),
		contParent:    r.optional("ContinuationEntry._parent"),
		contBarrier:   r.optionalStatic("StubRoutines._cont_returnBarrier"),
	}
	if s.inJava == 0 {
		s.inJava = usualInJava
	}
	if s.inJava < 0 || s.inJava > maxThreadState {
		r.missing = append(r.missing, "plausible _thread_in_Java")
	}
	return s
}

// Numbers of JavaThreadState (src/hotspot/share/utilities/globalDefinitions.hpp): a bound, and that of _thread_in_Java where
// the VM does not export it. JDK 28 counts them anew, as the states in between are gone: there it is 4.
const (
	maxThreadState = 64
	usualInJava    = 8
)

func (s *threadSchema) layout() ThreadLayout {
	return ThreadLayout{
		Anchor:        s.anchor.offset,
		LastSP:        s.lastSP.offset,
		LastPC:        s.lastPC.offset,
		LastFP:        s.lastFP.offset,
		StackBase:     s.stackBase.offset,
		StackSize:     s.stackSize.offset,
		State:         s.state.offset,
		InJava:        uint32(s.inJava),
		OSThread:      s.osThread.offset,
		OSThreadID:    s.osThreadID.offset,
		CallWrapper:   int32(s.wrapperWord) * wordSize,
		WrapperAnchor: s.wrapperAnchor.offset,
	}
}

// maxThreads bounds how many threads are asked for their objects: any one will do.
const maxThreads = 64

// threads returns the addresses of JavaThreads, at most so many.
func (p *Process) threads(most uint64) (threads []uint64, err error) {
	s := &p.schema.object
	if s.linked() {
		return p.linkedThreads(most)
	}
	list, err := p.memory.word(s.threadList)
	if err != nil {
		return nil, err
	}
	if list == 0 {
		return nil, vmruntime.ErrStarting
	}
	header, err := p.memory.bytes(list, lastEnd(s.listLength, s.listThreads))
	if err != nil {
		return nil, err
	}
	table, err := p.memory.bytes(s.listThreads.of(header), wordSize*min(most, s.listLength.of(header)))
	for ; len(table) >= wordSize; table = table[wordSize:] {
		threads = append(threads, number(table[:wordSize]))
	}
	return threads, err
}

// linked reports whether the VM's list of threads is a linked one.
func (s *objectSchema) linked() bool {
	return s.threadList == 0 || !s.listLength.known || !s.listThreads.known
}

// linkedThreads does so where each leads to the next one.
func (p *Process) linkedThreads(most uint64) (threads []uint64, err error) {
	s := &p.schema.object
	if s.firstThread == 0 || !s.nextThread.known {
		return nil, errors.New("the VM does not export its threads")
	}
	next, err := p.memory.word(s.firstThread)
	for err == nil && next != 0 && uint64(len(threads)) < most {
		threads = append(threads, next)
		next, err = p.memory.word(s.nextThread.at(next))
	}
	return threads, err
}

// MaxListedThreads bounds how many threads of one VM are read.
const MaxListedThreads = 8 << 10

// A Thread is one that may run Java code.
type Thread struct {
	ID      uint32 // as the thread itself sees it: in the pid namespace of the VM
	Address uint64 // of its JavaThread
}

// Threads returns those that run, at most MaxListedThreads. One that starts or ends meanwhile may be absent. It costs a
// read of some bytes for each thread, in batches, three times; a system call each up to JDK 9, whose list is a linked one.
func (p *Process) Threads() ([]Thread, error) {
	addrs, err := p.threads(MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var heads, ids batch
	l := &p.layout.Thread
	for _, addr := range addrs {
		heads.add(addr, wordSize)
		heads.add(addr+uint64(l.OSThread), wordSize)
	}
	if err := heads.read(p.memory.mem); err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	var threads []Thread
	for i, addr := range addrs {
		vtable, ok1 := heads.word(2 * i)
		os, ok2 := heads.word(2*i + 1)
		if ok1 && ok2 && vtable == l.Vtable && os != 0 {
			threads = append(threads, Thread{Address: addr})
			ids.add(os+uint64(l.OSThreadID), 4)
		}
	}
	if err := ids.read(p.memory.mem); err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	known := threads[:0]
	for i, t := range threads {
		if id, ok := ids.word(i); ok && id != 0 {
			t.ID = uint32(id)
			known = append(known, t)
		}
	}
	return known, nil
}

// javaThreadVtable is what the first word of a JavaThread points to that runs Java code, where no symbol says so: that of
// the oldest thread in the list. The VM makes it in create_vm for the thread that called that (src/hotspot/share/runtime/threads.cpp),
// and next the Reference Handler, which does not end: both run Java code. Threads of compilers and services, which are of
// subclasses, come later.
func (p *Process) javaThreadVtable() (uint64, error) {
	threads, err := p.threads(MaxListedThreads)
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, vmruntime.ErrStarting
	}
	oldest := threads[0]
	if p.schema.object.linked() { // a new one is put at the front
		oldest = threads[len(threads)-1]
		if len(threads) == MaxListedThreads {
			return 0, fmt.Errorf("there are %d threads or more", len(threads))
		}
	}
	vtable, err := p.memory.word(oldest)
	if err != nil {
		return 0, err
	}
	if vtable < p.bias+p.image.low || vtable >= p.bias+p.image.high {
		return 0, fmt.Errorf("a thread's vtable at %#x: %w", vtable, vmruntime.ErrMalformed)
	}
	return vtable, nil
}

// A bufferList is the free parts of all threads' allocation buffers, read when it is first asked: nothing in them is an
// object, though it may look like one.
type bufferList struct {
	*Process
	read bool
	free [][2]uint64 // from top to end, and what is kept behind that
}

// maxBuffers bounds how many threads are asked.
const maxBuffers = 16 << 10

// isFree reports whether addr is in one of them. Where they cannot be read, because threads come or go, nothing is.
func (l *bufferList) isFree(addr uint64) bool {
	if !l.read {
		l.read = true
		if err := l.readBuffers(); err != nil {
			l.free = nil
		}
	}
	return slices.ContainsFunc(l.free, func(free [2]uint64) bool { return addr >= free[0] && addr < free[1] })
}

func (l *bufferList) readBuffers() error {
	threads, err := l.threads(maxBuffers)
	if err != nil {
		return err
	}
	var b batch
	for _, thread := range threads {
		b.add(thread+uint64(l.layout.Objects.TLABTop), wordSize)
		b.add(thread+uint64(l.layout.Objects.TLABEnd), wordSize)
	}
	if err := b.read(l.memory.mem); err != nil {
		return err
	}
	for i := range threads {
		top, ok1 := b.word(2 * i)
		end, ok2 := b.word(2*i + 1)
		if ok1 && ok2 && top < end {
			l.free = append(l.free, [2]uint64{top, end + l.objects.tlabReserve})
		}
	}
	return nil
}
