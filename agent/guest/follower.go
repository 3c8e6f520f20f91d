package guest

import (
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Follower takes part in what workers do with processes. The worker that has the process calls
// its methods.
type Follower interface {
	// Look is called whenever a worker comes to a process that runs.
	Look(p *Process)
	// BeforeNames is called before frames are named, also if the process has ended.
	BeforeNames(p *Process)
	// LeftAlone replaces Look and BeforeNames while a process is left alone after a panic.
	LeftAlone(p *Process)
	// Attaching is called before p's VM is read, with the VM's library. It returns notes for
	// profiles on what the library lacks; after an error p is not attached for now.
	Attaching(p *Process, m *proc.Mapping, lib MappedFile) (lacks []string, err error)
	// Announce is called before the VM is announced to the kernel side under that serial, with what
	// the kernel side must know of its objects: nil if that is not known. After an error the VM is
	// not announced.
	Announce(p *Process, heap *bpf.HotspotHeap, serial uint32) error
	// Attached is called once the VM is attached.
	Attached(p *Process, g *VM, m *proc.Mapping)
	// Withdraw undoes Announce. A lock of the Resolver is held: it must not call the Resolver.
	Withdraw(p *Process, serial uint32)
	// Leave is called when the process has ended.
	Leave(p *Process)
}

// A NopFollower is a Follower that does nothing. Embed it to implement only some methods.
type NopFollower struct{}

func (NopFollower) Look(*Process)        {}
func (NopFollower) BeforeNames(*Process) {}
func (NopFollower) LeftAlone(*Process)   {}
func (NopFollower) Attaching(*Process, *proc.Mapping, MappedFile) ([]string, error) {
	return nil, nil
}
func (NopFollower) Announce(*Process, *bpf.HotspotHeap, uint32) error { return nil }
func (NopFollower) Attached(*Process, *VM, *proc.Mapping)             {}
func (NopFollower) Withdraw(*Process, uint32)                         {}
func (NopFollower) Leave(*Process)                                    {}

// PerProcess keeps a T for each process, from the first call of Of until Forget, which is called
// when the process has ended. The zero value is empty. A T belongs to the worker that has its
// process.
type PerProcess[T any] struct {
	mu   sync.Mutex
	kept map[*Process]*T
}

// Get returns what is kept for p, a zero T at first. Nothing is kept for a process that has ended
// and was not known before: nobody would forget it, and it would keep the process in memory.
func (k *PerProcess[T]) Get(p *Process) *T {
	k.mu.Lock()
	defer k.mu.Unlock()
	v := k.kept[p]
	if v != nil {
		return v
	}
	v = new(T)
	if !p.Exited.Load() {
		if k.kept == nil {
			k.kept = map[*Process]*T{}
		}
		k.kept[p] = v
	}
	return v
}

// Forget drops what is kept for p.
func (k *PerProcess[T]) Forget(p *Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, p)
}
