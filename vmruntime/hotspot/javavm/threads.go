package javavm

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// ThreadSchema is what a walker of stacks needs to know about threads and frames.
type ThreadSchema struct {
	anchor, stackBase, stackSize vmstructs.Field // fields of JavaThread
	state                        vmstructs.Field // field of JavaThread
	inJava                       int64           // its value while a thread runs Java code
	osThread                     vmstructs.Field // field of JavaThread
	osThreadID                   vmstructs.Field // field of OSThread
	lastSP, lastPC, lastFP       vmstructs.Field // fields of JavaFrameAnchor
	wrapperAnchor                vmstructs.Field // field of JavaCallWrapper
	wrapperWord                  int64           // word of an entry frame that points to its JavaCallWrapper
	upcallData, upcallAnchor     vmstructs.Field // fields of UpcallStub and of its FrameData
	upcallBehind                 bool            // upcallData is not exported: see ThreadLayout
	senderSPWord                 int64           // word of an interpreter frame that has the caller's stack pointer
	threadList                   uint64          // static: a ThreadsList
	listLength, listThreads      vmstructs.Field // fields of ThreadsList
	firstThread                  uint64          // static, in JDK 8 and 9
	nextThread                   vmstructs.Field // field of JavaThread
}

func newThreadSchema(r *vmstructs.Resolver) ThreadSchema {
	s := ThreadSchema{
		anchor:        r.Field("JavaThread._anchor"),
		stackBase:     r.Field("JavaThread._stack_base", "Thread._stack_base"),
		stackSize:     r.Field("JavaThread._stack_size", "Thread._stack_size"),
		state:         r.Field("JavaThread._thread_state"),
		inJava:        r.Constant("_thread_in_Java"),
		osThread:      r.Optional("JavaThread._osthread", "Thread._osthread"),
		osThreadID:    r.Optional("OSThread._thread_id"),
		lastSP:        r.Field("JavaFrameAnchor._last_Java_sp"),
		lastPC:        r.Field("JavaFrameAnchor._last_Java_pc"),
		lastFP:        r.Field("JavaFrameAnchor._last_Java_fp"),
		wrapperAnchor: r.Field("JavaCallWrapper._anchor"),
		wrapperWord:   r.Constant("frame::entry_frame_call_wrapper_offset"),
		senderSPWord:  r.Constant("frame::interpreter_frame_sender_sp_offset"),
		threadList:    r.OptionalStatic("ThreadsSMRSupport._java_thread_list"),
		listLength:    r.Optional("ThreadsList._length"),
		listThreads:   r.Optional("ThreadsList._threads"),
		firstThread:   r.OptionalStatic("Threads._thread_list"),
		nextThread:    r.Optional("JavaThread._next"),
		upcallData:    r.Optional("UpcallStub._frame_data_offset"),
		upcallAnchor:  r.Optional("UpcallStub::FrameData.jfa"),
	}
	if !s.upcallData.Known {
		s.upcallData, s.upcallBehind = firstUpcallField(r), true
	}
	if s.inJava == 0 {
		s.inJava = usualInJava
	}
	if s.senderSPWord == 0 {
		s.senderSPWord = usualSenderSPWord
	}
	if s.inJava < 0 || s.inJava > maxThreadState {
		r.Missing = append(r.Missing, "plausible _thread_in_Java")
	}
	return s
}

// Numbers of JavaThreadState (src/hotspot/share/utilities/globalDefinitions.hpp): a bound, and that
// of _thread_in_Java where the VM does not export it. JDK 28 counts them anew, as the states in
// between are gone: there it is 4.
const (
	maxThreadState = 64
	usualInJava    = 8
)

// usualSenderSPWord is where frames of the interpreter have the caller's stack pointer in all JDKs
// from 8 to 28 (src/hotspot/cpu/x86/frame_x86.hpp). JDK 8 does not export it.
const usualSenderSPWord = -1

// firstUpcallField is where an UpcallStub has its first field, in JDK 16 to 24, which export none
// (src/hotspot/share/code/codeBlob.hpp; up to JDK 19 the class is OptimizedEntryBlob). Its last
// one, behind a reference, says where its frame has the anchor.
func firstUpcallField(r *vmstructs.Resolver) vmstructs.Field {
	size := cmp.Or(r.Sizes["RuntimeBlob"], r.Sizes["CodeBlob"])
	if size == 0 || size > vmstructs.MaxSize {
		return vmstructs.Field{}
	}
	return vmstructs.Field{Offset: uint32(size+7) &^ 7, Width: 4, Known: true}
}

func (s *ThreadSchema) layout() ThreadLayout {
	return ThreadLayout{
		Anchor:        s.anchor.Offset,
		LastSP:        s.lastSP.Offset,
		LastPC:        s.lastPC.Offset,
		LastFP:        s.lastFP.Offset,
		StackBase:     s.stackBase.Offset,
		StackSize:     s.stackSize.Offset,
		State:         s.state.Offset,
		InJava:        uint32(s.inJava),
		OSThread:      s.osThread.Offset,
		OSThreadID:    s.osThreadID.Offset,
		CallWrapper:   int32(s.wrapperWord) * vmstructs.WordSize,
		UpcallData:    s.upcallData.Offset,
		UpcallAnchor:  s.upcallAnchor.Offset,
		UpcallBehind:  s.upcallBehind,
		WrapperAnchor: s.wrapperAnchor.Offset,
	}
}

// maxListings is how often the list of threads is read while others replace it.
const maxListings = 100

// ThreadAddresses returns the addresses of JavaThreads, at most so many. The VM replaces its list when a
// thread begins or ends, and frees the old one: if it did so meanwhile, the list is read again.
func (p *VM) ThreadAddresses(most uint64) (threads []uint64, err error) {
	s := &p.Thread
	if s.linked() {
		return p.linkedThreads(most)
	}
	list, err := p.Memory.Word(s.threadList)
	for range maxListings {
		if err != nil {
			return nil, err
		}
		if list == 0 {
			return nil, vmruntime.ErrStarting
		}
		var now uint64
		threads, err = p.listedThreads(list, most)
		read := err
		if now, err = p.Memory.Word(s.threadList); err == nil && now == list {
			return threads, read
		}
		list = now
	}
	return threads, err
}

// listedThreads are those of a ThreadsList.
func (p *VM) listedThreads(list, most uint64) (threads []uint64, err error) {
	s := &p.Thread
	header, err := p.Memory.Bytes(list, vmstructs.LastEnd(s.listLength, s.listThreads))
	if err != nil {
		return nil, err
	}
	table, err := p.Memory.Bytes(s.listThreads.Read(header), vmstructs.WordSize*min(most, s.listLength.Read(header)))
	for ; len(table) >= vmstructs.WordSize; table = table[vmstructs.WordSize:] {
		threads = append(threads, vmstructs.Number(table[:vmstructs.WordSize]))
	}
	return threads, err
}

// linked reports whether the VM's list of threads is a linked one.
func (s *ThreadSchema) linked() bool {
	return s.threadList == 0 || !s.listLength.Known || !s.listThreads.Known
}

// HasIDs reports whether the VM says which threads of the kernel its threads are.
func (s *ThreadSchema) HasIDs() bool { return s.osThread.Known && s.osThreadID.Known }

// LayoutList says where the list of threads is.
func (s *ThreadSchema) LayoutList(l *javaheap.ObjectLayout) {
	if s.linked() {
		l.ThreadList, l.ThreadNext = s.firstThread, s.nextThread.Offset
	} else {
		l.ThreadList, l.ListLength, l.ListThreads = s.threadList, s.listLength.Offset, s.listThreads.Offset
	}
}

// linkedThreads does so where each leads to the next one.
func (p *VM) linkedThreads(most uint64) (threads []uint64, err error) {
	s := &p.Thread
	if s.firstThread == 0 || !s.nextThread.Known {
		return nil, errors.New("the VM does not export its threads")
	}
	next, err := p.Memory.Word(s.firstThread)
	for err == nil && next != 0 && uint64(len(threads)) < most {
		threads = append(threads, next)
		next, err = p.Memory.Word(s.nextThread.At(next))
	}
	return threads, err
}

// Threads returns those that run Java code, at most vmruntime.MaxListedThreads. One that starts or
// ends meanwhile may be absent. It costs a read of some bytes for each thread, in batches, three
// times; a system call each up to JDK 9, whose list is a linked one.
func (p *VM) Threads() ([]vmruntime.Thread, error) {
	addrs, err := p.ThreadAddresses(vmruntime.MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var heads, ids vmstructs.Batch
	l := &p.Layout.Thread
	for _, addr := range addrs {
		heads.Add(addr, vmstructs.WordSize)
		heads.Add(addr+uint64(l.OSThread), vmstructs.WordSize)
	}
	if err := heads.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	var threads []vmruntime.Thread
	for i, addr := range addrs {
		vtable, ok1 := heads.Word(2 * i)
		os, ok2 := heads.Word(2*i + 1)
		if ok1 && ok2 && vtable == l.Vtable && os != 0 {
			threads = append(threads, vmruntime.Thread{Address: addr})
			ids.Add(os+uint64(l.OSThreadID), 4)
		}
	}
	if err := ids.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	known := threads[:0]
	for i, t := range threads {
		if id, ok := ids.Word(i); ok && id != 0 {
			t.ID = uint32(id)
			known = append(known, t)
		}
	}
	return known, nil
}

// javaThreadVtable is what the first word of a JavaThread points to that runs Java code, where no
// symbol says so: that of the oldest thread in the list. The VM makes it in create_vm for the
// thread that called that (src/hotspot/share/runtime/threads.cpp), and next the Reference Handler,
// which does not end: both run Java code. Threads of compilers and services, which are of
// subclasses, come later.
func (p *VM) javaThreadVtable() (uint64, error) {
	threads, err := p.ThreadAddresses(vmruntime.MaxListedThreads)
	if err != nil {
		return 0, err
	}
	if len(threads) == 0 {
		return 0, vmruntime.ErrStarting
	}
	oldest := threads[0]
	if p.Thread.linked() { // a new one is put at the front
		oldest = threads[len(threads)-1]
		if len(threads) == vmruntime.MaxListedThreads {
			return 0, fmt.Errorf("there are %d threads or more", len(threads))
		}
	}
	vtable, err := p.Memory.Word(oldest)
	if err != nil {
		return 0, err
	}
	if vtable < p.Bias+p.Build.Low || vtable >= p.Bias+p.Build.High {
		return 0, fmt.Errorf("a thread's vtable at %#x: %w", vtable, vmruntime.ErrMalformed)
	}
	return vtable, nil
}
