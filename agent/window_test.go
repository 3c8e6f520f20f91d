package agent

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// sampleOf folds a sample of a process with one frame of its own for each n.
func sampleOf(a *Agent, id identity, n ...int) {
	for _, n := range n {
		a.handle(sampleRecord(id, nativeFrame+bpf.Frame(n)))
	}
}

// Names of a process go when it is gone and no window has samples of it, whichever comes first; until then they stay.
func TestNamesOfProcessesThatAreGone(t *testing.T) {
	id := identity{100, 5, 1}
	for _, c := range []struct {
		name  string
		steps func(a *Agent, w *Window)
		want  int64 // names that are left
	}{
		{"alive, no window", func(a *Agent, w *Window) { a.drop(w) }, 3},
		{"gone, in a window", func(a *Agent, w *Window) {
			a.handle(processRecord(bpf.EventProcessExit, id))
			a.submitDirty()
		}, 3},
		{"gone, then the window", func(a *Agent, w *Window) {
			a.handle(processRecord(bpf.EventProcessExit, id))
			a.submitDirty()
			a.drop(w)
		}, 0},
		{"the window, then gone", func(a *Agent, w *Window) {
			a.drop(w)
			a.handle(processRecord(bpf.EventProcessExit, id))
			a.submitDirty()
		}, 0},
		{"gone, and its pid used again", func(a *Agent, w *Window) {
			a.drop(w)
			a.handle(processRecord(bpf.EventProcessExec, identity{100, 5, 2}))
			sampleOf(a, identity{100, 5, 2})
			a.submitDirty()
		}, 0},
		{"gone, in one of two windows", func(a *Agent, w *Window) {
			second := a.openForTest()
			sampleOf(a, id, 1)
			a.handle(processRecord(bpf.EventProcessExit, id))
			a.submitDirty()
			a.drop(w)
			if a.nameCount.Load() == 0 {
				t.Error("the second window's name is gone")
			}
			a.drop(second)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := testAgent()
			sampleOf(a, id, 1, 2, 3)
			c.steps(a, w)
			if n := a.nameCount.Load(); n != c.want {
				t.Errorf("%d names are left, want %d", n, c.want)
			}
		})
	}
}

func (a *Agent) openForTest() *Window {
	w := newWindow(a, nil)
	a.windows[w] = struct{}{}
	return w
}

// What a window that is being named needs stays while another one closes.
func TestNamesOfClosingWindow(t *testing.T) {
	a, w := testAgent()
	id := identity{100, 5, 1}
	sampleOf(a, id, 1, 2)
	delete(a.windows, w) // as Window.end does
	a.closing[w] = struct{}{}
	other := a.openForTest()
	sampleOf(a, id, 3)
	a.handle(processRecord(bpf.EventProcessExit, id))
	a.submitDirty()
	a.nameCount.Add(fold.MaxNames) // under pressure
	a.drop(other)
	a.nameCount.Add(-fold.MaxNames)
	for p := range w.processes {
		if len(p.Requested) != 2 {
			t.Errorf("%d frames are remembered, want the two of the window", len(p.Requested))
		}
	}
	a.release(w)
	if n := a.nameCount.Load(); n != 0 {
		t.Errorf("%d names are left", n)
	}
}

// Many processes with few names each must not use up the names for ever.
func TestNamesUnderPressure(t *testing.T) {
	a, w := testAgent()
	const processes = 1 << 10
	for pid := range uint32(processes) {
		for n := range fold.MaxNames / processes {
			sampleOf(a, identity{pid + 1, 5, 1}, n)
		}
	}
	if n := a.nameCount.Load(); n != fold.MaxNames {
		t.Fatalf("%d names, want %d", n, fold.MaxNames)
	}
	a.drop(w)
	if n := a.nameCount.Load(); n > fold.MaxNames/2 {
		t.Errorf("%d names are left", n)
	}
}

// A frame that a worker names after it was forgotten does not stay for ever.
func TestTrimForgetsLateNames(t *testing.T) {
	a, w := testAgent()
	id := identity{100, 5, 1}
	sampleOf(a, id, 1)
	p := a.table[100]
	p.SetName(target.RawFrame{Frame: nativeFrame}, target.Name{}) // nobody asks for it any more
	a.handle(processRecord(bpf.EventProcessExit, id))
	a.drop(w)
	if namesOf(p) != 0 || len(p.Requested) != 0 {
		t.Errorf("%d names, %d requests are left", namesOf(p), len(p.Requested))
	}
}

func TestSweep(t *testing.T) {
	a, w := testAgent()
	root := t.TempDir()
	a.root = proc.Root(root)
	for _, pid := range []uint32{7, 8, 9} {
		sampleOf(a, identity{pid, 5, 1}, 1)
	}
	a.drop(w)
	if err := os.Mkdir(filepath.Join(root, fmt.Sprint(8)), 0o755); err != nil {
		t.Fatal(err)
	}
	a.sweep()
	a.submitDirty()
	if len(a.table) != 1 || a.table[8] == nil {
		t.Errorf("%d processes are left, want number 8", len(a.table))
	}
	if n := a.nameCount.Load(); n != 1 {
		t.Errorf("%d names are left, want 1", n)
	}
}

// All windows together hold a bounded number of contexts, whatever threads there are. Every sample is counted, those without room
// for a caller of the method that ran, and the profile says how many these are.
func TestWindowRoom(t *testing.T) {
	const room, threads, each = 50, 20, 100
	a, w := testAgent()
	a.opt.MaxContexts = room
	java := identity{pid: 4711, start: 5_000_000_123}
	for i := range uint64(threads * each) {
		s := sampleRecord(java, nativeFrame+bpf.Frame(i), nativeFrame+bpf.Frame(i%7), nativeFrame)
		(*bpf.Header)(unsafe.Pointer(unsafe.SliceData(s))).Tid = uint32(4711 + i%threads)
		a.handle(s)
	}
	// A sample may bring as many contexts as it has frames, and a tree that may not grow has one.
	if most := room + 3 + threads; w.contexts > most || a.contexts != w.contexts {
		t.Errorf("%d contexts in the window, %d in all, want %d at most", w.contexts, a.contexts, most)
	}
	var total uint64
	for _, of := range w.processes {
		for _, thread := range of {
			total += thread.Trees[profile.Certain].Total()
		}
	}
	if total != threads*each || w.folded != total {
		t.Errorf("%d samples in trees, %d folded, want %d", total, w.folded, threads*each)
	}
	if n := w.cut(); n < threads*each-room || n >= threads*each {
		t.Errorf("%d samples are cut of %d, with room for %d contexts", n, threads*each, room)
	}
	a.release(w)
	if a.contexts != 0 {
		t.Errorf("%d contexts are left of a window that is gone", a.contexts)
	}
}

// A thread has the name that it had at its last sample: threads of a JVM get theirs a moment after they start, and have their
// parent's until then.
func TestThreadName(t *testing.T) {
	a, w := testAgent()
	id := identity{100, 5, 1}
	for _, name := range []string{"java", "worker"} {
		record := sampleRecord(id, nativeFrame)
		copy(record[unsafe.Offsetof(bpf.ProfileSample{}.Comm):], append([]byte(name), 0))
		a.handle(record)
	}
	p := a.table[100]
	counts := profile.Counts{Truncated: map[string]uint64{}}
	if threads := p.Profile(w.processes[p], &counts).Threads; len(threads) != 1 || threads[0].Name != "worker" {
		t.Errorf("got threads %v, want one named worker", threads)
	}
}

// namesOf is how many frames of p have names.
func namesOf(p *fold.Process) int {
	names := p.Names()
	defer names.Close()
	return names.Len()
}

// TestMissingFramesInProfile: a window that closes after the first failure has the note.
func TestMissingFramesInProfile(t *testing.T) {
	a, _ := testAgent()
	p := fold.NewProcess(proc.Identity{PID: 7}, false)
	p.AttachResult(monotonic(), proc.ErrTimeout)
	w := newWindow(a, nil)
	out := w.profileOf(p, &profile.Counts{})
	if out == nil || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "Java frames of process") || !strings.Contains(out.Notes[0], proc.ErrTimeout.Error()) {
		t.Errorf("%+v", out)
	}
}
