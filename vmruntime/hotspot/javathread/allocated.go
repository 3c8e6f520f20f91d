package javathread

import (
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Allocated implements vmruntime.AllocationCounter. A thread's count is what
// ThreadMXBean.getThreadAllocatedBytes returns: what the VM has added up, and the used part of the
// thread's allocation buffer (Thread::cooked_allocated_bytes in
// src/hotspot/share/runtime/thread.cpp).
func (p *Lister) Allocated(mem vmruntime.Memory) ([]vmruntime.ThreadAllocation, error) {
	l := &p.Layout
	if !l.HasObjects || !l.Objects.HasAllocated {
		return nil, errors.New("the JVM does not export how many bytes its threads have allocated")
	}
	reader := javavm.VM{Memory: vmstructs.Reader{Mem: mem}, Thread: p.Thread}
	addrs, err := reader.ThreadAddresses(vmruntime.MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var structs, ids vmstructs.Batch
	for _, addr := range addrs {
		for _, offset := range [...]uint32{l.Thread.OSThread, l.Objects.TLABStart, l.Objects.TLABTop, l.Objects.TLABEnd,
			l.Objects.Allocated} {
			structs.Add(addr+uint64(offset), vmstructs.WordSize)
		}
	}
	if err := structs.Read(mem); err != nil {
		return nil, fmt.Errorf("allocated bytes of threads: %w", err)
	}
	var threads []vmruntime.ThreadAllocation
	for i, addr := range addrs {
		word := func(n int) uint64 {
			w, _ := structs.Word(5*i + n)
			return w
		}
		bytes, ok := structs.Word(5*i + 4)
		if os := word(0); ok && os != 0 {
			if start, top, end := word(1), word(2), word(3); start < top && top <= end {
				bytes += top - start
			}
			threads = append(threads, vmruntime.ThreadAllocation{Thread: vmruntime.Thread{Address: addr}, Bytes: bytes})
			ids.Add(os+uint64(l.Thread.OSThreadID), 4)
		}
	}
	if err := ids.Read(mem); err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	for i := range threads {
		if id, ok := ids.Word(i); ok {
			threads[i].ID = uint32(id)
		}
	}
	// The memory of a thread that left the list meanwhile may have been anything.
	if addrs, err = reader.ThreadAddresses(vmruntime.MaxListedThreads); err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	listed := make(map[uint64]bool, len(addrs))
	for _, addr := range addrs {
		listed[addr] = true
	}
	return slices.DeleteFunc(threads, func(t vmruntime.ThreadAllocation) bool { return !listed[t.Address] }), nil
}
