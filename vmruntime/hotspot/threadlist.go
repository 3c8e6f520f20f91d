package hotspot

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxThreads bounds how many threads are asked for their objects: any one will do.
const maxThreads = 64

// threads returns the addresses of JavaThreads, at most so many.
func (p *Process) threads(most uint64) (threads []uint64, err error) {
	s := &p.schema.object
	if s.linked() {
		return p.linkedThreads(most)
	}
	list, err := p.word(s.threadList)
	if err != nil {
		return nil, err
	}
	if list == 0 {
		return nil, vmruntime.ErrStarting
	}
	header, err := p.bytes(list, lastEnd(s.listLength, s.listThreads))
	if err != nil {
		return nil, err
	}
	table, err := p.bytes(s.listThreads.of(header), wordSize*min(most, s.listLength.of(header)))
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
	next, err := p.word(s.firstThread)
	for err == nil && next != 0 && uint64(len(threads)) < most {
		threads = append(threads, next)
		next, err = p.word(s.nextThread.at(next))
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
	if err := heads.read(p.mem); err != nil {
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
	if err := ids.read(p.mem); err != nil {
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
	vtable, err := p.word(oldest)
	if err != nil {
		return 0, err
	}
	if vtable < p.bias+p.image.low || vtable >= p.bias+p.image.high {
		return 0, fmt.Errorf("a thread's vtable at %#x: %w", vtable, vmruntime.ErrMalformed)
	}
	return vtable, nil
}
