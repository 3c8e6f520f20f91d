package httpd

import (
	"fmt"
	"math"
	"slices"
	"time"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const (
	// maxWindowNodes bounds the contexts of a window that is kept for pages. A node takes 48 bytes.
	maxWindowNodes = 8 << 10
	// maxWindowProcesses bounds the processes of such a window. The rest become one.
	maxWindowProcesses = 1000
	// otherProcesses is the name of those that are too many.
	otherProcesses = "[other processes]"
)

// reduce makes one window of several consecutive ones, at least one, with what pages show of a kind
// and nothing else. It merges the threads of a process and the addresses of a function: these would
// multiply contexts, and keep the frames of ended processes in memory. Beyond limit contexts, the
// rarest become a frame below their nearest common caller, so that totals stay true. The windows
// are not changed.
func reduce(windows []*profile.Profile, k *kind, limit int) *profile.Profile {
	all := *windows[0]
	all.Counts, all.EventCounts = profile.Counts{}, profile.EventCounts{}
	all.Processes, all.Comments, all.Duration = nil, nil, 0
	r := reduction{kind: k, frames: make(map[symbol.Symbol][]symbol.Symbol),
		index: make(map[processKey]*reducedProcess)}
	for _, w := range windows {
		all.Duration += w.Duration
		all.Counts.Add(w.Counts)
		all.EventCounts.Add(w.EventCounts)
		all.Comments = appendNew(all.Comments, w.Comments)
		for _, proc := range w.Processes {
			r.add(w, proc)
		}
	}
	if r.prune(limit) {
		all.Comments = appendNew(all.Comments, []string{fmt.Sprintf("rare stacks are merged; /profiles/%s has all",
			k.Name)})
	}
	for _, p := range r.processes {
		all.Processes = append(all.Processes, p.finish())
	}
	if r.aside {
		all.Comments = appendNew(all.Comments, []string{fmt.Sprintf("%s are left out; /profiles/%s has them",
			k.shown.asideAre, k.Name)})
	}
	return &all
}

// A reduction is a window in the making.
type reduction struct {
	kind      *kind
	frames    map[symbol.Symbol][]symbol.Symbol // without their addresses, each once
	index     map[processKey]*reducedProcess
	processes []*reducedProcess // in the order in which they appeared
	aside     bool              // there were events that pages leave out
}

// A process id that is reused within a minute is another process.
type processKey struct {
	pid  int
	comm string
}

type reducedProcess struct {
	process profile.Process
	events  bool // values are those of kind; otherwise CPU time
	kind    profile.EventKind
	others  []*profile.Events // kinds that there are besides, empty: the accounts are of all kinds together
	tree    *cct.Tree[symbol.Symbol]
	sampled float64                         // CPU time in ns that the tree's samples stand for
	unseen  map[symbol.Symbol]time.Duration // profile.Thread.Unseen, by its frame
	weight  []float64                       // by node, of events: what readers see first
	rows    map[eventKey]int
	list    []profile.EventRow
	basis   []string
	covered *profile.Coverage
}

// An eventKey identifies a row, without its thread.
type eventKey struct {
	context cct.NodeID
	labels  profile.EventLabels
}

func (r *reduction) add(w *profile.Profile, proc *profile.Process) {
	p := r.process(proc)
	p.process.Notes = appendNew(p.process.Notes, proc.Notes)
	event, ofEvents := r.kind.content.Events()
	if !ofEvents {
		for _, t := range proc.Threads {
			if t.Tree != nil {
				cct.MergeMap(p.tree, t.Tree, r.frame)
				p.sampled += t.Time(t.Tree.Total(), w.Period)
			}
			if t.Unseen > 0 {
				p.unseen[t.UnseenIn] += t.Unseen
			}
		}
		return
	}
	p.kind, p.events = event, true
	for _, e := range proc.Events {
		if e.Kind == event {
			r.addEvents(p, e)
		} else if !slices.ContainsFunc(p.others, func(o *profile.Events) bool { return o.Kind == e.Kind }) {
			p.others = append(p.others, &profile.Events{Kind: e.Kind})
		}
	}
}

// process finds or makes the one that stands for proc.
func (r *reduction) process(proc *profile.Process) *reducedProcess {
	key := processKey{proc.PID, proc.Comm}
	if r.index[key] == nil && len(r.index) >= maxWindowProcesses {
		key = processKey{0, otherProcesses}
	}
	p := r.index[key]
	if p == nil {
		p = &reducedProcess{rows: make(map[eventKey]int), unseen: make(map[symbol.Symbol]time.Duration),
			tree: new(cct.Tree[symbol.Symbol]), process: profile.Process{PID: key.pid, Comm: key.comm}}
		if key.comm != otherProcesses {
			p.process.Runtime, p.process.VM, p.process.Service, p.process.Executable = proc.Runtime, proc.VM,
				proc.Service, proc.Executable
		}
		r.index[key] = p
		r.processes = append(r.processes, p)
	}
	return p
}

// frame returns a frame without its address, and without what else only its process knows.
func (r *reduction) frame(s symbol.Symbol) []symbol.Symbol {
	s = s.WithoutAddress()
	one := r.frames[s]
	if one == nil {
		f := s.Value()
		f.Approximate = false
		if f.Mapping != (unique.Handle[symbol.Mapping]{}) {
			f.Mapping = unique.Make(symbol.Mapping{File: f.Mapping.Value().File})
		}
		one = []symbol.Symbol{symbol.Intern(f)}
		r.frames[s] = one
	}
	return one
}

func (r *reduction) addEvents(p *reducedProcess, e *profile.Events) {
	p.basis = appendNew(p.basis, e.Basis)
	if c := e.Coverage; c != nil {
		if p.covered == nil {
			p.covered = new(profile.Coverage)
		}
		p.covered.Add(c)
	}
	contexts := make(map[cct.NodeID]cct.NodeID)
	shown := r.kind.shown
	for _, row := range e.Rows {
		if shown.aside != "" && row.What == shown.aside {
			r.aside = true
			continue
		}
		at, known := contexts[row.Context]
		if !known && e.Tree != nil {
			stack := e.Tree.Stack(row.Context)
			for i, s := range stack {
				stack[i] = r.frame(s)[0]
			}
			at = p.tree.Add(stack, 0)
			contexts[row.Context] = at
		}
		for int(at) >= len(p.weight) {
			p.weight = append(p.weight, 0)
		}
		p.weight[at] += max(row.Values[shown.value], 0)
		row.Context, row.TID, row.Thread, row.EventLabels = at, 0, "", shown.labels(row.EventLabels)
		p.addRow(row)
	}
}

// addRow adds up rows that differ by nothing.
func (p *reducedProcess) addRow(row profile.EventRow) {
	key := eventKey{row.Context, row.EventLabels}
	i, known := p.rows[key]
	if !known {
		p.rows[key] = len(p.list)
		p.list = append(p.list, row)
		return
	}
	p.list[i].Events += row.Events
	for v := range row.Values {
		p.list[i].Values[v] += row.Values[v]
	}
}

// prune leaves the limit heaviest contexts of all processes, by what readers see first, and as many
// rows of events. It reports whether there were more.
func (r *reduction) prune(limit int) bool {
	var own func(int) []float64
	var values []float64
	trees := make([]*cct.Tree[symbol.Symbol], len(r.processes))
	for i, p := range r.processes {
		trees[i] = p.tree
		for _, row := range p.list {
			values = append(values, row.Values[r.kind.shown.value])
		}
	}
	if r.kind.shown.events {
		own = func(i int) []float64 {
			p := r.processes[i]
			return append(p.weight, make([]float64, p.tree.Len()+1-len(p.weight))...)
		}
	}
	places := cct.PruneAll(trees, own, limit, profile.Rare)
	if places == nil && len(values) <= limit {
		return false
	}
	least := cct.NewCutoff(values, limit).Least
	for i, p := range r.processes {
		rows := p.list
		p.list, p.rows = nil, make(map[eventKey]int)
		for _, row := range rows {
			if places != nil {
				row.Context = places[i][row.Context]
			}
			if row.Values[r.kind.shown.value] <= least {
				row.Context = p.tree.AddBelow(cct.Root, profile.Rare, 0, 0)
				row.EventLabels = profile.EventLabels{What: row.What, Probe: row.Probe}
			}
			p.addRow(row)
		}
	}
	return true
}

// finish makes the process.
func (p *reducedProcess) finish() *profile.Process {
	proc := p.process
	if p.events {
		proc.Events = append(p.others, &profile.Events{Kind: p.kind, Tree: p.tree, Rows: p.list, Basis: p.basis,
			Coverage: p.covered})
		return &proc
	}
	sampled := &profile.Thread{Tree: p.tree}
	if n := p.tree.Total(); n > 0 {
		sampled.SampleTime = p.sampled / float64(n)
	}
	proc.Threads = []*profile.Thread{sampled}
	for _, frame := range []symbol.Symbol{profile.Waking, profile.NotSampled} {
		if p.unseen[frame] > 0 {
			proc.Threads = append(proc.Threads, &profile.Thread{Unseen: p.unseen[frame], UnseenIn: frame})
		}
	}
	return &proc
}

// appendNew appends what is not there yet.
func appendNew(to, from []string) []string {
	return profile.AddNotes(to, math.MaxInt, from...)
}
