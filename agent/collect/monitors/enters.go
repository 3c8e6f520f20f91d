package monitors

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of Enters.
const (
	enterGuests  = 4           // watched JVMs, the busiest ones
	enterMethods = 128         // compiled versions of each that are searched, the hottest
	surveyTime   = time.Second // for a survey of them; there is one per this time
	enterFade    = 0.1         // part of samples forgotten every second: what is hot stays long enough to be surveyed
)

// enterWhat is EventLabels.What of uncontended acquisitions of monitors.
const enterWhat = "enter"

// Enters is the source of uncontended lock acquisitions: how often hot compiled code acquires free
// monitors.
type Enters struct {
	source.Passive
	*source.Services
	fades    func() bool // whether another source fades the counts of busy code
	listener *Listener
	share    float64

	mu      sync.Mutex
	engine  *Engine                  // nil before it is started
	codeLow map[*fold.Process]uint64 // where the code of watched JVMs begins

	// The engine's goroutine owns these.
	guests map[proc.Identity]*enterGuest
}

// maxEnterGuests bounds the state of JVMs.
const maxEnterGuests = 256

// An enterGuest is the state of a watched JVM.
type enterGuest struct {
	process *fold.Process
	codeLow uint64
	found   map[Place][]Site  // by beginning and version of the searched code
	classes map[uint64]string // names by address
	epoch   uint32            // how many times classes were unloaded
	refused bool
}

// EntersOptions connect Enters to the source of events.
type EntersOptions struct {
	Heaps *ebpf.Map   // the layout of objects of JVMs: bpf.ProbeObjects.Heaps
	Share float64     // part of the JVMs' CPU time for watching
	Fades func() bool // reports whether another source fades the counts of busy code
}

// OpenEnters loads the kernel side. It fails if hardware breakpoints cannot be used.
func OpenEnters(services *source.Services, opt EntersOptions) (*Enters, error) {
	l, err := openChecked(services, opt.Heaps)
	if err != nil {
		return nil, fmt.Errorf("monitor enters cannot be recorded (remove --monitor-enters): %w", err)
	}
	return &Enters{
		Services: services, listener: l, share: opt.Share, fades: opt.Fades, guests: map[proc.Identity]*enterGuest{},
		codeLow: map[*fold.Process]uint64{},
	}, nil
}

func openChecked(services *source.Services, heaps *ebpf.Map) (*Listener, error) {
	if err := services.Breakpoints.Check(); err != nil {
		return nil, err
	}
	return Open(services.Objects, heaps, services.Watcher)
}

// Start begins to watch.
func (m *Enters) Start(context.Context) error {
	e := NewEngine(m.listener, m, Options{Share: m.share, Root: m.Root, Now: proc.Monotonic, Log: m.Log})
	m.mu.Lock()
	m.engine = e
	m.mu.Unlock()
	return nil
}

func (m *Enters) Stop() error {
	m.mu.Lock()
	e := m.engine
	m.mu.Unlock()
	if e != nil {
		e.Close()
	}
	return nil
}

func (m *Enters) Close() error   { return m.listener.Close() }
func (m *Enters) NeedsHot() bool { return true }

// Guests implements Source. It returns the busiest JVMs, with the places where their hottest code
// acquires monitors.
func (m *Enters) Guests(ctx context.Context) (guests []Guest) {
	ctx, cancel := context.WithTimeout(ctx, surveyTime)
	defer cancel()
	fade := enterFade
	if m.fades() {
		fade = 0 // the engine that counts does it
	}
	for _, b := range m.Busiest(enterGuests, fade, surveyTime) {
		if g, err := m.guest(ctx, b); err == nil && len(g.Sites) > 0 {
			guests = append(guests, g)
		}
	}
	m.forget()
	return guests
}

// Failed implements Source.
func (m *Enters) Failed(id proc.Identity, err error) { m.ListenFailed(id, err) }

// forget drops the state of JVMs that have ended, once there are many: windows may still need some.
func (m *Enters) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, g := range m.guests {
		if len(m.guests) > maxEnterGuests && g.process.Exited.Load() {
			delete(m.guests, id)
			delete(m.codeLow, g.process)
		}
	}
}

// guest finds the sites of one JVM. Code that was searched before is not searched again.
func (m *Enters) guest(ctx context.Context, b fold.Busy) (Guest, error) {
	id := b.Process.Identity() // b.Identity becomes more precise over time
	own := m.guests[id]
	if own == nil {
		own = &enterGuest{process: b.Process, found: map[Place][]Site{}, classes: map[uint64]string{}}
		m.guests[id] = own
	}
	if own.refused {
		return Guest{}, nil
	}
	type searched struct {
		guest Guest
		own   enterGuest
	}
	before := own.found
	done := make(chan searched, 1)
	err := m.Resolver.WithVM(ctx, b.Process.Process, func(vm *guest.VM) error {
		s := searched{Guest{Identity: id, Memory: vm.Memory}, enterGuest{codeLow: vm.CodeLow(),
			found: map[Place][]Site{}}}
		for _, c := range b.Top.Hottest(enterMethods) {
			sites, err := monitorSites(vm, c.Frame, before, s.own.found)
			if errors.Is(err, probesite.ErrLightweightLocking) {
				s.own.refused = true
				b.Process.Note(fmt.Sprintf("monitor enters of process %d are not recorded: %v", b.Process.PID, err))
				break
			}
			if err == nil {
				s.guest.Sites = append(s.guest.Sites, sites...)
			}
		}
		done <- s
		return nil
	})
	if err != nil {
		return Guest{}, err
	}
	s := <-done
	own.codeLow, own.found, own.refused = s.own.codeLow, s.own.found, s.own.refused
	m.mu.Lock()
	m.codeLow[b.Process] = own.codeLow
	m.mu.Unlock()
	if own.refused {
		return Guest{}, nil
	}
	return s.guest, nil
}

// monitorSites finds the monitor acquisitions in the compilation that contains f, from earlier
// searches or in its code.
func monitorSites(g *guest.VM, f bpf.Frame, before, found map[Place][]Site) ([]Site, error) {
	vm, err := guest.As[VM](g)
	if err != nil {
		return nil, err
	}
	c, err := vm.Compilation(g.Site(f, true, 0))
	if err != nil || c.Tier == vmruntime.TierNative {
		return nil, err
	}
	key := Place{Address: c.Begin, Version: c.Version}
	sites, known := before[key]
	if !known {
		if sites, err = Find(g.Memory, c, vm.FeatureRelease()); err != nil {
			return nil, err
		}
	}
	found[key] = sites
	return sites, nil
}

// maxEnterClasses bounds the cached names of classes of a process.
const maxEnterClasses = 1 << 12

// Take implements Source. It names classes, and folds contexts as events whose values are set when
// a window closes.
func (m *Enters) Take(ctx context.Context, h *Observed) error {
	own := m.guests[h.Guest]
	if own == nil {
		return proc.ErrGone
	}
	if err := m.nameClasses(ctx, own, h); err != nil {
		return err
	}
	var o bpf.Observation
	for _, walk := range h.Result.Walks {
		if walk.Hit >= len(h.Result.Hits) || bpf.DecodeObservation(walk.Record, &o) != nil {
			continue
		}
		hit := h.Result.Hits[walk.Hit]
		place := h.Window.Sites[hit.Site].Place
		if len(o.User) == 0 || o.User[0] != enterFrame(place, own.codeLow) {
			return watch.ErrChanged // other code was there
		}
		m.fold(own.process, &o, h.Classes[hit.Klass])
	}
	return nil
}

// fold adds the context of a hit to the open windows.
func (m *Enters) fold(p *fold.Process, o *bpf.Observation, class string) {
	e := fold.Event{
		Kind: profile.Locks, TID: o.Tid, Thread: p.NameOf(o.Tid, o.Comm), Comm: o.Comm,
		Stack:  guest.AppendStack(nil, &o.Sample, p.Attachment.Load()),
		Labels: profile.EventLabels{Class: class, What: enterWhat}, Sums: fold.EventSums{Events: 1},
	}
	m.Owner.Do(func(s *fold.State) { s.AddEvent(p, o.Pid, o.ClassEpoch, &e) })
}

// nameClasses names the classes of all hits. Addresses are valid until classes are unloaded.
func (m *Enters) nameClasses(ctx context.Context, own *enterGuest, h *Observed) error {
	h.Classes = map[uint64]string{}
	epoch := m.Resolver.ClassEpochOf(own.process.Process)
	if epoch != own.epoch || len(own.classes) > maxEnterClasses {
		clear(own.classes)
		own.epoch = epoch
	}
	var unknown []uint64
	for _, hit := range h.Result.Hits {
		name, known := own.classes[hit.Klass]
		h.Classes[hit.Klass] = name
		if !known && hit.Klass != 0 && !slices.Contains(unknown, hit.Klass) {
			unknown = append(unknown, hit.Klass)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	names, err := m.Resolver.ClassNames(ctx, own.process.Process, slices.Values(unknown))
	if err != nil {
		return err
	}
	for klass, name := range names {
		h.Classes[klass], own.classes[klass] = name, name
	}
	return nil
}
