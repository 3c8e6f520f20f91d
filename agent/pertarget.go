package agent

import "sync"

// perTarget keeps something of each process for a follower, from the first look at a process until it leaves. The zero value
// is empty. What it keeps belongs to the worker that has the process.
type perTarget[T any] struct {
	mu   sync.Mutex
	kept map[*targetProcess]*T
}

// of returns what is kept of p, which is the zero value at first.
func (k *perTarget[T]) of(p *targetProcess) *T {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.kept[p]
	if v == nil {
		if k.kept == nil {
			k.kept = map[*targetProcess]*T{}
		}
		v = new(T)
		k.kept[p] = v
	}
	return v
}

func (k *perTarget[T]) forget(p *targetProcess) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, p)
}
