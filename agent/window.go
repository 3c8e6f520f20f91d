package agent

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A Window is a time in which samples are folded. Any number can be open at once; each sees every sample.
type Window struct {
	agent *Agent
	start time.Time
	pids  map[int]bool // nil: all

	// The rest is guarded by agent.mu while the window is open.
	processes map[*process]map[uint32]*rawThread
	before    snapshot
	filtered  uint64 // samples of processes that are not in pids
	received  uint64
	folded    uint64
	discarded map[string]uint64
}

func newWindow(a *Agent, pids map[int]bool) *Window {
	return &Window{agent: a, pids: pids, processes: map[*process]map[uint32]*rawThread{}, discarded: noDiscards()}
}

type rawTree = cct.Tree[rawFrame]

type rawThread struct {
	name string
	tree rawTree
}

// add folds one sample. It tells whether the stack has contexts that are new to the window.
func (w *Window) add(p *process, s *bpf.Sample, stack []rawFrame) (fresh bool) {
	threads := w.processes[p]
	if threads == nil {
		threads = map[uint32]*rawThread{}
		w.processes[p] = threads
		p.holders++
	}
	t := threads[s.Tid]
	if t == nil {
		t = &rawThread{}
		threads[s.Tid] = t
	}
	if t.name == "" {
		t.name = cString(s.Comm)
	}
	n := t.tree.Len()
	t.tree.Add(stack, 1)
	w.folded++
	return t.tree.Len() != n
}

// Close ends the window and returns what it holds, named. It waits until everything that was sampled so far has been
// received and, up to Options.NameDeadline, until it has been named.
func (w *Window) Close(ctx context.Context) (*Profile, error) {
	return w.end(ctx, nil)
}

// Next closes the window and opens its successor at the same moment: every sample is in exactly one of them.
func (w *Window) Next(ctx context.Context) (*Window, *Profile, error) {
	next := newWindow(w.agent, w.pids)
	p, err := w.end(ctx, next)
	return next, p, err
}

func (w *Window) end(ctx context.Context, next *Window) (*Profile, error) {
	a := w.agent
	if err := a.flush(ctx); err != nil {
		a.drop(w)
		return nil, err
	}
	defer a.release(w)
	end := time.Now()
	a.mu.Lock()
	after := a.snapshot()
	delete(a.windows, w)
	a.closing[w] = struct{}{}
	processes := slices.SortedFunc(maps.Keys(w.processes), earlier)
	if next != nil {
		next.start, next.before = end, after
		a.windows[next] = struct{}{}
	}
	a.mu.Unlock()

	a.names.wait(ctx, processes, a.opt.NameDeadline)
	p := &Profile{
		Start: w.start, Duration: end.Sub(w.start), Period: a.period(), Event: a.ticks.Event,
		Comments: a.comments(),
		Counts:   after.since(w.before),
	}
	if n := after.kernel[bpf.EventsDroppedRingFull] - w.before.kernel[bpf.EventsDroppedRingFull]; n > 0 {
		p.Comments = append(p.Comments, fmt.Sprintf("%d announcements of code or processes were lost: names may be missing", n))
	}
	p.Counts.Delivered, p.Counts.Folded, p.Counts.Discarded = w.received, w.folded, maps.Clone(w.discarded)
	// In flight at the beginning of the window there may be samples that were attempted before it.
	p.Counts.Attempted -= min(p.Counts.Attempted, w.filtered)
	p.Counts.Filtered += w.filtered
	for _, proc := range processes {
		p.Processes = append(p.Processes, proc.profile(w.processes[proc], &p.Counts))
	}
	return p, nil
}

// drop closes a window whose content nobody wants.
func (a *Agent) drop(w *Window) {
	a.mu.Lock()
	delete(a.windows, w)
	a.mu.Unlock()
	a.release(w)
}

// release forgets the names that only w, which is closed, needed.
func (a *Agent) release(w *Window) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.closing, w)
	for p := range w.processes {
		p.holders--
		a.trim(p)
	}
	w.processes = nil
	if a.nameCount.Load() > maxNames/2 {
		for _, p := range a.table {
			a.trim(p)
		}
	}
}

// trim forgets what p's names no open or closing window needs, if p is gone, or names are many; mu is held.
func (a *Agent) trim(p *process) {
	gone := p.exited.Load() && p.holders == 0
	if !gone && len(p.requested) < trimNames && a.nameCount.Load() <= maxNames/2 {
		return
	}
	var trees []*rawTree
	for _, windows := range []map[*Window]struct{}{a.windows, a.closing} {
		for w := range windows {
			for _, t := range w.processes[p] {
				trees = append(trees, &t.tree)
			}
		}
	}
	p.trim(trees, &a.nameCount)
}

// profile names all frames of the process's trees.
func (p *process) profile(threads map[uint32]*rawThread, c *Counts) *Process {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := &Process{
		PID: p.pid, Comm: p.comm, Service: p.service, Executable: p.executable, Notes: slices.Clone(p.notes),
		Runtime: p.runtime, VM: p.vm,
	}
	for _, tid := range slices.Sorted(maps.Keys(threads)) {
		t := threads[tid]
		p.tally(&t.tree, c)
		tree := cct.Map(&t.tree, func(r rawFrame) []symbolize.Symbol { return p.named(r).symbols })
		t.tree = rawTree{} // its memory is better used for the next window
		out.Threads = append(out.Threads, &Thread{TID: int(tid), Name: t.name, Tree: tree})
	}
	return out
}

// tally counts, over all samples of a tree, frames without a name and walks that ended early.
func (p *process) tally(t *cct.Tree[rawFrame], c *Counts) {
	totals := t.Totals()
	for id, n := range t.Nodes() {
		if id == cct.Root {
			continue
		}
		name := p.named(n.Key)
		if name.stale {
			c.Stale += totals[id]
		}
		if name.unknown {
			c.Unknown += totals[id]
		}
		if n.Key.end.Truncated() && !name.root {
			c.Truncated[n.Key.end.String()] += totals[id]
		}
	}
}

func cString(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return symbolize.CleanName(string(b))
}
