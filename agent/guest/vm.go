package guest

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes/bridge"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/host/retry"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A VM is an attached VM: the kernel side can walk its stacks. It belongs to the worker that has
// its process.
type VM struct {
	Guest       vmruntime.Process // names what is found there; As returns what else it can do
	runtime     bridge.Runtime
	records     bridge.VM           // what is announced to the kernel side
	Memory      *proc.Memory        // memory of the process
	direct      *proc.Direct        // the same, as Guest reads it
	Kernel      *bpf.HotspotProcess // what was announced to the kernel side
	refresh     retry.Backoff       // back-off until all kinds of code have been seen
	mapping     unique.Handle[symbol.Mapping]
	interpreter unique.Handle[symbol.Mapping] // that of interpreted frames
	index       codeIndex
	places      map[place]Name // names of places in compiled code, maxPlaces at most
	functions   map[vmFunction]symbol.Function

	complete bool          // nothing of its attachment was left for later
	more     time.Duration // CLOCK_MONOTONIC: when that goes on
	pid      int
	threads  map[uint32]struct{} // ids of those that were announced to the kernel side, if it finds threads by them
}

// A place is where in a compilation a site is. Sites at one place have one name.
type place struct {
	version uint32
	exact   bool
	at      uint64 // see vmruntime.Placer
}

// maxPlaces bounds the names of places of a VM, each some 150 bytes.
const maxPlaces = 1 << 15

// placeOf returns the place of a site. ok is false if that is not known, or not yet.
func (g *VM) placeOf(site vmruntime.Site) (p place, ok bool) {
	if site.Kind != vmruntime.Compiled || site.Version == 0 {
		return place{}, false
	}
	placer, err := As[vmruntime.Placer](g)
	if err != nil {
		return place{}, false
	}
	at, ok := placer.Place(site)
	return place{site.Version, site.Exact, at}, ok
}

// keep keeps the name of a site's place.
func (g *VM) keep(site vmruntime.Site, n Name) {
	p, ok := g.placeOf(site)
	if !ok {
		return
	}
	if g.places == nil || len(g.places) >= maxPlaces {
		g.places = map[place]Name{}
	}
	n.Symbols, n.BCIs = slices.Clip(n.Symbols), slices.Clip(n.BCIs) // others append to them
	g.places[p] = n
}

// As returns what the VM's runtime can do beyond naming code: T is one of the interfaces in package
// vmruntime, or some of their methods. The error names the runtime that cannot do it.
func As[T any](g *VM) (T, error) {
	t, ok := g.Guest.(T)
	if !ok {
		return t, fmt.Errorf("%s: %w", g.runtime.Title(), errors.ErrUnsupported)
	}
	return t, nil
}

// CodeLow is where the VM's code cache begins.
func (g *VM) CodeLow() uint64 { return g.Kernel.CodeLow }

// Site is where a frame of the VM is, for lookups in it. Exact says that its address is no return
// address, epoch how often classes had been unloaded.
func (g *VM) Site(f bpf.Frame, exact bool, epoch uint32) vmruntime.Site {
	s := vmruntime.Site{Exact: exact, Epoch: epoch}
	switch f.Kind() {
	case bpf.FrameJIT:
		s.Kind, s.PC, s.Version = vmruntime.Compiled, g.Kernel.CodeLow+uint64(f.CodeOffset()), f.CompileID()
	case bpf.FrameStub:
		s.Kind, s.PC = vmruntime.Stub, g.Kernel.CodeLow+uint64(f.CodeOffset())
	case bpf.FrameInterpreted:
		s.Kind, s.Method, s.BCI = vmruntime.Interpreted, f.Method(), f.BCI()
	}
	return s
}

// codeIndexAge is how old the list of compilations may be by which addresses are looked up.
const codeIndexAge = time.Second

// A codeIndex says which compilation is at an address of a VM's code. Samples say themselves which
// one they were taken in; the index is for what has nothing but an address, such as the CPU's
// branch records. It is only right while the code stays.
type codeIndex struct {
	made time.Duration // CLOCK_MONOTONIC
	list []vmruntime.Compilation
}

// covers reports whether an address is in the VM's code cache. A worker has g, which may be nil.
func (g *VM) covers(pc uint64) bool {
	return g != nil && pc >= g.Kernel.CodeLow && pc < g.Kernel.CodeHigh
}

// at returns the compilation at an address.
func (x *codeIndex) at(g *VM, pc uint64) (vmruntime.Compilation, bool) {
	if now := proc.Monotonic(); x.made == 0 || now-x.made > codeIndexAge {
		x.made, x.list = now, x.list[:0]
		code, err := As[vmruntime.CallCounter](g)
		if err != nil {
			return vmruntime.Compilation{}, false
		}
		err = code.Compilations(func(c vmruntime.Compilation) bool {
			x.list = append(x.list, c)
			return true
		})
		if err != nil {
			x.list = x.list[:0]
		}
		slices.SortFunc(x.list, func(a, b vmruntime.Compilation) int { return cmp.Compare(a.Begin, b.Begin) })
	}
	i, found := slices.BinarySearchFunc(x.list, pc, func(c vmruntime.Compilation,
		pc uint64) int {
		return cmp.Compare(c.Begin, pc)
	})
	if !found {
		i--
	}
	if i < 0 || pc >= x.list[i].End {
		return vmruntime.Compilation{}, false
	}
	return x.list[i], true
}

// nameAddress names an address in the VM's code: as that of the compilation that is there now, or
// of a stub.
func (rs *Resolver) nameAddress(p *Process, r Wanted) Name {
	g := p.work.vm
	offset := uint64(uint32(r.Frame.PC() - g.Kernel.CodeLow))
	r.Frame, r.Kind = bpf.Frame(uint64(bpf.FrameStub)<<60|offset), RawExact
	if c, ok := g.index.at(g, g.Kernel.CodeLow+offset); ok {
		r.Frame = bpf.Frame(uint64(bpf.FrameJIT)<<60 | uint64(c.Version&0xfffffff)<<32 | offset)
	}
	return rs.nameVMFrame(p, r)
}
