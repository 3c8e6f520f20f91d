package javathread

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Fields of Java classes that name a thread: see LockWaits.
const (
	classThread  = "java.lang.Thread"
	classOwnable = "java.util.concurrent.locks.AbstractOwnableSynchronizer"
)

// A lockSchema leads from a thread to the locks that it has, and to the monitor that it waits for.
type lockSchema struct {
	pendingMonitor vmstructs.Field // field of JavaThread: the monitor that it waits to enter
	// lockStack is a field of JavaThread: it holds the objects that the thread has locked, where
	// monitors do not say so.
	lockStack                   vmstructs.Field
	lockStackTop, lockStackBase vmstructs.Field // fields of LockStack
}

func newLockSchema(r *vmstructs.Resolver) lockSchema {
	return lockSchema{
		pendingMonitor: r.Optional("JavaThread._current_pending_monitor", "Thread._current_pending_monitor"),
		lockStack:      r.Optional("JavaThread._lock_stack"),
		lockStackTop:   r.Optional("LockStack._top"),
		lockStackBase:  r.Optional("LockStack._base[0]"),
	}
}

// LockWaits lists the threads that are about to enter a monitor which another thread has, and those
// that say what they park for. It costs some ten reads for each thread, in batches. What a thread
// does while the list is read may be half of it.
func (p *Lister) LockWaits() ([]vmruntime.LockWait, error) {
	s := &p.locks
	if !p.Layout.HasObjects || !s.pendingMonitor.Known {
		return nil, errors.New("waits for locks: the VM does not export which monitor a thread waits for")
	}
	threads, err := p.Threads()
	if err != nil {
		return nil, err
	}
	l, epoch := &p.Layout.Objects, p.CurrentEpoch()
	addrs, handles := make([]uint64, len(threads)), make([]uint64, len(threads))
	for i, t := range threads {
		addrs[i], handles[i] = t.Address+uint64(s.pendingMonitor.Offset), t.Address+uint64(l.ThreadObject)
	}
	monitors, err := p.Words(addrs, vmstructs.WordSize)
	if err != nil {
		return nil, fmt.Errorf("pending monitors of threads: %w", err)
	}
	javaThreads, err := p.nativeReferents(handles, l.ThreadObjectIsHandle)
	if err != nil {
		return nil, fmt.Errorf("objects of threads: %w", err)
	}
	blockers, err := p.Follow(javaThreads, epoch, func(f javaobject.Field) bool {
		return f.Class == classThread &&
			f.Name == "parkBlocker"
	})
	if err != nil {
		return nil, fmt.Errorf("what threads park for: %w", err)
	}
	var waits []vmruntime.LockWait
	for i, t := range threads {
		switch {
		case monitors[i] != 0:
			waits = append(waits, vmruntime.LockWait{Thread: t.ID, Monitor: monitors[i]})
		case blockers[i] != 0:
			waits = append(waits, vmruntime.LockWait{Thread: t.ID, Object: blockers[i]})
		}
	}
	if len(waits) == 0 {
		return nil, nil
	}
	return waits, p.describeLocks(waits, threads, javaThreads)
}

// nativeReferents reads what words of the VM's own refer to: references, or handles that lead to
// them.
func (p *Lister) nativeReferents(addrs []uint64, handles bool) (objects []uint64, err error) {
	if objects, err = p.Words(addrs, vmstructs.WordSize); err == nil && handles {
		objects, err = p.Words(objects, vmstructs.WordSize)
	}
	for i := range objects {
		objects[i] = p.Layout.Objects.Uncolour(objects[i])
	}
	return objects, err
}

// describeLocks adds the objects of monitors, the classes of objects and the owners of both.
// threads have these java.lang.Threads.
func (p *Lister) describeLocks(waits []vmruntime.LockWait, threads []vmruntime.Thread, javaThreads []uint64) error {
	l, epoch := &p.Layout.Objects, p.CurrentEpoch()
	objectAt, ownerAt := make([]uint64, len(waits)), make([]uint64, len(waits))
	for i, w := range waits {
		if w.Monitor != 0 {
			objectAt[i] = w.Monitor + uint64(l.MonitorObject)
			if l.MonitorOwner != 0 {
				ownerAt[i] = w.Monitor + uint64(l.MonitorOwner)
			}
		}
	}
	objects, err := p.nativeReferents(objectAt, l.MonitorObjectIsHandle)
	if err != nil {
		return fmt.Errorf("objects of monitors: %w", err)
	}
	for i := range waits {
		if waits[i].Monitor != 0 {
			waits[i].Object = objects[i]
		}
		objects[i] = waits[i].Object
	}
	classes, err := p.Classes(objects, epoch)
	if err != nil {
		return fmt.Errorf("classes of locks: %w", err)
	}
	monitorOwners, err := p.Words(ownerAt, vmstructs.WordSize)
	if err != nil {
		return fmt.Errorf("owners of monitors: %w", err)
	}
	owners, err := p.References(javaobject.FieldsOf(objects, classes, func(f javaobject.Field) bool {
		return f.Class == classOwnable &&
			f.Name == "exclusiveOwnerThread"
	}))
	if err != nil {
		return fmt.Errorf("owners of locks: %w", err)
	}
	ids, err := p.ownerIDs(threads, javaThreads)
	if err != nil {
		return err
	}
	anonymous := map[uint64]uint32{} // by object
	if slices.Contains(monitorOwners, anonymousOwner) {
		if anonymous, err = p.lockStacks(threads); err != nil {
			return err
		}
	}
	for i := range waits {
		w := &waits[i]
		if classes[i] != nil {
			w.Class = classes[i].Name
		}
		switch {
		case w.Monitor == 0:
			w.Owner = ids[owners[i]]
		case monitorOwners[i] == anonymousOwner:
			w.Owner = anonymous[w.Object]
		default:
			w.Owner = cmp.Or(ids[monitorOwners[i]], p.onStack(monitorOwners[i], threads))
		}
	}
	return nil
}

// ownerIDs returns the ids of threads by all that an owner of a lock may be recorded as: the
// address of the thread's structure, that of its java.lang.Thread, or, from JDK 24 on, the number
// that this has.
func (p *Lister) ownerIDs(threads []vmruntime.Thread, javaThreads []uint64) (map[uint64]uint32, error) {
	ids := make(map[uint64]uint32, 2*len(threads))
	for i, t := range threads {
		ids[t.Address], ids[javaThreads[i]] = t.ID, t.ID
	}
	if p.Layout.JDK >= firstNumberedOwners {
		classes, err := p.Classes(javaThreads, p.CurrentEpoch())
		if err != nil {
			return nil, fmt.Errorf("classes of threads: %w", err)
		}
		numbers, err := p.Words(javaobject.FieldsOf(javaThreads, classes, func(f javaobject.Field) bool {
			return f.Class == classThread &&
				f.Name == "tid"
		}), vmstructs.WordSize)
		if err != nil {
			return nil, fmt.Errorf("numbers of threads: %w", err)
		}
		for i, n := range numbers {
			ids[n] = threads[i].ID
		}
	}
	delete(ids, 0)
	return ids, nil
}

// anonymousOwner is the owner of a monitor that another thread than its owner has made: a thread
// has the object in its stack of locks (src/hotspot/share/runtime/objectMonitor.hpp). Up to JDK 20
// nothing is there.
const anonymousOwner = 1

// lockStacks returns the ids of threads by the objects that they have locked, as far as their
// stacks of locks say so.
func (p *Lister) lockStacks(threads []vmruntime.Thread) (map[uint64]uint32, error) {
	const most = 64 // objects; the VM has 8
	s, l := &p.locks, &p.Layout.Objects
	ids := map[uint64]uint32{}
	if !s.lockStack.Known || !s.lockStackTop.Known || !s.lockStackBase.Known {
		return ids, nil
	}
	tops := make([]uint64, len(threads))
	for i, t := range threads {
		tops[i] = t.Address + uint64(s.lockStack.Offset+s.lockStackTop.Offset)
	}
	ends, err := p.Words(tops, 4) // offsets from the thread
	if err != nil {
		return nil, fmt.Errorf("stacks of locks: %w", err)
	}
	var b vmstructs.Batch
	begin := uint64(s.lockStack.Offset + s.lockStackBase.Offset)
	for i, t := range threads {
		size := uint64(0)
		if ends[i] > begin {
			size = min(ends[i]-begin, most*vmstructs.WordSize) &^ (vmstructs.WordSize - 1)
		}
		b.Add(t.Address+begin, max(size, vmstructs.WordSize))
		if size == 0 {
			ends[i] = 0
		}
	}
	if err := b.Read(p.Memory.Mem); err != nil {
		return nil, fmt.Errorf("stacks of locks: %w", err)
	}
	for i, t := range threads {
		objects, ok := b.Bytes(i)
		for ; ok && ends[i] != 0 && len(objects) >= vmstructs.WordSize; objects = objects[vmstructs.WordSize:] {
			ids[l.Uncolour(vmstructs.Number(objects[:vmstructs.WordSize]))] = t.ID
		}
	}
	return ids, nil
}

// onStack returns the id of the thread on whose stack an address is, 0 if there is none: of a
// monitor that was made while its owner had the lock, the owner is a place there, up to JDK 20 and
// until the owner needs the monitor itself.
func (p *Lister) onStack(addr uint64, threads []vmruntime.Thread) uint32 {
	if addr == 0 || p.Layout.JDK >= firstNumberedOwners {
		return 0
	}
	t := &p.Layout.Thread
	for _, thread := range threads {
		bounds, err := p.Words([]uint64{thread.Address + uint64(t.StackBase), thread.Address + uint64(t.StackSize)},
			vmstructs.WordSize)
		if err == nil && addr < bounds[0] && bounds[0]-addr <= bounds[1] {
			return thread.ID
		}
	}
	return 0
}

// firstNumberedOwners is the first JDK whose monitors have the number of the java.lang.Thread as
// their owner.
const firstNumberedOwners = 24
