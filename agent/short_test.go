package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/guesttest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// contextsOf are the contexts of a window, with their samples.
func contextsOf(w *fold.Window) map[string]uint64 {
	all := map[string]uint64{}
	for p, threads := range w.Processes {
		for key, thread := range threads {
			tree := &thread.Trees[profile.Certain]
			for id, n := range tree.Nodes() {
				if n.Self > 0 {
					all[fmt.Sprint(p.PID, key, thread.Comm, tree.Stack(id))] = n.Self
				}
			}
		}
	}
	return all
}

// Samples that refer to earlier ones give the same windows, and request the same names, as those
// that have their stacks: with windows that open and close, code that is replaced, and VMs that are
// attached.
func TestShortSamples(t *testing.T) {
	full, _ := testAgent()
	short, _ := testAgent()
	random := rand.New(rand.NewPCG(1, 2))
	known := map[uint64]bool{}
	windows := map[*Agent][]*fold.Window{}
	both := func(f func(a *Agent)) { f(full); f(short) }
	shorts := 0
	for i := range 5_000 {
		id := identity{PID: 100 + random.Uint32N(2), Start: 5, Exec: 1}
		frames := []bpf.Frame{foldtest.JIT(7, 1), nativeFrame}
		for range random.IntN(9) {
			frames = append(frames, guesttest.NativeAt(guesttest.CodeAt+random.Uint64N(3)))
		}
		frames[0] += bpf.Frame(random.Uint64N(3))
		frames = frames[random.IntN(2):]
		full.fold(sampleRecord(id, frames...))
		raw, callers := foldtest.Full(id, frames...)
		if known[callers] {
			raw = foldtest.Short(id, callers, frames[0])
			shorts++
		}
		known[callers] = true
		short.fold(raw)
		switch {
		case i%500 == 250:
			both(func(a *Agent) { windows[a] = append(windows[a], a.openForTest()) })
		case i%700 == 0:
			epoch := random.Uint32N(3)
			both(func(a *Agent) {
				a.state().Table[int(id.PID)].Code.Store(&guest.JITCode{Low: guesttest.CodeAt, High: guesttest.CodeAt +
					2, Epoch: epoch, Again: 1 << 62})
			})
		case i%900 == 0:
			both(func(a *Agent) { a.state().Table[int(id.PID)].Attachment.Store(uint32(i)) })
		}
	}
	if shorts < 2_000 {
		t.Errorf("%d samples refer to others", shorts)
	}
	for i, w := range windows[full] {
		want, got := contextsOf(w), contextsOf(windows[short][i])
		if !maps.Equal(got, want) || len(want) == 0 {
			t.Errorf("window %d: %d contexts, want %d", i, len(got), len(want))
		}
		if windows[short][i].Contexts() != w.Contexts() || windows[short][i].Folded != w.Folded {
			t.Errorf("window %d: %d contexts of %d samples, want %d of %d", i, windows[short][i].Contexts(),
				windows[short][i].Folded, w.Contexts(), w.Folded)
		}
	}
	for pid, p := range full.state().Table {
		if !maps.Equal(short.state().Table[pid].Requested, p.Requested) {
			t.Errorf("process %d: other names are requested", pid)
		}
	}
}

// A tree that is full counts a short sample as it does one with its stack.
func TestShortSamplesWithoutRoom(t *testing.T) {
	var overflow, contexts []uint64
	for _, refer := range []bool{false, true} {
		a, w := testAgentWith(Options{MaxContexts: 12}, slog.New(slog.DiscardHandler))
		id, known := identity{PID: 100, Start: 5, Exec: 1}, map[uint64]bool{}
		for i := range 100 {
			frames := []bpf.Frame{nativeFrame + bpf.Frame(i%30), nativeFrame + bpf.Frame(i%3), nativeFrame}
			raw, callers := foldtest.Full(id, frames...)
			if refer && known[callers] {
				raw = foldtest.Short(id, callers, frames[0])
			}
			known[callers] = true
			a.fold(raw)
		}
		overflow, contexts = append(overflow, w.Overflow()), append(contexts, uint64(w.Contexts()))
	}
	if overflow[0] != overflow[1] || contexts[0] != contexts[1] || overflow[0] == 0 {
		t.Errorf("%d samples without room in %d contexts", overflow, contexts)
	}
}

// A sample that refers to a stack that is not known counts as discarded.
func TestShortSampleOfUnknownStack(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 5, Exec: 1}
	full, callers := foldtest.Full(id, nativeFrame, nativeFrame)
	a.fold(full)
	a.fold(foldtest.Short(id, callers+1, nativeFrame))
	other := identity{PID: 101, Start: 5, Exec: 1}
	a.fold(foldtest.Short(other, callers, nativeFrame))
	a.fold(foldtest.Short(id, callers, nativeFrame)[:50])
	a.fold(foldtest.Short(id, callers, nativeFrame))
	s := a.state()
	if s.Discarded[profile.UnknownStack] != 2 || s.Discarded[profile.Malformed] != 1 || w.Folded != 2 {
		t.Errorf("discarded %v, folded %d", s.Discarded, w.Folded)
	}
	if s.Samples != s.Folded+profile.Sum(s.Discarded) || w.Received != w.Folded+profile.Sum(w.Discarded) {
		t.Errorf("received %d, folded %d, discarded %v", s.Samples, s.Folded, s.Discarded)
	}
	if len(w.Processes) != 1 {
		t.Error("a sample without a stack makes a process")
	}
}
