package agent

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/agent/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A busyJIT is a process whose code a map names, and where it was lately.
type busyJIT struct {
	*fold.Process
	id      proc.Identity
	samples map[uint64]float64 // by address
	all     float64
}

// busyJITs returns the n processes whose code a map names that were busiest lately, and lets what is known of all fade.
func (e *callEngines) busyJITs(n int, fade float64) (busy []busyJIT) {
	a := e.agent
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, p := range a.table {
		if len(p.Hot.Samples) > 0 && !p.Exited.Load() && p.Attachment.Load() == 0 && e.observes(p) {
			busy = append(busy, busyJIT{Process: p, id: p.ID, all: p.Hot.All})
		}
	}
	slices.SortFunc(busy, func(a, b busyJIT) int { return cmp.Or(cmp.Compare(b.all, a.all), cmp.Compare(a.PID, b.PID)) })
	busy = busy[:min(n, len(busy))]
	for i := range busy {
		busy[i].samples = maps.Clone(busy[i].Hot.Samples)
	}
	for _, p := range a.table {
		p.Hot.Fade(fade)
	}
	return busy
}

// A jitEntries is code that calls arrive at, by its first instruction.
type jitEntries map[uint64]vmruntime.MappedCode

// addJIT adds the hottest code of a process whose code a map names.
func (h *hotCode) addJIT(ctx context.Context, b busyJIT) {
	a, p := h.agent, b.Process
	g := hotGuest{guest: listener.Guest{Identity: b.id}}
	known := jitEntries{}
	err := a.resolver.WithWorker(ctx, p.Process, func() error {
		memory, err := a.resolver.CodeMemory(p.Process)
		if err != nil {
			return err
		}
		g.guest.Memory = memory
		for _, e := range hottestJIT(p, b.samples, hotMethods) {
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

// hottestJIT returns the n pieces of code that most samples were in; p's worker has it. What a map says of a file's code
// is left alone: it has names of its own, and a map may say anything.
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

// take folds the calls of a window, unless the map says by now that other code is at an entry.
func (h *hotCode) take(p *fold.Process, known jitEntries, r listener.Result) error {
	a, e := h.agent, h.engines
	ctx, cancel := context.WithTimeout(context.Background(), hotInterval)
	defer cancel()
	err := a.resolver.WithWorker(ctx, p.Process, func() error {
		if !p.Exited.Load() {
			a.resolver.ReadMap(p.Process) // not only as often as for names: as often as there are windows
		}
		return checkEntries(p, known, r.Hits)
	})
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	code := p.Code.Load()
	for _, hit := range r.Hits {
		e.counts.received++
		e.counts.taken++
		if a.table[p.PID] != p {
			e.counts.discarded[discardStale]++
			continue
		}
		call := []target.RawFrame{{Frame: hit.Caller, Kind: target.RawReturn}, {Frame: hit.Callee, Kind: target.RawExact}}
		code.Mark(call)
		a.foldRawCall(p, calls.Listener, call[0], call[1], 0)
	}
	return nil
}

// checkEntries is watch.ErrChanged if other code is at an entry by now; p's worker has it.
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
