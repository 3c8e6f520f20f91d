package engines

import (
	"errors"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/guesttest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A jitProcess is a process with a map of its code, and an agent that samples it.
type jitProcess struct {
	*fold.Process
	*guesttest.MapWriter
	engines *Engines
}

// codeAt is the address of its compiled code.
const codeAt = guesttest.CodeAt

func newJITProcess(t *testing.T) *jitProcess {
	t.Helper()
	w := &jitProcess{MapWriter: guesttest.NewMapWriter(t)}
	e, _ := testEngines()
	pool := proc.NewPool(proc.PoolOptions{})
	e.Root, e.Pool = w.Root, pool
	e.Resolver = guest.NewResolver(guest.Config{Runtimes: runtimes.Table(), Root: w.Root, Log: e.Log, Pool: pool,
		Attaching: pool})
	e.Resolver.Start(2)
	t.Cleanup(func() {
		e.Resolver.Stop()
		e.Resolver.Close()
	})
	w.engines, w.Process = e, fold.NewProcess(w.MapWriter.Identity, false)
	e.state().Table[100] = w.Process
	return w
}

// at is a frame at that offset in the code.
func at(offset uint64, kind guest.RawKind) guest.RawFrame {
	return guest.RawFrame{Frame: guesttest.NativeAt(codeAt + offset), Kind: kind}
}

// sample requests the name of a frame as a sample does.
func (w *jitProcess) sample(t *testing.T, r guest.RawFrame) {
	t.Helper()
	stack := []guest.RawFrame{r}
	w.Code.Load().Mark(stack)
	w.Want(stack, 0, &w.engines.state().Names)
	w.engines.Resolver.Submit(w.Process.Process)
	w.engines.Resolver.Wait(t.Context(), []*guest.Process{w.Process.Process}, time.Minute)
}

// listened makes the engine listener sample w.
func (w *jitProcess) listened() *hotCode {
	w.engines.runFake(calls.Listener)
	return &hotCode{engines: w.engines, name: calls.Listener}
}

func (w *jitProcess) hits(caller, callee uint64) listener.Result {
	return listener.Result{Hits: []listener.Hit{{Caller: at(caller, guest.RawReturn).Frame,
		Callee: at(callee, guest.RawExact).Frame}}}
}

// Entries are the first instructions of the code with most samples.
func TestHottestJIT(t *testing.T) {
	w := newJITProcess(t)
	w.Write("7f3814003000 40 a", "7f3814003040 40 b", "7f3814003080 40 c", "400000 100 of a file")
	w.sample(t, at(0, guest.RawExact))
	samples := map[uint64]float64{codeAt + 4: 2, codeAt + 8: 3, codeAt + 0x44: 4, codeAt + 0x84: 6, 0x400010: 9,
		codeAt + 0x100: 9}
	hot := hottestJIT(w.Process, samples, 2)
	if len(hot) != 2 || hot[0].Begin != codeAt+0x80 || hot[1].Begin != codeAt {
		t.Errorf("%+v", hot)
	}
}

// A window's calls are folded if all its code is unchanged, and each of them is accounted for.
func TestTakeWindow(t *testing.T) {
	w := newJITProcess(t)
	w.Write("7f3814003000 40 leaf", "7f3814003040 40 caller")
	w.sample(t, at(0, guest.RawExact))
	h := w.listened()
	e := h.engines
	known := jitEntries{}
	for _, entry := range hottestJIT(w.Process, map[uint64]float64{codeAt: 1}, 1) {
		known[entry.Begin] = entry
	}
	window := e.openWindow()
	if err := h.take(w.Process, known, w.hits(0x60, 0)); err != nil {
		t.Fatal(err)
	}
	if s := e.stats(&bpf.Counts{}); s.Attempted != 1 || s.Delivered != 1 || s.Folded != 1 {
		t.Errorf("%+v", s)
	}
	e.Owner.Do((*fold.State).Submit)
	w.engines.Resolver.Wait(t.Context(), fold.Targets([]*fold.Process{w.Process}), 1<<62)
	names := w.Names()
	calls := window.Calls[w.Process].Profile(names, nil)
	names.Close()
	if len(calls) != 1 || calls[0].Engine != "listener" || calls[0].Graph.Len() != 1 {
		t.Fatalf("%+v", calls)
	}
	for edge := range calls[0].Graph.Edges() {
		if edge.Caller.Value().Function != "caller" || edge.Callee.Value().Function != "leaf" ||
			edge.Site.Offset != 0x20 {
			t.Errorf("%+v called %+v at %+v", edge.Caller.Value(), edge.Callee.Value(), edge.Site)
		}
	}

	w.Write("7f3814003000 40 other")
	if err := h.take(w.Process, known, w.hits(0x60, 0)); !errors.Is(err, watch.ErrChanged) {
		t.Errorf("other code is there: %v", err)
	}
	if s := e.stats(&bpf.Counts{}); s.Attempted != 1 || s.Folded != 1 {
		t.Errorf("calls of a void window are folded: %+v", s)
	}
}

// Calls of a process that has ended are not attributed to another one.
func TestTakeWindowOfTheDead(t *testing.T) {
	w := newJITProcess(t)
	w.Write("7f3814003000 40 leaf")
	w.sample(t, at(0, guest.RawExact))
	h := w.listened()
	known := jitEntries{}
	for _, entry := range hottestJIT(w.Process, map[uint64]float64{codeAt: 1}, 1) {
		known[entry.Begin] = entry
	}
	delete(w.engines.state().Table, 100)
	if err := h.take(w.Process, known, w.hits(0x60, 0)); err != nil {
		t.Fatal(err)
	}
	if c := h.engines.counts; c.received != 1 || c.folded != 0 || c.discarded[discardStale] != 1 {
		t.Errorf("%+v", c)
	}
}

// The engine listener samples processes with a map, JVMs only if no engine handles them better, and
// no processes that cooperate.
func TestWhoIsListenedTo(t *testing.T) {
	w := newJITProcess(t)
	e := w.listened().engines
	page, estimating, listener := e.runFake(calls.Page), specOf(e.opt, calls.Hotspot), e.engine(calls.Listener)
	listens := func(p *fold.Process) bool { return listener.guests(listener, e.state(), p) }
	if listens(w.Process) {
		t.Error("a process without a map is listened to")
	}
	w.Code.Store(&guest.JITCode{})
	if !listens(w.Process) {
		t.Error("a process with a map is not listened to")
	}
	page.connected = map[int]string{100: "guest"}
	if listens(w.Process) {
		t.Error("a process that cooperates is listened to")
	}
	page.connected = nil
	w.Attachment.Store(1)
	if !listens(w.Process) {
		t.Error("a JVM is nobody's")
	}
	e.estimator = &hotspot.Engine{}
	if listens(w.Process) || !estimating.guests(nil, nil, w.Process) {
		t.Error("a JVM is not the engine hotspot's alone")
	}
}
