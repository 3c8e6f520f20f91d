package agent

import (
	"slices"
	"time"
)

// A keeper counts which processes need things that are set up once for all of them, such as the probes of a library that
// they map. A thing that no process needs is kept for a while, for the case that another one comes: a service that is
// restarted. The caller locks. The zero value keeps nothing yet, and has no grace.
type keeper[K comparable, V any] struct {
	grace time.Duration
	kept  map[K]*kept[V]
	needs map[*process][]K
}

type kept[V any] struct {
	value V
	users map[*process]struct{}
	idle  time.Duration // CLOCK_MONOTONIC: since when it has no users
}

// take returns what is kept under key, made by create if there is nothing, and notes that p needs it. A process needs a
// thing once, however often it takes it. woken says that nobody needed it before.
func (k *keeper[K, V]) take(key K, p *process, create func() V) (value V, woken bool) {
	if k.kept == nil {
		k.kept, k.needs = map[K]*kept[V]{}, map[*process][]K{}
	}
	e := k.kept[key]
	if e == nil {
		e = &kept[V]{value: create(), users: map[*process]struct{}{}}
		k.kept[key] = e
	}
	woken = len(e.users) == 0
	if _, ok := e.users[p]; !ok {
		e.users[p] = struct{}{}
		k.needs[p] = append(k.needs[p], key)
	}
	return e.value, woken
}

// leave notes that p, which is gone, needs nothing any more. It returns what nobody needs now.
func (k *keeper[K, V]) leave(p *process, now time.Duration) (idle []V) {
	for _, key := range k.needs[p] {
		e := k.kept[key]
		if delete(e.users, p); len(e.users) == 0 {
			e.idle = now
			idle = append(idle, e.value)
		}
	}
	delete(k.needs, p)
	return idle
}

// expire forgets and returns what nobody has needed for the time of grace. next is when it is to be called again: at the
// first moment when something else may have expired by then, false if nothing is idle.
func (k *keeper[K, V]) expire(now time.Duration) (expired []V, next time.Duration, ok bool) {
	for key, e := range k.kept {
		switch until := e.idle + k.grace; {
		case len(e.users) > 0:
		case until <= now:
			delete(k.kept, key)
			expired = append(expired, e.value)
		case !ok || until < next:
			next, ok = until, true
		}
	}
	return expired, next, ok
}

// A numbering gives out the numbers below a bound, each to one owner at a time.
type numbering struct {
	next, bound uint32
	free        []uint32 // of those below next
}

// take returns a number that is free, of all that were given back the one that was so first; false if there is none.
func (n *numbering) take() (uint32, bool) {
	if len(n.free) > 0 {
		number := n.free[0]
		n.free = n.free[1:]
		return number, true
	}
	if n.next >= n.bound {
		return 0, false
	}
	n.next++
	return n.next - 1, true
}

// give gives back numbers whose owner is gone.
func (n *numbering) give(numbers []uint32) { n.free = append(slices.Clip(n.free), numbers...) }
