package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/monitors"
	"github.com/vmprof-agent/vmprof-agent/agent/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of monitorEnters.
const (
	enterGuests  = 4   // JVMs that are watched, the busiest
	enterMethods = 128 // compiled versions of each that are searched, the hottest
	enterFade    = 0.1 // of what was sampled, every second: what is hot stays long enough to be surveyed
)

// enterWhat is EventLabels.What of acquisitions of monitors.
const enterWhat = "enter"

// monitorEnters records how often hot compiled code enters monitors (package monitors).
type monitorEnters struct {
	passive
	agent    *Agent
	listener *monitors.Listener
	share    float64

	mu      sync.Mutex
	engine  *monitors.Engine         // nil before it was started
	codeLow map[*fold.Process]uint64 // where the code of JVMs that were watched begins

	// These belong to the engine's goroutine.
	guests map[proc.Identity]*enterGuest
}

// maxEnterGuests bounds the JVMs that are remembered.
const maxEnterGuests = 256

// An enterGuest is what is known of a JVM that is watched.
type enterGuest struct {
	process *fold.Process
	codeLow uint64
	found   map[monitors.Place][]monitors.Site // by begin and version of the code that was searched
	classes map[uint64]string                  // names by address
	epoch   uint32                             // of classes: how often some were unloaded
	refused bool
}

func newMonitorEnters(a *Agent) (*monitorEnters, error) {
	if !a.events.Options.Kinds[profile.Locks] {
		return nil, errors.New("monitor enters need lock recording (-e lock)")
	}
	if err := a.opt.Breakpoints.Check(); err != nil {
		return nil, fmt.Errorf("monitor enters cannot be recorded (remove --monitor-enters): %w", err)
	}
	l, err := monitors.Open(a.objects, a.events.Programs.Heaps, a.watcher)
	if err != nil {
		return nil, fmt.Errorf("monitor enters cannot be recorded (remove --monitor-enters): %w", err)
	}
	share := a.events.FairShare()
	return &monitorEnters{agent: a, listener: l, share: share, guests: map[proc.Identity]*enterGuest{}, codeLow: map[*fold.Process]uint64{}}, nil
}

// start begins to watch.
func (m *monitorEnters) start(context.Context) error {
	e := monitors.NewEngine(m.listener, m, monitors.Options{Share: m.share, Root: m.agent.root, Now: monotonic, Log: m.agent.log})
	m.mu.Lock()
	m.engine = e
	m.mu.Unlock()
	return nil
}

func (m *monitorEnters) stop() error {
	m.mu.Lock()
	e := m.engine
	m.mu.Unlock()
	if e != nil {
		e.Close()
		m.agent.log.Debug("watched monitor enters", "stats", e.Stats())
	}
	return nil
}

func (m *monitorEnters) close() error  { return m.listener.Close() }
func (m *monitorEnters) needTop() bool { return true }

// Guests implements monitors.Source: the busiest JVMs, and where their hottest code enters monitors.
func (m *monitorEnters) Guests(ctx context.Context) (guests []monitors.Guest) {
	ctx, cancel := context.WithTimeout(ctx, hotInterval)
	defer cancel()
	fade := enterFade
	if m.agent.engines != nil && m.agent.engines.needTop() {
		fade = 0 // the engine that counts does it
	}
	for _, b := range m.agent.busyGuests(enterGuests, fade) {
		if g, err := m.guest(ctx, b); err == nil && len(g.Sites) > 0 {
			guests = append(guests, g)
		}
	}
	m.forget()
	return guests
}

// Failed implements monitors.Source.
func (m *monitorEnters) Failed(id proc.Identity, err error) { m.agent.listenFailed(id, err) }

// forget drops what is known of JVMs that are gone, once they are many: windows may still ask for some.
func (m *monitorEnters) forget() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for id, g := range m.guests {
		if len(m.guests) > maxEnterGuests && g.process.Exited.Load() {
			delete(m.guests, id)
			delete(m.codeLow, g.process)
		}
	}
}

// guest finds the sites of one JVM. What was searched before is not searched again.
func (m *monitorEnters) guest(ctx context.Context, b busyGuest) (monitors.Guest, error) {
	id := b.Process.Identity() // b.id becomes more precise in time
	own := m.guests[id]
	if own == nil {
		own = &enterGuest{process: b.Process, found: map[monitors.Place][]monitors.Site{}, classes: map[uint64]string{}}
		m.guests[id] = own
	}
	if own.refused {
		return monitors.Guest{}, nil
	}
	type searched struct {
		guest monitors.Guest
		own   enterGuest
	}
	before := own.found
	done := make(chan searched, 1)
	err := m.agent.resolver.WithVM(ctx, b.Process.Process, func(vm *target.VM) error {
		s := searched{monitors.Guest{Identity: id, Memory: vm.Memory}, enterGuest{codeLow: vm.CodeLow(), found: map[monitors.Place][]monitors.Site{}}}
		for _, c := range b.top.Hottest(enterMethods) {
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
		return monitors.Guest{}, err
	}
	s := <-done
	own.codeLow, own.found, own.refused = s.own.codeLow, s.own.found, s.own.refused
	m.mu.Lock()
	m.codeLow[b.Process] = own.codeLow
	m.mu.Unlock()
	if own.refused {
		return monitors.Guest{}, nil
	}
	return s.guest, nil
}

// monitorSites finds where the compilation that f is in enters monitors, by what was found before or by its code.
func monitorSites(g *target.VM, f bpf.Frame, before, found map[monitors.Place][]monitors.Site) ([]monitors.Site, error) {
	vm, err := target.As[monitors.VM](g)
	if err != nil {
		return nil, err
	}
	c, err := vm.Compilation(g.Site(f, true, 0))
	if err != nil || c.Tier == vmruntime.TierNative {
		return nil, err
	}
	key := monitors.Place{Address: c.Begin, Version: c.Version}
	sites, known := before[key]
	if !known {
		if sites, err = monitors.Find(g.Memory, c, vm.FeatureRelease()); err != nil {
			return nil, err
		}
	}
	found[key] = sites
	return sites, nil
}
