package agent

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// A process is one process that was sampled or announced, as the drainer knows it. What is not in target.Process is guarded by
// agent.mu; the drainer holds it.
type process struct {
	*target.Process
	id        proc.Identity
	precise   bool                         // id.Start came from the kernel side, in ns; otherwise in 10 ms
	requested map[target.RawFrame]struct{} // frames that were sent to be named
	samples   uint64                       // received
	// How often its VM had unloaded classes when it was last sampled.
	classEpoch uint32
	top        topEdges     // recent samples by edge, if an engine or monitor enters need them
	hot        hotAddresses // likewise by address, in code that its map names
	strangers  strangers
	chaining   *fold.Chaining // nil unless contexts are chained
	holders    int            // open and closing windows that have samples of it
}

func newProcess(id proc.Identity, precise bool) *process {
	return &process{Process: target.NewProcess(id), id: id, precise: precise, requested: map[target.RawFrame]struct{}{}}
}

// targetProcesses are the processes as workers know them.
func targetProcesses(processes []*process) (list []*target.Process) {
	for _, p := range processes {
		list = append(list, p.Process)
	}
	return list
}

// newProcessProfile is the part of p in a profile, with nothing in it but who p is.
func newProcessProfile(p *target.Process) *profile.Process {
	d := p.Describe()
	return &profile.Process{
		PID: p.PID, Comm: d.Comm, Service: d.Service, Executable: d.Executable, Notes: d.Notes, Runtime: d.Runtime, VM: d.VM,
	}
}

// earlier orders processes as a Profile does.
func earlier(a, b *process) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Ticks, b.Ticks), cmp.Compare(a.id.Exec, b.id.Exec))
}

// Bounds on named frames, each about 150 bytes with its map entry.
const (
	maxNames  = 1 << 18 // of all processes; frames beyond it stay unnamed, counted, until windows close
	trimNames = 1 << 14 // of a process: from there on, those that no window needs are forgotten when one closes
)

// want asks for the names of those frames of a stack that were not asked for yet; it tells whether there were any.
// Only the drainer calls it.
func (p *process) want(stack []target.RawFrame, epoch uint32, total *atomic.Int64) bool {
	var fresh []target.Wanted
	for _, r := range stack {
		if _, ok := p.requested[r]; !ok && total.Load() < maxNames {
			p.requested[r] = struct{}{}
			total.Add(1)
			w := target.Wanted{RawFrame: r, Epoch: epoch}
			if r.Kind <= target.RawExact && r.Frame.Kind() == bpf.FrameInterpreted {
				w.Epoch = r.Epoch // of a context, it may be older: what is at that address now is another method then
			}
			fresh = append(fresh, w)
		}
	}
	if fresh == nil {
		return false
	}
	p.Ask(fresh)
	return true
}

// trim forgets the names that are not needed; agent.mu is held.
func (p *process) trim(needed map[target.RawFrame]struct{}, total *atomic.Int64) {
	for r := range p.requested {
		if _, ok := needed[r]; !ok {
			delete(p.requested, r)
			total.Add(-1)
		}
	}
	// A worker may have named frames after they were forgotten here the last time.
	p.Forget(func(r target.RawFrame) bool {
		_, ok := p.requested[r]
		return ok
	})
}

const (
	strangersPeriod = 10 * time.Second // in which a thread that is still unknown has the list read once
	maxStrangers    = 4096             // of a process in a period
)

// strangers are the threads of a process that were sampled and are not known. Most are none of Java's. mu of the agent is held.
type strangers struct {
	seen   map[uint32]struct{} // by thread id
	until  time.Duration       // CLOCK_MONOTONIC: end of the period
	wanted bool                // the list is to be read for one of them
}

// meet notes a sample's thread. It reports whether a worker is to read the list of threads now; mu of the agent is held.
func (p *process) meet(s *bpf.Sample) bool {
	next := p.ThreadsDue()
	if next == 0 {
		return false
	}
	now, st := time.Duration(s.Time), &p.strangers
	if s.Flags&(bpf.SampleAttached|bpf.SampleJavaThread) == bpf.SampleAttached {
		if st.seen == nil || now >= st.until {
			st.seen, st.until = map[uint32]struct{}{}, now+strangersPeriod
		}
		if _, ok := st.seen[s.Tid]; !ok && len(st.seen) < maxStrangers {
			st.seen[s.Tid] = struct{}{}
			st.wanted = true
		}
	}
	if !st.wanted || now < next {
		return false
	}
	st.wanted = false
	p.WantThreads()
	return true
}

// profile names all frames of the process's trees.
func (p *process) profile(threads map[fold.ThreadKey]*fold.Thread, c *profile.Counts) *profile.Process {
	out := newProcessProfile(p.Process)
	names := p.Names()
	defer names.Close()
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		t := threads[key]
		for certainty := range t.Trees {
			raw := &t.Trees[certainty]
			if raw.Total() == 0 && certainty != int(profile.Certain) {
				continue
			}
			tally(raw, names, c)
			tree := cct.Map(raw, func(r target.RawFrame) []symbolize.Symbol { return names.Of(r).Symbols })
			out.Threads = append(out.Threads, &profile.Thread{TID: key.TID(), Name: cString(t.Comm[:]), Stopped: key.Stopped(), Context: profile.Certainty(certainty), Tree: tree})
		}
	}
	return out
}

// tally counts, over all samples of a tree, frames without a name and walks that ended early.
func tally(t *cct.Tree[target.RawFrame], names target.Names, c *profile.Counts) {
	totals := t.Totals()
	for id, n := range t.Nodes() {
		if id == cct.Root {
			continue
		}
		name := names.Of(n.Key)
		if name.Stale {
			c.Stale += totals[id]
		}
		if name.Unknown {
			c.Unknown += totals[id]
		}
		if n.Key.End.Truncated() && !name.Root {
			c.Truncated[n.Key.End.String()] += totals[id]
		}
	}
}

func cString(b []byte) string {
	if i := slices.Index(b, 0); i >= 0 {
		b = b[:i]
	}
	return symbolize.CleanName(string(b))
}
