package agent

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// sampleOf folds a sample of a process with one frame of its own for each n.
func sampleOf(a *Agent, id identity, n ...int) {
	for _, n := range n {
		a.fold(sampleRecord(id, nativeFrame+bpf.Frame(n)))
	}
}

// Names of a process go when it is gone and no window has samples of it, whichever comes first;
// until then they stay.
func TestNamesOfProcessesThatAreGone(t *testing.T) {
	id := identity{PID: 100, Start: 5, Exec: 1}
	for _, c := range []struct {
		name  string
		steps func(a *Agent, w *fold.Window)
		want  int64 // names that are left
	}{
		{"alive, no window", func(a *Agent, w *fold.Window) { a.release(w) }, 3},
		{"gone, in a window", func(a *Agent, w *fold.Window) {
			a.fold(processRecord(bpf.EventProcessExit, id))
			a.owner.Do((*fold.State).Submit)
		}, 3},
		{"gone, then the window", func(a *Agent, w *fold.Window) {
			a.fold(processRecord(bpf.EventProcessExit, id))
			a.owner.Do((*fold.State).Submit)
			a.release(w)
		}, 0},
		{"the window, then gone", func(a *Agent, w *fold.Window) {
			a.release(w)
			a.fold(processRecord(bpf.EventProcessExit, id))
			a.owner.Do((*fold.State).Submit)
		}, 0},
		{"gone, and its pid used again", func(a *Agent, w *fold.Window) {
			a.release(w)
			a.fold(processRecord(bpf.EventProcessExec, identity{PID: 100, Start: 5, Exec: 2}))
			sampleOf(a, identity{PID: 100, Start: 5, Exec: 2})
			a.owner.Do((*fold.State).Submit)
		}, 0},
		{"gone, in one of two windows", func(a *Agent, w *fold.Window) {
			second := a.openForTest()
			sampleOf(a, id, 1)
			a.fold(processRecord(bpf.EventProcessExit, id))
			a.owner.Do((*fold.State).Submit)
			a.release(w)
			if a.state().Names == 0 {
				t.Error("the second window's name is gone")
			}
			a.release(second)
		}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := testAgent()
			sampleOf(a, id, 1, 2, 3)
			c.steps(a, w)
			if n := a.state().Names; n != c.want {
				t.Errorf("%d names are left, want %d", n, c.want)
			}
		})
	}
}

// What a window that is being named needs stays while another one closes.
func TestNamesOfClosingWindow(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 5, Exec: 1}
	sampleOf(a, id, 1, 2)
	a.state().Close(w) // as Window.end does
	other := a.openForTest()
	sampleOf(a, id, 3)
	a.fold(processRecord(bpf.EventProcessExit, id))
	a.owner.Do((*fold.State).Submit)
	a.state().Names += fold.MaxNames // under pressure
	a.release(other)
	a.state().Names -= fold.MaxNames
	for p := range w.Processes {
		if len(p.Requested) != 2 {
			t.Errorf("%d frames are remembered, want the two of the window", len(p.Requested))
		}
	}
	a.release(w)
	if n := a.state().Names; n != 0 {
		t.Errorf("%d names are left", n)
	}
}

// Many processes with few names each must not use up the names for ever.
func TestNamesUnderPressure(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	a, w := testAgent()
	const processes = 1 << 10
	for pid := range uint32(processes) {
		for n := range fold.MaxNames / processes {
			sampleOf(a, identity{PID: pid + 1, Start: 5, Exec: 1}, n)
		}
	}
	if n := a.state().Names; n != fold.MaxNames {
		t.Fatalf("%d names, want %d", n, fold.MaxNames)
	}
	a.release(w)
	if n := a.state().Names; n > fold.MaxNames/2 {
		t.Errorf("%d names are left", n)
	}
}

// A frame that a worker names after it was forgotten does not stay for ever.
func TestTrimForgetsLateNames(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 5, Exec: 1}
	sampleOf(a, id, 1)
	p := a.state().Table[100]
	p.SetName(guest.RawFrame{Frame: nativeFrame}, guest.Name{}) // nobody asks for it any more
	a.fold(processRecord(bpf.EventProcessExit, id))
	a.release(w)
	if namesOf(p) != 0 || len(p.Requested) != 0 {
		t.Errorf("%d names, %d requests are left", namesOf(p), len(p.Requested))
	}
}

func TestSweep(t *testing.T) {
	a, w := testAgent()
	root := t.TempDir()
	a.services.Root = proc.Root(root)
	for _, pid := range []uint32{7, 8, 9} {
		sampleOf(a, identity{PID: pid, Start: 5, Exec: 1}, 1)
	}
	a.release(w)
	if err := os.Mkdir(filepath.Join(root, fmt.Sprint(8)), 0o755); err != nil {
		t.Fatal(err)
	}
	a.sweep()
	a.owner.Do((*fold.State).Submit)
	if len(a.state().Table) != 1 || a.state().Table[8] == nil {
		t.Errorf("%d processes are left, want number 8", len(a.state().Table))
	}
	if n := a.state().Names; n != 1 {
		t.Errorf("%d names are left, want 1", n)
	}
}

// All windows together hold a bounded number of contexts, whatever threads there are. Every sample
// is counted, those without room for a caller of the method that ran, and the profile says how many
// these are.
func TestWindowRoom(t *testing.T) {
	const room, threads, each = 50, 20, 100
	a, w := testAgentWith(Options{MaxContexts: room}, slog.New(slog.DiscardHandler))
	java := identity{PID: 4711, Start: 5_000_000_123}
	for i := range uint64(threads * each) {
		s := sampleRecord(java, nativeFrame+bpf.Frame(i), nativeFrame+bpf.Frame(i%7), nativeFrame)
		(*bpf.Header)(unsafe.Pointer(unsafe.SliceData(s))).Tid = uint32(4711 + i%threads)
		a.fold(s)
	}
	// A sample may bring as many contexts as it has frames, and a tree that may not grow has one.
	if most := room + 3 + threads; w.Contexts() > most || a.state().Contexts() != w.Contexts() {
		t.Errorf("%d contexts in the window, %d in all, want %d at most", w.Contexts(), a.state().Contexts(), most)
	}
	var total uint64
	for _, of := range w.Processes {
		for _, thread := range of {
			total += thread.Trees[profile.Certain].Total()
		}
	}
	if total != threads*each || w.Folded != total {
		t.Errorf("%d samples in trees, %d folded, want %d", total, w.Folded, threads*each)
	}
	if n := w.Overflow(); n < threads*each-room || n >= threads*each {
		t.Errorf("%d samples are cut of %d, with room for %d contexts", n, threads*each, room)
	}
	a.release(w)
	if a.state().Contexts() != 0 {
		t.Errorf("%d contexts are left of a window that is gone", a.state().Contexts())
	}
}

// What a thread does counts for the name that it has then. Threads of a JVM get theirs a moment
// after they start, and have their parent's until then: what they do before counts for their own.
func TestThreadName(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 5, Exec: 1}
	for _, name := range []string{"java", "worker", "task", "worker"} {
		record := sampleRecord(id, nativeFrame)
		copy(record[unsafe.Offsetof(bpf.ProfileSample{}.Comm):], append([]byte(name), 0))
		a.fold(record)
	}
	p := a.state().Table[100]
	counts := profile.Counts{Truncated: map[string]uint64{}}
	got := map[string]uint64{}
	for _, thread := range p.Profile(w.Processes[p], &counts).Threads {
		got[thread.Name] += thread.Tree.Total()
	}
	if want := map[string]uint64{"worker": 3, "task": 1}; !maps.Equal(got, want) {
		t.Errorf("samples by name: %v, want %v", got, want)
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
	out := a.processProfile(w.open, p, nil, &profile.Counts{})
	if out == nil || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "Java frames of process") ||
		!strings.Contains(out.Notes[0], proc.ErrTimeout.Error()) {
		t.Errorf("%+v", out)
	}
}
