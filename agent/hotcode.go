package agent

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of hotCode.
const (
	hotGuests   = 8  // processes that are listened to
	hotMethods  = 48 // entries of each
	hotInterval = time.Second
	hotFade     = 0.2 // of what was seen, every interval
)

// A hotCode knows where calls of the hottest code of the busiest guests arrive. It is the listener engine's source.
type hotCode struct {
	agent   *Agent
	engines *callEngines

	// The rest belongs to the goroutine that asks for entries.
	guests []hotGuest // the busiest first
	turn   int        // of guests
	made   time.Time
}

type hotGuest struct {
	guest   listener.Guest
	entries []listener.Entry
}

// A busyGuest is a process with a VM, and what it was at lately.
type busyGuest struct {
	*fold.Process
	id      proc.Identity
	top     fold.TopEdges
	samples float64
}

// busyGuests returns the n processes with VMs that were busiest lately, and lets what is known of all fade.
func (a *Agent) busyGuests(n int, fade float64) []busyGuest {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := monotonic()
	passed := hotInterval
	if a.faded > 0 {
		passed = now - a.faded
	}
	a.faded = now
	for _, p := range a.table {
		if len(p.Top.Edges) > 0 {
			p.Top.Span += passed
		}
	}
	var all []busyGuest
	for _, p := range a.table {
		if len(p.Top.Edges) > 0 && !p.Exited.Load() && p.Attachment.Load() != 0 {
			all = append(all, busyGuest{Process: p, id: p.ID, samples: p.Top.All})
		}
	}
	slices.SortFunc(all, func(a, b busyGuest) int {
		return cmp.Or(cmp.Compare(b.samples, a.samples), cmp.Compare(a.PID, b.PID))
	})
	all = all[:min(n, len(all))]
	for i := range all {
		all[i].top = all[i].Process.Top.Clone()
	}
	for _, p := range a.table {
		p.Top.Fade(fade)
	}
	return all
}

// Next implements listener.Source: guests take turns.
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
func (h *hotCode) Failed(id proc.Identity, err error) { h.agent.listenFailed(id, err) }

// refresh finds out where calls of the hottest code arrive.
func (h *hotCode) refresh() {
	h.guests = h.guests[:0]
	ctx, cancel := context.WithTimeout(context.Background(), hotInterval)
	defer cancel()
	if h.engines.estimator == nil { // otherwise JVMs are its own
		for _, b := range h.agent.busyGuests(hotGuests, hotFade) {
			h.addVM(ctx, b)
		}
	}
	for _, b := range h.engines.busyJITs(hotGuests, hotFade) {
		h.addJIT(ctx, b)
	}
}

// addVM adds the hottest code of an attached VM.
func (h *hotCode) addVM(ctx context.Context, b busyGuest) {
	g := hotGuest{guest: listener.Guest{Identity: b.id}}
	err := h.agent.resolver.WithVM(ctx, b.Process.Process, func(vm *target.VM) error {
		g.guest.Memory = vm.Memory
		for _, c := range b.top.Hottest(hotMethods) {
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

// entry is where calls of a compiled version arrive. False if it is gone or nobody calls it any more.
func entryAt(g *target.VM, f bpf.Frame) (listener.Entry, bool) {
	vm, err := target.As[vmruntime.CallCounter](g)
	if err != nil {
		return listener.Entry{}, false
	}
	c, err := vm.Compilation(g.Site(f, true, 0))
	if err != nil {
		return listener.Entry{}, false
	}
	return listener.EntryOf(c)
}
