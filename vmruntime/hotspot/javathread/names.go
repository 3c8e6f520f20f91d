// Package javathread reads what a HotSpot VM knows of its threads beyond their addresses: names, the locks
// that they wait for, the bytes that they have allocated, and the virtual threads.
//
//	threads := &javathread.Lister{Heap: heap}
//	threads.Resolve(tables)
//	err := threads.LayoutLoom(returnBarrier)
//	names, err := threads.ThreadNames()
//
// Files:
//
//	names          names of threads
//	lockwaits      what threads wait for, and who has it
//	allocated      bytes that threads have allocated
//	loom           where virtual threads are: mounted ones, and frames on the heap
//	virtuallist    all virtual threads
//	virtualdoing   what they wait for
package javathread

import (
	"errors"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// A Lister reads the threads of one VM.
type Lister struct {
	*javaobject.Heap
	loom         loomSchema
	locks        lockSchema
	virtualClass uint64                       // java.lang.VirtualThread, 0 if unknown
	ranVirtual   bool                         // it was found to be initialized
	virtualList  func() (*virtualList, error) // what looking for it gave; nil until then
}

// Resolve looks up the fields of virtual threads and of locks. Without them, only these are unknown.
func (p *Lister) Resolve(from *vmstructs.Tables) {
	r := &vmstructs.Resolver{Tables: from}
	p.loom, p.locks = newLoomSchema(r), newLockSchema(r)
}

// ThreadNames returns the names of Java threads, as Thread.getName does, by their id as in Threads;
// threads of the VM that have a java.lang.Thread are among them. It costs seven reads of some bytes
// for each thread, in batches. The VM may move objects meanwhile: then names are missing. One that
// is wrong would be that of another thread or string that was there a moment ago.
func (p *Lister) ThreadNames() (map[uint32]string, error) {
	if !p.Layout.HasObjects {
		return nil, errors.New("names of threads: objects of this JVM are not known")
	}
	if !p.Thread.HasIDs() {
		return nil, errors.New("names of threads: the VM does not export their ids")
	}
	l, t, epoch := &p.Layout.Objects, &p.Layout.Thread, p.CurrentEpoch()
	addrs, err := p.ThreadAddresses(vmruntime.MaxListedThreads)
	if err != nil {
		return nil, fmt.Errorf("list of threads: %w", err)
	}
	var words []uint64
	for _, addr := range addrs {
		words = append(words, addr+uint64(l.ThreadObject), addr+uint64(t.OSThread))
	}
	if words, err = p.Words(words, vmstructs.WordSize); err != nil {
		return nil, fmt.Errorf("threads: %w", err)
	}
	objects, systems := make([]uint64, len(addrs)), make([]uint64, len(addrs))
	for i := range addrs {
		objects[i] = words[2*i]
		if words[2*i+1] != 0 {
			systems[i] = words[2*i+1] + uint64(t.OSThreadID)
		}
	}
	ids, err := p.Words(systems, 4)
	if err != nil {
		return nil, fmt.Errorf("ids of threads: %w", err)
	}
	if l.ThreadObjectIsHandle {
		if objects, err = p.Words(objects, vmstructs.WordSize); err != nil {
			return nil, fmt.Errorf("objects of threads: %w", err)
		}
	}
	for i := range objects {
		objects[i] = l.Uncolour(objects[i])
	}
	referents, err := p.Follow(objects, epoch, func(f javaobject.Field) bool {
		return f.Class == "java.lang.Thread" && f.Name == "name" && f.Type == "java.lang.String"
	})
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	texts, err := p.StringsAt(referents, epoch)
	if err != nil {
		return nil, fmt.Errorf("names of threads: %w", err)
	}
	names := make(map[uint32]string, len(ids))
	for i, id := range ids {
		if id != 0 && texts[i] != "" {
			names[uint32(id)] = texts[i]
		}
	}
	return names, nil
}
