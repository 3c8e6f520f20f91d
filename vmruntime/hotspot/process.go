package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javathread"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodcounts"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/nmethod"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// An Image is what one build of libjvm taught. It is immutable and may be used for many processes
// at once.
type Image struct{ *javavm.Build }

// A Process is one guest: what is known of its VM, and the parts that read it. Its methods are
// called from one goroutine at a time.
type Process struct {
	*javavm.VM
	*nmethod.Codes
	*javaobject.Heap
	*methodcounts.Profiler
	*javathread.Lister
}

// Attach reads the VM's tables and the headers in its code cache. Compilations that are there then
// can be named when they are gone once Continue has been called until there is no more to do. The
// result is a *Process.
func (i *Image) Attach(guest vmruntime.Target) (vmruntime.Process, error) {
	p := newProcess(javavm.New(i.Build, guest), guest.Seen)
	if err := p.attach(); err != nil {
		return nil, fmt.Errorf("attach to HotSpot: %w", err)
	}
	return p, nil
}

func newProcess(of *javavm.VM, seen func(method uint64) (vmruntime.SeenMethod, bool)) *Process {
	p := &Process{VM: of, Heap: javaobject.NewHeap(of)}
	p.Profiler, p.Lister = methodcounts.NewProfiler(p.Heap), &javathread.Lister{Heap: p.Heap}
	p.Codes = nmethod.NewCodes(of, seen, p.Profiler.Introduce)
	return p
}

func (p *Process) attach() error {
	structs, err := vmstructs.ReadTables(p.Memory, p.Symbol)
	if err != nil {
		return err
	}
	// Where the fields are that are read is the same in all processes of a build of libjvm, but it is
	// kept by process: one that lies about itself must only harm its own profile.
	if err := p.resolve(structs); err != nil {
		return err
	}
	if err := p.ReadVersion(); err != nil {
		return err
	}
	if err := p.Codes.Attach(); err != nil {
		return err
	}
	return p.buildLayout()
}

// resolve looks up everything. The error names all that is missing.
func (p *Process) resolve(from *vmstructs.Tables) error {
	r := &vmstructs.Resolver{Tables: from}
	p.Codes.Resolve(r)
	p.VM.Resolve(r)
	p.Profiler.Resolve(from)
	p.Heap.Resolve(from)
	p.Lister.Resolve(from)
	return r.Err()
}

// buildLayout fills in the layout. ErrStarting if the VM has not generated the code that every walk
// needs.
func (p *Process) buildLayout() error {
	p.LayoutCode()
	if err := p.LayoutFrames(&p.Codes.Schema.Stubs); err != nil {
		return err
	}
	if err := p.LayoutObjects(); err != nil {
		return err
	}
	if err := p.LayoutLoom(p.ReturnBarrier); err != nil {
		return err
	}
	p.UpdateKinds()
	return nil
}

// Layout returns what the kernel side must know. The caller must not change it; Refresh does.
func (p *Process) Layout() *javavm.Layout { return &p.VM.Layout }
