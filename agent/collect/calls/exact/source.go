package exact

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A Counted is what sources that count the calls of one JVM share. They count the calls of the
// first JVM that they are given, from when the agent finds it until its window is closed.
type Counted struct {
	source.Passive
	*source.Services
	fatal   chan error    // why counting failed; capacity 1
	process *fold.Process // only functions that have the State use it
}

// NewCounted returns a Counted without a JVM.
func NewCounted(services *source.Services) Counted {
	return Counted{Services: services, fatal: make(chan error, 1)}
}

// Take returns the worker's process if it is to be counted: it is wanted, and the first one.
// Otherwise it returns nil.
func (c *Counted) Take(t *guest.Process) (p *fold.Process) {
	if !c.Wanted(t.PID) {
		return nil
	}
	taken := false
	c.Owner.Do(func(s *fold.State) {
		if p = s.Lookup(t); p == nil {
			return
		}
		if taken = c.process != nil; !taken {
			c.process = p
		}
	})
	if taken {
		c.Log.Warn("only one JVM's calls are counted; ignoring another JVM", "pid", t.PID)
		return nil
	}
	return p
}

// Counts returns the process whose calls are counted; nil if there is none.
func (c *Counted) Counts(*fold.State) *fold.Process { return c.process }

// Failed implements source.Failer.
func (c *Counted) Failed() <-chan error { return c.fatal }

// Fail ends the agent's Run, because the calls of p cannot be counted.
func (c *Counted) Fail(p *fold.Process, err error) {
	select {
	case c.fatal <- fmt.Errorf("count the calls of process %d: %w", p.PID, err):
	default:
	}
}

// ErrNothingCounted says why there is no profile.
var ErrNothingCounted = errors.New("the calls of no JVM were counted: it ended before, or the agent cannot attach to " +
	"it (vmprof-agent doctor lists supported JVMs)")

// edgesEngine is the engine name of edges that were all counted; the whole contexts in a Profile's
// CallCounts need no name.
const edgesEngine = "exact edges"

// A Source counts every call of the first JVM that it is given, until the window is closed.
type Source struct {
	Counted
	edges   bool // the call graph, with the places of calls; otherwise whole contexts
	objects bool // objects that are allocated in these are counted, too
	heaps   guest.PerProcess[bpf.HotspotHeap]

	// Only functions that have the State use these.
	recorder *Recorder
	halves   *Halves
	methods  map[guest.RawFrame]struct{} // methods that were announced: their names are kept
}

// New returns a source for the call graph with call sites, or for the complete calling context tree
// of each thread. With objects it also counts the objects that are allocated in each context.
func New(services *source.Services, edges, objects bool) *Source {
	return &Source{Counted: NewCounted(services), edges: edges, objects: objects,
		methods: map[guest.RawFrame]struct{}{}}
}

// Announce keeps the layout of objects in p's VM.
func (x *Source) Announce(p *guest.Process, heap *bpf.HotspotHeap, serial uint32) error {
	if x.objects && heap != nil && x.Wanted(p.PID) {
		kept := x.heaps.Get(p)
		*kept = *heap
		kept.Serial = serial
	}
	return nil
}

// Leave forgets a process that has ended.
func (x *Source) Leave(p *guest.Process) { x.heaps.Forget(p) }

// Attached starts to count the calls of a process whose VM was just attached. It runs on a worker.
func (x *Source) Attached(t *guest.Process, g *guest.VM, lib *proc.Mapping) {
	p := x.Take(t)
	if p == nil {
		return
	}
	r, err := x.begin(p, g, lib)
	if err != nil {
		x.Fail(p, err)
		return
	}
	x.Owner.Do(func(*fold.State) { x.recorder, x.halves = r, r.Halve() })
	x.Log.Debug("calls are counted", "pid", p.PID)
}

func (x *Source) begin(p *fold.Process, g *guest.VM, lib *proc.Mapping) (*Recorder, error) {
	vm, err := guest.As[VM](g)
	if err != nil {
		return nil, err
	}
	if err := Check(vm); err != nil {
		return nil, err
	}
	opt := Options{PID: p.PID, NoEdges: !x.edges}
	if x.objects {
		if err := CheckObjects(vm); err != nil {
			return nil, err
		}
		if opt.Heap = x.heaps.Get(p.Process); opt.Heap.Serial == 0 {
			return nil, errHeap
		}
	}
	return guest.Call(x.Resolver, p.Process, func() (*Recorder, error) {
		f, err := x.Root.OpenMapped(p.PID, lib, guest.MaxLibrary)
		x.Resolver.CountRead(err)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		file, err := elffile.OpenFile(f)
		if err != nil {
			return nil, fmt.Errorf("read the library of the VM: %w", err)
		}
		sites, err := FindSites(file, f)
		if err != nil {
			return nil, err
		}
		if x.objects {
			if sites.Objects, err = FindObjectSites(file, f); err != nil {
				return nil, err
			}
		}
		return Start(x.Objects, f, sites, opt)
	})
}

// HandleNewMethod requests the method's name while the method exists.
func (x *Source) HandleNewMethod(s *fold.State, raw []byte) {
	s.Events++
	m, err := bpf.DecodeMethodSeen(raw)
	if err != nil {
		return
	}
	p := s.Process(m.Header)
	if p != x.process {
		return
	}
	r := methodFrame(Method{Addr: m.Method, Epoch: m.ClassEpoch})
	x.methods[r] = struct{}{}
	s.Want(p, []guest.RawFrame{r}, m.ClassEpoch)
}

func methodFrame(m Method) guest.RawFrame {
	return guest.RawFrame{Frame: m.Frame(), Epoch: m.Epoch, Kind: guest.RawReturn}
}

func siteFrame(s Site) guest.RawFrame {
	r := guest.RawFrame{Frame: s.Frame, Kind: guest.RawReturn}
	if s.Frame.Kind() == bpf.FrameInterpreted {
		r.Epoch = s.Epoch
	}
	return r
}

// finish ends the counting. It returns the counts, their process, and a note on the time that they
// cover. It fails if nothing could be counted. The names of call sites are requested and may still
// be missing.
func (x *Source) finish() (_ *Recording, _ *fold.Process, note string, err error) {
	var r *Recorder
	var p *fold.Process
	var halves *Halves
	x.Owner.Do(func(*fold.State) {
		r, p, halves = x.recorder, x.process, x.halves
		x.halves = nil
	})
	if r == nil {
		return nil, nil, "", ErrNothingCounted
	}
	var middle *Snapshot
	if halves != nil {
		middle = halves.End()
	}
	if err := r.Stop(); err != nil {
		return nil, nil, "", fmt.Errorf("end counting: %w", err)
	}
	s, err := r.Snapshot()
	if err != nil {
		return nil, nil, "", fmt.Errorf("read counts: %w", err)
	}
	methods, err := r.Methods() // announcements may have been lost
	if err != nil {
		return nil, nil, "", fmt.Errorf("read methods: %w", err)
	}
	recording := s.Since(nil)
	x.Owner.Do(func(s *fold.State) {
		for _, m := range methods {
			s.Want(p, []guest.RawFrame{methodFrame(m)}, m.Epoch)
		}
		if x.edges {
			for e := range recording.Graph.Edges() {
				if e.Site.Frame != 0 {
					s.Want(p, []guest.RawFrame{siteFrame(e.Site)}, e.Site.Epoch)
				}
			}
		}
	})
	x.Resolver.Submit(p.Process)
	return recording, p, s.PhaseNote(middle), nil
}

// End closes the window, with everything counted since the agent began.
func (x *Source) End(ctx context.Context, begin func() *profile.Profile) (*profile.Profile, error) {
	recording, p, note, err := x.finish()
	if err != nil {
		return nil, err
	}
	out := begin()
	x.Resolver.Wait(ctx, fold.Targets([]*fold.Process{p}), nameDeadline)
	part := x.profile(p, recording)
	out.Processes = []*profile.Process{part}
	out.Comments = append(out.Comments, fmt.Sprintf("exact: %d calls counted", recording.Calls))
	if x.objects {
		classes, unnamed, err := x.nameClasses(ctx, p, recording)
		if err != nil {
			out.Comments = append(out.Comments, fmt.Sprintf("allocated objects have no class: %v", err))
		}
		out.Comments = append(out.Comments, objectNotes(recording, unnamed)...)
		part.Events = []*profile.Events{x.allocations(p, recording, classes)}
	}
	out.Comments = append(out.Comments, recording.Losses.Notes()...)
	if note != "" {
		out.Comments = append(out.Comments, note)
	}
	return out, nil
}

// nameDeadline is how long the end of an exact recording waits for names, at worst those of all
// call sites.
const nameDeadline = 30 * time.Second

// profile makes the counted process's part of a profile.
func (x *Source) profile(p *fold.Process, r *Recording) *profile.Process {
	out := fold.ProfileOf(p.Process)
	resolved := p.Names()
	defer resolved.Close()
	names := foundNames{resolved}
	if x.edges {
		out.Calls = []*profile.Calls{{Engine: edgesEngine, Basis: profile.Counted, Graph: Logical(r.Graph, names)}}
		return out
	}
	for _, t := range r.Threads {
		tree := cct.Map(t.Tree, func(m Method) []symbol.Symbol { return []symbol.Symbol{names.Method(m)} })
		out.Threads = append(out.Threads, &profile.Thread{TID: t.TID, Name: symbol.CleanName(t.Name), Tree: tree})
	}
	return out
}

// allocations makes the counted process's part of a profile of allocations.
func (x *Source) allocations(p *fold.Process, r *Recording, classes map[Class]string) *profile.Events {
	resolved := p.Names()
	defer resolved.Close()
	return allocationsOf(r, foundNames{resolved}.Method, classes)
}

// foundNames names the methods and places of a process's counts.
type foundNames struct{ guest.Names }

// Method implements Names.
func (n foundNames) Method(m Method) symbol.Symbol {
	if text := m.Marker(); text != "" {
		return guest.Marker(text)
	}
	if s := n.Lookup(methodFrame(m)).Symbols; len(s) > 0 {
		return guest.MethodOf(s[len(s)-1])
	}
	return guest.Marker("[unknown]")
}

// Places implements Names.
func (n foundNames) Places(s Site) (places []Place) {
	name := n.Lookup(siteFrame(s))
	if name.Stale || name.Unknown {
		return nil
	}
	for i := range name.Symbols {
		places = append(places, Place{Method: guest.MethodOf(name.Symbols[i]), Site: fold.SiteOf(name, i)})
	}
	return places
}

// NeedNames implements source.Namer: announced methods may be unloaded before they are named.
func (x *Source) NeedNames(_ *fold.State, of fold.NamesOf) {
	if x.process == of.Process {
		for r := range x.methods {
			of.Need(r)
		}
	}
}

// Close ends the counting if it has begun.
func (x *Source) Close() error {
	if x.recorder == nil {
		return nil
	}
	if x.halves != nil {
		x.halves.End()
	}
	return x.recorder.Close()
}
