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

// Where the class library keeps all virtual threads (java.base, jdk.internal.vm.ThreadContainers):
// those that were started alone in a set, unless -Djdk.trackAllThreads=false, and those of
// executors and scopes in sets of these, which a registry refers to.
const (
	rootContainerClass = "jdk/internal/vm/ThreadContainers$RootContainer$TrackingRootContainer"
	containersClass    = "jdk/internal/vm/ThreadContainers"
)

// A virtualList is where a process keeps its virtual threads. The addresses are those of memory of
// the VM, which does not move.
type virtualList struct {
	root, registry uint64 // handles of the java.lang.Class that has the set
	rootAt         uint64 // offset there
	registryAt     uint64
	states         map[uint64]vmruntime.VirtualState // by VirtualThread.state
}

// Bounds on one list.
const (
	maxContainers = 1 << 10 // executors and scopes: of more, that many are drawn
	maxTable      = 1 << 20 // places of a hash table
	maxChain      = 16      // entries at one place of it: there is one as a rule
)

// suspendedState is a bit of VirtualThread.state.
const suspendedState = 1 << 8

// VirtualThreads implements vmruntime.VirtualLister. It costs some twenty reads for each thread
// that is drawn, in batches, and one for each hash table, of 4 or 8 bytes for each of its places.
func (p *Lister) VirtualThreads(most int, draw func(n int) int) ([]vmruntime.VirtualThread, error) {
	if p.virtualClass == 0 {
		return nil, errors.New("virtual threads: the VM does not export their class")
	}
	if p.virtualList == nil {
		l, err := p.findVirtualList()
		if errors.Is(err, vmruntime.ErrStale) {
			return nil, fmt.Errorf("virtual threads: %w", err)
		}
		p.virtualList = func() (*virtualList, error) { return l, err }
	}
	l, err := p.virtualList()
	if err != nil {
		return nil, fmt.Errorf("virtual threads: %w", err)
	}
	entries, weights, err := p.virtualEntries(l, draw)
	if err != nil {
		return nil, fmt.Errorf("virtual threads: %w", err)
	}
	// Places of hash tables are drawn. Of a longer chain than one entry, the others come later.
	n := max(most, 1)
	step := max((len(entries)+n-1)/n, 1)
	var list []vmruntime.VirtualThread
	var drawn []uint64
	for i := draw(step); i < len(entries); i += step {
		drawn = append(drawn, entries[i])
		list = append(list, vmruntime.VirtualThread{Weight: float64(step) * weights[i]})
	}
	threads, list, err := p.virtualKeys(drawn, list)
	if err == nil {
		list, err = p.readVirtual(threads, list)
	}
	if err != nil {
		return nil, fmt.Errorf("virtual threads: %w", err)
	}
	return list, nil
}

// findVirtualList finds the sets.
func (p *Lister) findVirtualList() (*virtualList, error) {
	if !p.Layout.HasObjects {
		return nil, errors.New("the VM does not export what its classes consist of")
	}
	klasses, err := p.FindClasses(rootContainerClass, containersClass)
	if err != nil {
		return nil, err
	}
	l := &virtualList{}
	epoch := p.CurrentEpoch()
	if root := klasses[0]; root != 0 {
		if l.root, l.rootAt, err = p.StaticPlace(root, "VTHREADS", epoch); err != nil {
			return nil, err
		}
	}
	if registry := klasses[1]; registry != 0 {
		if l.registry, l.registryAt, err = p.StaticPlace(registry, "CONTAINER_REGISTRY", epoch); err != nil {
			return nil, err
		}
	}
	if l.registry == 0 {
		return nil, errors.New("the class library has no registry of them")
	}
	if l.root == 0 {
		return nil, errors.New("those that were started alone are not listed (-Djdk.trackAllThreads=false)")
	}
	l.states, err = p.virtualStates(epoch)
	return l, err
}

// virtualStates reads the numbers of the states of virtual threads, which differ between JDKs.
func (p *Lister) virtualStates(epoch uint32) (map[uint64]vmruntime.VirtualState, error) {
	states := map[uint64]vmruntime.VirtualState{}
	for name, state := range map[string]vmruntime.VirtualState{
		"PARKED": vmruntime.VirtualParked, "TIMED_PARKED": vmruntime.VirtualParked, "UNPARKED": vmruntime.VirtualParked,
		"PARKING":       vmruntime.VirtualParked,
		"TIMED_PARKING": vmruntime.VirtualParked, "BLOCKING": vmruntime.VirtualBlocked,
		"BLOCKED":   vmruntime.VirtualBlocked,
		"UNBLOCKED": vmruntime.VirtualBlocked, "WAIT": vmruntime.VirtualWaits, "TIMED_WAIT": vmruntime.VirtualWaits,
	} {
		handle, offset, err := p.StaticPlace(p.virtualClass, name, epoch)
		if err != nil {
			continue // The state is of another JDK.
		}
		mirror, err := p.Handle(handle)
		if err != nil {
			return nil, err
		}
		number, err := p.Words([]uint64{mirror + offset}, 4)
		if err != nil {
			return nil, err
		}
		states[number[0]] = state
	}
	if len(states) == 0 {
		return nil, errors.New("their states are not known")
	}
	return states, nil
}

// virtualEntries returns the first entry at each place of all sets of virtual threads, and how many
// sets the one that it is of stands for.
func (p *Lister) virtualEntries(
	l *virtualList, draw func(n int) int,
) (entries []uint64, weights []float64, err error) {
	epoch := p.CurrentEpoch()
	statics := make([]uint64, 0, 2)
	for _, at := range [...][2]uint64{{l.root, l.rootAt}, {l.registry, l.registryAt}} {
		mirror, err := p.Handle(at[0])
		if err != nil {
			return nil, nil, err
		}
		statics = append(statics, mirror+at[1])
	}
	own, err := p.References(statics)
	if err != nil {
		return nil, nil, err
	}
	registered, err := p.setPlaces(own[1], epoch)
	if err != nil {
		return nil, nil, err
	}
	step := max((len(registered)+maxContainers-1)/maxContainers, 1)
	var some []uint64
	for i := draw(step); i < len(registered); i += step {
		some = append(some, registered[i])
	}
	sets, err := p.containerSets(some, epoch)
	if err != nil {
		return nil, nil, err
	}
	for i, set := range append([]uint64{own[0]}, sets...) {
		weight := 1.
		if i > 0 {
			weight = float64(step)
		}
		places, err := p.setPlaces(set, epoch)
		if err != nil {
			if i == 0 {
				return nil, nil, err
			}
			continue // the container has gone meanwhile
		}
		entries = append(entries, places...)
		for range places {
			weights = append(weights, weight)
		}
	}
	return entries, weights, nil
}

// containerSets returns the sets of threads of the containers that entries of the registry refer to
// weakly.
func (p *Lister) containerSets(entries []uint64, epoch uint32) (sets []uint64, err error) {
	for depth := 0; len(entries) > 0 && depth < maxChain; depth++ {
		containers := entries
		for _, name := range [...]string{"key", "referent"} {
			containers, err = p.Follow(containers, epoch, func(f javaobject.Field) bool { return f.Name == name })
			if err != nil {
				return nil, err
			}
		}
		flocks, err := p.Follow(containers, epoch, func(f javaobject.Field) bool { return f.Name == "flock" })
		if err != nil {
			return nil, err
		}
		for i, flock := range flocks {
			containers[i] = cmp.Or(flock, containers[i])
		}
		found, err := p.Follow(containers, epoch, func(f javaobject.Field) bool {
			return f.Name == "threads" ||
				f.Name == "virtualThreads"
		})
		if err != nil {
			return nil, err
		}
		for _, set := range found {
			if set != 0 {
				sets = append(sets, set)
			}
		}
		if entries, err = p.nextEntries(entries, epoch); err != nil {
			return nil, err
		}
	}
	return sets, nil
}

// setPlaces returns the first entries at the places of a ConcurrentHashMap.KeySetView, without
// those that have none.
func (p *Lister) setPlaces(set uint64, epoch uint32) ([]uint64, error) {
	at := []uint64{set}
	for _, name := range [...]string{"map", "table"} {
		var err error
		if at, err = p.Follow(at, epoch, func(f javaobject.Field) bool { return f.Name == name }); err != nil {
			return nil, err
		}
	}
	if at[0] == 0 {
		return nil, nil // a table is made for the first entry
	}
	places, err := p.ReferencesIn(at[0], maxTable, epoch)
	return slices.DeleteFunc(places, func(at uint64) bool { return at == 0 }), err
}

// nextEntries returns the entries behind others at their places. That of a tree's root is its first
// one.
func (p *Lister) nextEntries(entries []uint64, epoch uint32) (next []uint64, err error) {
	first, err := p.Follow(entries, epoch, func(f javaobject.Field) bool { return f.Name == "first" })
	if err != nil {
		return nil, err
	}
	behind, err := p.Follow(entries, epoch, func(f javaobject.Field) bool { return f.Name == "next" })
	if err != nil {
		return nil, err
	}
	for i := range entries {
		if at := cmp.Or(first[i], behind[i]); at != 0 {
			next = append(next, at)
		}
	}
	return next, nil
}

// virtualKeys returns the threads that entries and those behind them have as keys, with what they
// stand for.
func (p *Lister) virtualKeys(
	entries []uint64, weights []vmruntime.VirtualThread,
) (threads []uint64, list []vmruntime.VirtualThread, err error) {
	epoch := p.CurrentEpoch()
	for depth := 0; len(entries) > 0 && depth < maxChain; depth++ {
		keys, err := p.Follow(entries, epoch, func(f javaobject.Field) bool { return f.Name == "key" })
		if err != nil {
			return nil, nil, err
		}
		first, err := p.Follow(entries, epoch, func(f javaobject.Field) bool { return f.Name == "first" })
		if err != nil {
			return nil, nil, err
		}
		behind, err := p.Follow(entries, epoch, func(f javaobject.Field) bool { return f.Name == "next" })
		if err != nil {
			return nil, nil, err
		}
		var next []uint64
		var weigh []vmruntime.VirtualThread
		for i := range entries {
			if keys[i] != 0 {
				threads, list = append(threads, keys[i]), append(list, weights[i])
			}
			if at := cmp.Or(first[i], behind[i]); at != 0 {
				next, weigh = append(next, at), append(weigh, weights[i])
			}
		}
		entries, weights = next, weigh
	}
	return threads, list, nil
}

// readVirtual completes what is known of threads. It leaves out what is no virtual thread.
func (p *Lister) readVirtual(threads []uint64, list []vmruntime.VirtualThread) ([]vmruntime.VirtualThread, error) {
	const virtual = "java.lang.VirtualThread"
	epoch := p.CurrentEpoch()
	classes, err := p.Classes(threads, epoch)
	if err != nil {
		return nil, err
	}
	place := func(class, name string) []uint64 {
		return javaobject.FieldsOf(threads, classes, func(f javaobject.Field) bool {
			return f.Class == class && f.Name == name
		})
	}
	ids, err := p.Words(place(classThread, "tid"), vmstructs.WordSize)
	if err != nil {
		return nil, err
	}
	continuations, err := p.References(place(virtual, "cont"))
	if err != nil {
		return nil, err
	}
	kinds, err := p.Classes(continuations, epoch)
	if err != nil {
		return nil, err
	}
	mounted := javaobject.FieldsOf(continuations, kinds, func(f javaobject.Field) bool { return f.Name == "mounted" })
	states, blockers, waiters := place(virtual, "state"), place(classThread, "parkBlocker"),
		place(virtual, "objectWaiter")
	words, err := p.virtualWords(states, blockers, waiters, mounted)
	if err != nil {
		return nil, err
	}
	kept := list[:0]
	for i, class := range classes {
		if class == nil || class.Name != virtual || ids[i] == 0 || mounted[i] == 0 {
			continue
		}
		v := list[i]
		v.ID, v.Continuation, v.Mounted, v.State, v.Blocker, v.Waiter = ids[i], continuations[i], mounted[i], states[i],
			blockers[i], waiters[i]
		v.Words, v.OnCarrier = words[i].VirtualWords, words[i].mounted
		kept = append(kept, v)
	}
	return kept, nil
}

// A readWords is what was read of a virtual thread.
type readWords struct {
	vmruntime.VirtualWords
	mounted bool
}

// virtualWords reads all words of threads in one go, so that those of one thread are as of about
// one moment.
func (p *Lister) virtualWords(states, blockers, waiters, mounted []uint64) ([]readWords, error) {
	var b vmstructs.Batch
	for i := range states {
		b.Add(mounted[i], 1)
		b.Add(states[i], 4)
		b.Add(blockers[i], vmstructs.WordSize)
		b.Add(waiters[i], vmstructs.WordSize)
	}
	if err := b.Read(p.Memory.Mem); err != nil {
		return nil, err
	}
	all := make([]readWords, len(states))
	for i := range all {
		word := func(n int) uint64 {
			v, _ := b.Word(4*i + n) // 0 if there is none
			return v
		}
		all[i] = readWords{vmruntime.VirtualWords{State: uint32(word(1)), Blocker: word(2), Waiter: word(3)},
			word(0) != 0}
	}
	return all, nil
}
