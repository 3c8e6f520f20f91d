package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// An Image is what one build of libjvm taught. It is immutable and may be used for many processes
// at once.
type Image struct{ *build }

// A Process is one guest: what is known of its VM, and the parts that read it. Its methods are
// called from one goroutine at a time.
type Process struct {
	*vm
	*codes
	*heap
	*profiler
	*lister
	notes []string
}

// Attach reads the VM's tables and the headers in its code cache. Compilations that are there then
// can be named when they are gone once Continue has been called until there is no more to do. The
// result is a *Process.
func (i *Image) Attach(guest vmruntime.Target) (vmruntime.Process, error) {
	p := newProcess(newVM(i.build, guest), guest.Seen)
	if err := p.attach(); err != nil {
		return nil, fmt.Errorf("attach to HotSpot: %w", err)
	}
	return p, nil
}

func newProcess(of *vm, seen func(method uint64) (vmruntime.SeenMethod, bool)) *Process {
	p := &Process{vm: of, heap: newHeap(of)}
	p.profiler, p.lister = newProfiler(p.heap), &lister{heap: p.heap}
	p.codes = newCodes(of, seen, p.profiler.introduce)
	return p
}

func (p *Process) attach() error {
	structs, err := vmstructs.ReadTables(p.memory, p.symbol)
	if err != nil {
		return err
	}
	// Where the fields are that are read is the same in all processes of a build of libjvm, but it is
	// kept by process: one that lies about itself must only harm its own profile.
	if err := p.resolve(structs); err != nil {
		return err
	}
	if err := p.readVersion(); err != nil {
		return err
	}
	if p.notes, err = p.codes.attach(); err != nil {
		return err
	}
	if !p.version.tested() {
		p.note("This agent is not tested with JDK %d.", p.version.jdk)
	}
	return p.buildLayout()
}

// resolve looks up everything. The error names all that is missing.
func (p *Process) resolve(from *vmstructs.Tables) error {
	r := &vmstructs.Resolver{Tables: from}
	p.codes.resolve(r)
	p.vm.resolve(r)
	p.profiler.resolve(from)
	p.heap.resolve(from)
	return r.Err()
}

func (p *Process) note(format string, args ...any) {
	p.notes = append(p.notes, fmt.Sprintf(format, args...))
}

// Notes are what a reader of this guest's profile must know, one sentence each.
func (p *Process) Notes() []string { return p.notes }
