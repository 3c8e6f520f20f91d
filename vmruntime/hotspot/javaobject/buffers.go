package javaobject

import (
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A bufferList is the free parts of all threads' allocation buffers, read when it is first asked:
// nothing in them is an object, though it may look like one.
type bufferList struct {
	*Heap
	read bool
	free [][2]uint64 // from top to end, and what is kept behind that
}

// maxBuffers bounds how many threads are asked.
const maxBuffers = 16 << 10

// isFree reports whether addr is in one of them. Where they cannot be read, because threads come or
// go, nothing is.
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
	threads, err := l.ThreadAddresses(maxBuffers)
	if err != nil {
		return err
	}
	var b vmstructs.Batch
	for _, thread := range threads {
		b.Add(thread+uint64(l.Layout.Objects.TLABTop), vmstructs.WordSize)
		b.Add(thread+uint64(l.Layout.Objects.TLABEnd), vmstructs.WordSize)
	}
	if err := b.Read(l.Memory.Mem); err != nil {
		return err
	}
	for i := range threads {
		top, ok1 := b.Word(2 * i)
		end, ok2 := b.Word(2*i + 1)
		if ok1 && ok2 && top < end {
			l.free = append(l.free, [2]uint64{top, end + l.objects.tlabReserve})
		}
	}
	return nil
}
