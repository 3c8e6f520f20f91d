package agent

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// Exact says what is kept of every call of one JVM.
type Exact uint8

const (
	NotExact      Exact = iota
	ExactContexts       // the complete calling context tree of each thread
	ExactEdges          // the call graph, with the places of calls
	ExactCounters       // the call graph that the JVM's own code counts
)

// An exactEngine counts the calls of one JVM from when the agent finds it until its window is closed.
// Its method attached starts to count the calls of a process, and failed says why nothing can be counted.
type exactEngine interface {
	source
	// end closes the window, with all that was counted.
	end(context.Context, *Window) (*profile.Profile, error)
}

// exactEngine is the one that counts calls; nil if they are not counted.
func (a *Agent) exactEngine() exactEngine {
	for source := range a.sources.all() {
		if x, ok := source.(exactEngine); ok {
			return x
		}
	}
	return nil
}

func newExactEngine(a *Agent, mode Exact) exactEngine {
	if mode == ExactCounters {
		return newExactCounters(a)
	}
	return newExactCount(a, mode)
}

// A countedJVM is the first JVM that an exactEngine is given.
type countedJVM struct {
	passive
	agent   *Agent
	fatal   chan error    // why nothing can be counted; holds one
	process *fold.Process // guarded by agent.mu
}

func newCountedJVM(a *Agent) countedJVM { return countedJVM{agent: a, fatal: make(chan error, 1)} }

// take reports whether p is to be counted: it is wanted, and the first one.
func (c *countedJVM) take(p *fold.Process) bool {
	a := c.agent
	if !a.wanted(p.PID) {
		return false
	}
	a.mu.Lock()
	taken := c.process != nil
	if !taken {
		c.process = p
	}
	a.mu.Unlock()
	if taken {
		a.log.Warn("only one JVM's calls are counted; ignoring another JVM", "pid", p.PID)
	}
	return !taken
}

func (c *countedJVM) failed() <-chan error { return c.fatal }

func (c *countedJVM) fail(p *fold.Process, err error) {
	select {
	case c.fatal <- fmt.Errorf("count the calls of process %d: %w", p.PID, err):
	default:
	}
}

// errNothingCounted is why there is no profile.
var errNothingCounted = errors.New("the calls of no JVM were counted: it ended before, or the agent cannot attach to it (vmprof-agent doctor lists supported JVMs)")

// exactEdges is the engine of edges that were all counted; the whole contexts of a Profile in CallCounts need none.
const exactEdges = "exact edges"

// An exactCount counts every call of the first JVM that it is given, until the window is closed.
type exactCount struct {
	countedJVM
	mode Exact

	// Guarded by agent.mu.
	recorder *exact.Recorder
	halves   *exact.Halves
	methods  map[target.RawFrame]struct{} // that were announced: their names are kept
}

func newExactCount(a *Agent, mode Exact) *exactCount {
	return &exactCount{countedJVM: newCountedJVM(a), mode: mode, methods: map[target.RawFrame]struct{}{}}
}

// Attached starts to count the calls of p, whose VM was attached just now. A worker has p.
func (x *exactCount) Attached(t *target.Process, g *target.VM, lib *proc.Mapping) {
	p := x.agent.processOfTarget(t)
	if p == nil || !x.take(p) {
		return
	}
	r, err := x.begin(p, g, lib)
	if err != nil {
		x.fail(p, err)
		return
	}
	x.agent.mu.Lock()
	defer x.agent.mu.Unlock()
	x.recorder, x.halves = r, r.Halve()
}

func (x *exactCount) begin(p *fold.Process, g *target.VM, lib *proc.Mapping) (*exact.Recorder, error) {
	vm, err := target.As[exact.VM](g)
	if err != nil {
		return nil, err
	}
	if err := exact.Check(vm); err != nil {
		return nil, err
	}
	a := x.agent
	return target.Call(a.resolver, p.Process, func() (*exact.Recorder, error) {
		f, err := a.root.OpenMapped(p.PID, lib, target.MaxLibrary)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("read library of the VM: %w", err)
		}
		file, err := elffile.Open(f, st.Size())
		if err != nil {
			return nil, fmt.Errorf("read library of the VM: %w", err)
		}
		sites, err := exact.FindSites(file, f)
		if err != nil {
			return nil, err
		}
		return exact.Start(a.objects, f, sites, exact.Options{PID: p.PID, NoEdges: x.mode != ExactEdges})
	})
}

// handleNewMethod has a method named that exactCount counts calls of; mu is held.
func (a *Agent) handleNewMethod(raw []byte) bool {
	a.received.events++
	if m, err := bpf.DecodeMethodSeen(raw); err == nil {
		if x, ok := a.exactEngine().(*exactCount); ok {
			x.onNewMethod(m)
		}
	}
	return true
}

// onNewMethod has a method named while it is there; agent.mu is held.
func (x *exactCount) onNewMethod(m bpf.MethodSeen) {
	a := x.agent
	p := a.process(m.Header)
	if p != x.process {
		return
	}
	r := methodFrame(exact.Method{Addr: m.Method, Epoch: m.ClassEpoch})
	x.methods[r] = struct{}{}
	if p.Want([]target.RawFrame{r}, m.ClassEpoch, &a.nameCount) {
		a.dirty[p] = struct{}{}
	}
}

func methodFrame(m exact.Method) target.RawFrame {
	return target.RawFrame{Frame: m.Frame(), Epoch: m.Epoch, Kind: target.RawReturn}
}

func siteFrame(s exact.Site) target.RawFrame {
	r := target.RawFrame{Frame: s.Frame, Kind: target.RawReturn}
	if s.Frame.Kind() == bpf.FrameInterpreted {
		r.Epoch = s.Epoch
	}
	return r
}

// finish ends the counting, and returns what was counted, of which process, and what a reader must know of when that was. It fails
// if there was nothing to count. The places of calls are on their way to be named.
func (x *exactCount) finish() (_ *exact.Recording, _ *fold.Process, note string, err error) {
	a := x.agent
	a.mu.Lock()
	r, p, halves := x.recorder, x.process, x.halves
	x.halves = nil
	a.mu.Unlock()
	if r == nil {
		return nil, nil, "", errNothingCounted
	}
	var middle *exact.Snapshot
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
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range methods {
		p.Want([]target.RawFrame{methodFrame(m)}, m.Epoch, &a.nameCount)
	}
	if x.mode == ExactEdges {
		for e := range recording.Graph.Edges() {
			if e.Site.Frame != 0 {
				p.Want([]target.RawFrame{siteFrame(e.Site)}, e.Site.Epoch, &a.nameCount)
			}
		}
	}
	a.resolver.Submit(p.Process)
	return recording, p, s.PhaseNote(middle), nil
}

// end closes the window: with all that was counted since the agent began.
func (x *exactCount) end(ctx context.Context, w *Window) (*profile.Profile, error) {
	a := x.agent
	recording, p, note, err := x.finish()
	if err != nil {
		return nil, err
	}
	out := a.exactProfile(w)
	a.resolver.Wait(ctx, fold.Targets([]*fold.Process{p}), exactNameDeadline)
	out.Processes = []*profile.Process{x.profile(p, recording)}
	out.Comments = append(out.Comments, fmt.Sprintf("exact: %d calls counted", recording.Calls))
	out.Comments = append(out.Comments, recording.Losses.Notes()...)
	if note != "" {
		out.Comments = append(out.Comments, note)
	}
	return out, nil
}

// exactProfile closes w, and is its profile before anything is in it.
func (a *Agent) exactProfile(w *Window) *profile.Profile {
	end := time.Now()
	a.mu.Lock()
	after := a.snapshot()
	delete(a.windows, w)
	a.closing[w] = struct{}{}
	a.mu.Unlock()
	out := a.newProfile(w, end, after)
	out.Unit = profile.CallCounts
	return out
}

// exactNameDeadline is how long the end of an exact recording waits for names: of all places of calls, if need be.
const exactNameDeadline = 30 * time.Second

// profile makes the counted process's part of a profile.
func (x *exactCount) profile(p *fold.Process, r *exact.Recording) *profile.Process {
	out := fold.ProfileOf(p.Process)
	resolved := p.Names()
	defer resolved.Close()
	names := exactNames{resolved}
	if x.mode == ExactEdges {
		out.Calls = []*profile.Calls{{Engine: exactEdges, Basis: profile.Counted, Graph: exact.Logical(r.Graph, names)}}
		return out
	}
	for _, t := range r.Threads {
		tree := cct.Map(t.Tree, func(m exact.Method) []symbolize.Symbol { return []symbolize.Symbol{names.Method(m)} })
		out.Threads = append(out.Threads, &profile.Thread{TID: t.TID, Name: symbolize.CleanName(t.Name), Tree: tree})
	}
	return out
}

// exactNames names what was counted of a process.
type exactNames struct{ target.Names }

// Method implements exact.Names.
func (n exactNames) Method(m exact.Method) symbolize.Symbol {
	if text := m.Marker(); text != "" {
		return target.Marker(text)
	}
	if s := n.Of(methodFrame(m)).Symbols; len(s) > 0 {
		return target.MethodOf(s[len(s)-1])
	}
	return target.Marker("[unknown]")
}

// Places implements exact.Names.
func (n exactNames) Places(s exact.Site) (places []exact.Place) {
	name := n.Of(siteFrame(s))
	if name.Stale || name.Unknown {
		return nil
	}
	for i := range name.Symbols {
		places = append(places, exact.Place{Method: target.MethodOf(name.Symbols[i]), Site: fold.SiteOf(name, i)})
	}
	return places
}

func (x *exactCount) needNames(p *fold.Process, need func(target.RawFrame)) {
	if x.process == p {
		for r := range x.methods {
			need(r)
		}
	}
}

func (x *exactCount) close() error {
	if x.recorder == nil {
		return nil
	}
	if x.halves != nil {
		x.halves.End()
	}
	return x.recorder.Close()
}
