package target

import "sync"

// PerProcess keeps something of each process for a follower, from the first look at a process until it leaves. The zero value
// is empty. What it keeps belongs to the worker that has the process.
type PerProcess[T any] struct {
	mu   sync.Mutex
	kept map[*Process]*T
}

// Of returns what is kept of p, which is the zero value at first.
func (k *PerProcess[T]) Of(p *Process) *T {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.kept[p]
	if v == nil {
		if k.kept == nil {
			k.kept = map[*Process]*T{}
		}
		v = new(T)
		k.kept[p] = v
	}
	return v
}

func (k *PerProcess[T]) Forget(p *Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, p)
}
