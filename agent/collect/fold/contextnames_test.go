package fold

import (
	"maps"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// profiled is what a reader sees of java in a closing window.
func (a *contextState) profiled(p *Process, w *Window) map[string]uint64 {
	a.placed(w)
	a.named(p)
	m := map[string]uint64{}
	counts := profile.Counts{Truncated: map[string]uint64{}}
	for _, t := range p.Profile(w.Processes[p], &counts).Threads {
		for path, n := range namedContexts(t.Tree) {
			m[t.Context.String()+": "+path] += n
		}
	}
	a.release(w)
	return m
}

func (p *Process) namesKept() int {
	names := p.Names()
	defer names.Close()
	return names.Len()
}

// Contexts that were learned before the window was open are named when it closes, even if their
// names were forgotten.
func TestNamesOfPlacedContexts(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	walk := func() { a.walked("a:1@16 B:2@32 c:3@48", 1) }
	link := func() {
		a.linked("B:2@32 c:3@48", 2)
		a.linked("x:1@32 y:1@48", 1)
	}
	walk()
	want := map[string]uint64{"certain: a:1 B:2 c:3": 1}
	if got := a.profiled(p, w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	want = map[string]uint64{"certain: a:1 B:2 c:3": 2, "unplaced: [callers unknown] x:1 y:1": 1}
	w = a.openForTest()
	link()
	if got := a.profiled(p, w); !maps.Equal(got, want) {
		t.Errorf("in the next window: got %v, want %v", got, want)
	}
	p.Trim(nil, &a.state().Names)
	if p.namesKept() != 0 || a.state().Names != 0 {
		t.Fatalf("%d names are left, %d are counted", p.namesKept(), a.state().Names)
	}
	w = a.openForTest()
	link()
	if got := a.profiled(p, w); !maps.Equal(got, want) {
		t.Errorf("after names were forgotten: got %v, want %v", got, want)
	}
	if n, requested := a.state().Names, len(p.Requested); int(n) != requested {
		t.Errorf("%d names are counted, %d were asked for", n, requested)
	}

	// Learned while no window was open.
	b, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p = b.attach(7)
	b.release(w)
	b.walked("a:1@16 B:2@32 c:3@48", 1)
	w = b.openForTest()
	b.linked("B:2@32 c:3@48", 2)
	b.linked("x:1@32 y:1@48", 1)
	if got := b.profiled(p, w); !maps.Equal(got, want) {
		t.Errorf("learned without a window: got %v, want %v", got, want)
	}
}

// If a process has ended when its window closes, the outermost frame of a context that was never
// sampled gets the name of the same frame within a context.
func TestNamesOfPlacedContextsOfEndedProcess(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.walked("a:1@16 B:2@32 c:3@48", 1)
	a.linked("B:2@32 c:3@48", 2)
	a.linked("x:1@32 y:1@48", 1)
	a.fold(foldtest.Process(bpf.EventProcessExit, java))
	a.state().Submit()
	a.named(p) // in time
	// From now on every other frame is stale: p no longer has a VM.
	want := map[string]uint64{"certain: a:1 B:2 c:3": 3, "unplaced: [callers unknown] x:1 y:1": 1}
	if got := a.profiled(p, w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	n := a.resolver.Name(p.Process, guest.Wanted{RawFrame: guest.RawFrame{Frame: foldtest.Method('q', 1),
		End: bpf.EndKnown}})
	if !n.Stale || len(n.Symbols) != 2 || n.Symbols[1].Value().Function != "[callers unknown]" {
		t.Errorf("a frame that was never named is %+v", n)
	}
}

// Two ends of one frame do not mix their names.
func TestNamesOfEnds(t *testing.T) {
	a, _ := newContextState(t, JoinOptions{})
	p := a.attach(7)
	bare := guest.RawFrame{Frame: foldtest.Method('a', 1)}
	symbols := append(make([]symbol.Symbol, 0, 8), guest.Marker("a"))
	p.SetName(bare, guest.Name{Symbols: symbols})
	var names []guest.Name
	for _, end := range []bpf.WalkEnd{bpf.EndKnown, bpf.EndRead} {
		r := bare
		r.End = end
		names = append(names, a.resolver.Name(p.Process, guest.Wanted{RawFrame: r}))
	}
	for i, want := range []string{"[callers unknown]", "[truncated: stack not readable]"} {
		if got := names[i].Symbols; len(got) != 2 || got[0] != guest.Marker("a") || got[1].Value().Function != want {
			t.Errorf("%v, want a and %s", got, want)
		}
	}
	for _, bad := range []guest.Name{{Symbols: symbols, Stale: true}, {Symbols: symbols, Unknown: true}} {
		p.SetName(bare, bad)
		if n := a.resolver.Name(p.Process, guest.Wanted{RawFrame: guest.RawFrame{Frame: bare.Frame,
			End: bpf.EndKnown}}); !n.Stale || n.Symbols[0] == guest.Marker("a") {
			t.Errorf("named by %+v", n)
		}
	}
}

// The epoch of an interpreted frame in a context is that of the time when it was learned: another
// method may be at its address now.
func TestWantedEpochs(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.feed(record{Identity: java, Attachment: 7, ClassEpoch: 2, Flags: bpf.SampleDepths, User: "A:1@16 b:2@32 c:3@48"})
	p.Trim(nil, &a.state().Names)
	p.TakeWanted()
	a.feed(record{
		Identity: java, Attachment: 7, ClassEpoch: 5, Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndKnown,
		User:   "b:2@32 c:3@48",
		Kernel: []uint64{uint64(foldtest.Method('A', 1))},
	})
	a.placed(w)
	epochs := map[string]uint32{}
	for _, r := range p.TakeWanted() {
		epochs[foldtest.Path([]guest.RawFrame{r.RawFrame})] = r.Epoch
	}
	if want := (map[string]uint32{"A:1": 2, "b:2": 5, "c:3": 5, "kernel": 5}); !maps.Equal(epochs, want) {
		t.Errorf("asked for %v, want %v", epochs, want)
	}
}
