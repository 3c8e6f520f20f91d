package agent

import (
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// listeningAgent folds records of the listener engine.
func listeningAgent() (*Agent, *Window) {
	a, w := testAgent()
	a.engines = &callEngines{agent: a, counts: callCounts{discarded: noCallDiscards()}}
	a.engines.runFake(calls.Listener)
	return a, w
}

func callRecord(id identity, engine uint8, attachment uint32, caller, callee bpf.Frame) []byte {
	c := bpf.Call{Header: id.header(bpf.EventCall), Engine: engine, Attachment: attachment, Caller: uint64(caller), Callee: uint64(callee)}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&c)), unsafe.Sizeof(c))...)
}

// Every call that is received is folded or discarded for a reason.
func TestCallIdentity(t *testing.T) {
	a, w := listeningAgent()
	id := identity{100, 5, 1}
	a.process(&bpf.Header{Pid: 100, Start: 5, Exec: 1}).Attachment.Store(3)
	call := callRecord(id, bpf.EngineListener, 3, foldtest.JIT(1, 4), foldtest.JIT(2, 8))
	a.handle(call)
	a.handle(call)
	a.handle(callRecord(id, bpf.EngineListener, 2, foldtest.JIT(1, 4), foldtest.JIT(2, 8))) // of an earlier VM
	a.handle(callRecord(id, bpf.EngineUSDT, 3, foldtest.JIT(1, 4), foldtest.JIT(2, 8)))     // nobody runs that engine
	a.handle(call[:len(call)-1])
	w.pids = map[int]bool{7: true}
	a.handle(call)
	c := a.engines.counts
	want := map[string]uint64{discardStale: 1, profile.Malformed: 2, profile.NoWindow: 1}
	for why, n := range c.discarded {
		if n != want[why] {
			t.Errorf("%s: %d, want %d", why, n, want[why])
		}
	}
	if c.received != 6 || c.folded != 2 || c.received != c.folded+profile.Sum(c.discarded) {
		t.Errorf("%d received, %d folded, discarded %v", c.received, c.folded, c.discarded)
	}
	for p, s := range w.calls {
		if g := s.Raw["listener"]; p.PID != 100 || g.Len() != 1 || g.Total() != 2 {
			t.Errorf("process %d: %d edges, %v calls", p.PID, g.Len(), g.Total())
		}
	}
}
