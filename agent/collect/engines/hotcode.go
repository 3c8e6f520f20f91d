package engines

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of hotCode.
const (
	hotGuests   = 8  // watched processes
	hotMethods  = 48 // entries of each
	hotInterval = time.Second
	hotFade     = 0.2 // part of past samples that is forgotten every interval
)

// A hotCode finds where calls of the hottest code of the busiest processes arrive. It is the
// listener engine's source.
type hotCode struct {
	engines *Engines
	name    string // name of the engine that it serves

	// The goroutine that requests entries owns the rest.
	guests []hotGuest // the busiest first
	turn   int        // guests handed out so far, in turn
	made   time.Time
}

type hotGuest struct {
	guest   listener.Guest
	entries []listener.Entry
}

// Next implements listener.Source: processes take turns.
func (h *hotCode) Next() (listener.Guest, []listener.Entry, bool) {
	if time.Since(h.made) > hotInterval {
		h.refresh()
		h.made = time.Now()
	}
	if len(h.guests) == 0 {
		return listener.Guest{}, nil, false
	}
	h.turn++
	g := h.guests[h.turn%len(h.guests)]
	return g.guest, g.entries, true
}

// Failed implements listener.Source.
func (h *hotCode) Failed(id proc.Identity, err error) { h.engines.ListenFailed(id, err) }

// refresh finds out where calls of the hottest code arrive.
func (h *hotCode) refresh() {
	h.guests = h.guests[:0]
	ctx, cancel := context.WithTimeout(context.Background(), hotInterval)
	defer cancel()
	if h.engines.estimator == nil { // otherwise the estimator handles JVMs
		for _, b := range h.engines.Busiest(hotGuests, hotFade, hotInterval) {
			h.addVM(ctx, b)
		}
	}
	for _, b := range h.engines.busiestCode(hotGuests, hotFade) {
		h.addJIT(ctx, b)
	}
}

// addVM adds the hottest code of an attached VM.
func (h *hotCode) addVM(ctx context.Context, b fold.Busy) {
	g := hotGuest{guest: listener.Guest{Identity: b.Identity()}}
	err := h.engines.Resolver.WithVM(ctx, b.Process.Process, func(vm *guest.VM) error {
		g.guest.Memory = vm.Memory
		for _, c := range b.Top.Hottest(hotMethods) {
			if e, ok := entryAt(vm, c.Frame); ok && !slices.Contains(g.entries, e) {
				g.entries = append(g.entries, e)
			}
		}
		return nil
	})
	if err == nil && len(g.entries) > 0 {
		h.guests = append(h.guests, g)
	}
}

// entryAt returns the address at which calls of a compiled version arrive. ok is false if the
// version is gone or no longer called.
func entryAt(g *guest.VM, f bpf.Frame) (listener.Entry, bool) {
	vm, err := guest.As[vmruntime.CallCounter](g)
	if err != nil {
		return listener.Entry{}, false
	}
	c, err := vm.Compilation(g.Site(f, true, 0))
	if err != nil {
		return listener.Entry{}, false
	}
	return listener.EntryOf(c)
}

// busiestCode returns the n recently busiest processes of the engine listener whose code is named
// by a map.
func (e *Engines) busiestCode(n int, fade float64) []fold.BusyCode {
	return fold.Get(e.Owner, func(s *fold.State) []fold.BusyCode {
		return s.BusiestCode(n, fade, func(p *fold.Process) bool { return e.observes(s, p) })
	})
}

// A jitEntries is the entered code, by its first instruction.
type jitEntries map[uint64]vmruntime.MappedCode

// addJIT adds the hottest code of a process whose code is named by a map.
func (h *hotCode) addJIT(ctx context.Context, b fold.BusyCode) {
	p, resolver := b.Process, h.engines.Resolver
	g := hotGuest{guest: listener.Guest{Identity: b.Identity()}}
	known := jitEntries{}
	err := resolver.WithWorker(ctx, p.Process, func() error {
		memory, err := resolver.CodeMemory(p.Process)
		if err != nil {
			return err
		}
		g.guest.Memory = memory
		for _, e := range hottestJIT(p, b.Samples, hotMethods) {
			known[e.Begin] = e
			g.entries = append(g.entries, listener.Entry{Address: e.Begin})
		}
		return nil
	})
	if err == nil && len(g.entries) > 0 {
		g.guest.Take = func(r listener.Result) error { return h.take(p, known, r) }
		h.guests = append(h.guests, g)
	}
}

// hottestJIT returns the n pieces of code with most samples; it runs on p's worker. Map entries for
// a file's code are ignored: it has names of its own, and a map may contain anything.
func hottestJIT(p *fold.Process, samples map[uint64]float64, n int) []vmruntime.MappedCode {
	heat := map[vmruntime.MappedCode]float64{}
	for pc, count := range samples {
		if e, ok := p.MappedCode(pc); ok && p.MayBeJIT(e.Begin) {
			heat[e] += count
		}
	}
	hot := slices.SortedFunc(maps.Keys(heat), func(a, b vmruntime.MappedCode) int {
		return cmp.Or(cmp.Compare(heat[b], heat[a]), cmp.Compare(a.Begin, b.Begin))
	})
	return hot[:min(n, len(hot))]
}

// take folds the calls of a window, unless the map now has other code at an entry.
func (h *hotCode) take(p *fold.Process, known jitEntries, r listener.Result) error {
	e := h.engines
	ctx, cancel := context.WithTimeout(context.Background(), hotInterval)
	defer cancel()
	err := e.Resolver.WithWorker(ctx, p.Process, func() error {
		if !p.Exited.Load() {
			e.Resolver.ReadMap(p.Process) // for every window, more often than for names
		}
		return checkEntries(p, known, r.Hits)
	})
	if err != nil {
		return err
	}
	err = e.Owner.Do(func(s *fold.State) {
		code := p.Code.Load()
		for _, hit := range r.Hits {
			e.counts.received++
			e.counts.taken++
			if s.Table[p.PID] != p {
				e.counts.discarded[discardStale]++
				continue
			}
			call := []guest.RawFrame{{Frame: hit.Caller, Kind: guest.RawReturn},
				{Frame: hit.Callee, Kind: guest.RawExact}}
			code.Mark(call)
			e.addRaw(s, p, h.name, call[0], call[1], 0)
		}
	})
	if err != nil {
		e.Owner.Do(e.Fail)
	}
	return err
}

// checkEntries returns watch.ErrChanged if other code is at an entry by now; it runs on p's worker.
func checkEntries(p *fold.Process, known jitEntries, hits []listener.Hit) error {
	for _, hit := range hits {
		at := hit.Callee.PC()
		e, ok := p.MappedCode(at)
		if !ok || e != known[at] || hit.Callee.Kind() != bpf.FrameNative {
			return fmt.Errorf("entry %#x of process %d: %w", at, p.PID, watch.ErrChanged)
		}
	}
	return nil
}
