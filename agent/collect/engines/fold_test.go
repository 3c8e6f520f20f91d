package engines

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

type identity = foldtest.Identity

// listeningEngines folds records of the listener engine.
func listeningEngines() (*Engines, *fold.Window) {
	e, w := testEngines()
	e.runFake(calls.Listener)
	return e, w
}

// Every received call is folded or discarded for a reason.
func TestCallIdentity(t *testing.T) {
	e, w := listeningEngines()
	id := identity{PID: 100, Start: 5, Exec: 1}
	e.state().Process(&bpf.Header{Pid: 100, Start: 5, Exec: 1}).Attachment.Store(3)
	call := foldtest.Call(id, bpf.EngineListener, 3, foldtest.JIT(1, 4), foldtest.JIT(2, 8))
	e.HandleCall(e.state(), call)
	e.HandleCall(e.state(), call)
	// This call is from an earlier VM.
	e.HandleCall(e.state(), foldtest.Call(id, bpf.EngineListener, 2, foldtest.JIT(1, 4), foldtest.JIT(2, 8)))
	// That engine does not run.
	e.HandleCall(e.state(), foldtest.Call(id, bpf.EngineUSDT, 3, foldtest.JIT(1, 4), foldtest.JIT(2, 8)))
	e.HandleCall(e.state(), call[:len(call)-1])
	w.PIDs = map[int]bool{7: true}
	e.HandleCall(e.state(), call)
	c := e.counts
	want := map[string]uint64{discardStale: 1, profile.Malformed: 2, profile.NoWindow: 1}
	for why, n := range c.discarded {
		if n != want[why] {
			t.Errorf("%s: %d, want %d", why, n, want[why])
		}
	}
	if c.received != 6 || c.folded != 2 || c.received != c.folded+profile.Sum(c.discarded) {
		t.Errorf("%d received, %d folded, discarded %v", c.received, c.folded, c.discarded)
	}
	for p, s := range w.Calls {
		if g := s.Raw["listener"]; p.PID != 100 || g.Len() != 1 || g.Total() != 2 {
			t.Errorf("process %d: %d edges, %v calls", p.PID, g.Len(), g.Total())
		}
	}
}

func FuzzHandleCall(f *testing.F) {
	f.Add(foldtest.Call(identity{PID: 1, Start: 2, Exec: 3}, bpf.EngineListener, 0, foldtest.JIT(1, 2),
		foldtest.JIT(3, 4)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		e, _ := listeningEngines()
		for _, handle := range []func(*fold.State, []byte){e.HandleCall, e.HandleCall, e.HandleNamedCall} {
			handle(e.state(), raw)
		}
		if c := e.counts; c.received != c.folded+profile.Sum(c.discarded) {
			t.Errorf("of calls, received %d, folded %d, discarded %v", c.received, c.folded, c.discarded)
		}
	})
}

// A holdingEngine waits for the end of bursts, and hands out no edge for some samples.
type holdingEngine struct{ fakeEngine }

func (holdingEngine) Flush(calls.Add)              {}
func (holdingEngine) Held() int                    { return 3 }
func (holdingEngine) Unweighed() map[string]uint64 { return map[string]uint64{discardTime: 2} }

// A call over which the agent panicked is discarded once: not if it was accounted for before, and
// together with those lost with it.
func TestFailedCalls(t *testing.T) {
	for lost := range uint64(3) {
		e, _ := testEngines()
		e.run(specOf(e.opt, calls.Page), started{engine: holdingEngine{fakeEngine{name: calls.Page}}})
		e.counts.discarded[profile.NoWindow] = 1
		e.counts.folded = 10
		e.counts.received = 10 + 1 + 3 + 2 + lost
		for range 2 {
			e.Fail(e.state())
			if n := e.counts.discarded[profile.Failed]; n != lost {
				t.Errorf("%d calls were lost, %d are counted", lost, n)
			}
		}
	}
}
