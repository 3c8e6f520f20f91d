package agent

import (
	"fmt"
	"log/slog"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/intern"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/guesttest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// testAgent folds records, without a kernel side and without workers.
func testAgent() (*Agent, *fold.Window) {
	return testAgentWith(Options{}, slog.New(slog.DiscardHandler))
}

func testAgentWith(opt Options, log *slog.Logger) (*Agent, *fold.Window) {
	a := &Agent{opt: opt, services: &source.Services{Log: log,
		Resolver: guest.NewResolver(guest.Config{Runtimes: runtimes.Table(), Log: log}), Filter: true}}
	a.handlers = a.ownHandlers()
	a.own(nil, nil)
	a.stacks, _ = intern.New(noKernel{}, log)
	return a, a.openForTest()
}

// A noKernel keeps no tags.
type noKernel struct{}

func (noKernel) Reseed(uint64) error       { return nil }
func (noKernel) ForgetSuffix(uint64) error { return nil }
func (noKernel) ForgetThread(uint32) error { return nil }

// state is what only functions that the owner calls have otherwise: nothing else runs in these
// tests.
func (a *Agent) state() (s *fold.State) {
	a.owner.Do(func(own *fold.State) { s = own })
	return s
}

// fold folds a record as the drainer does, but panics if that does.
func (a *Agent) fold(raw []byte) { a.handle(a.state(), raw) }

func (a *Agent) openForTest() *fold.Window {
	w := fold.NewWindow(nil)
	a.state().Open(w)
	return w
}

// release forgets a window.
func (a *Agent) release(w *fold.Window) { a.drop(&Window{open: w}) }

// Frames of native and of compiled code.
const (
	nativeFrame = bpf.Frame(uint64(bpf.FrameNative)<<60 | 0x7f0000001000)
	jitFrame    = bpf.Frame(uint64(bpf.FrameJIT)<<60 | 7<<32 | 0x100)
)

type (
	identity = foldtest.Identity
	record   = foldtest.Record
)

func sampleRecord(id identity, frames ...bpf.Frame) []byte { return foldtest.Sample(id, frames...) }

func processRecord(kind uint8, id identity) []byte { return foldtest.Process(kind, id) }

// Samples of one pid are of one process until it executes another program, ends, or its pid is used
// again.
func TestProcessIdentity(t *testing.T) {
	first := identity{PID: 100, Start: 5_000_000_123, Exec: 1}
	for _, c := range []struct {
		name    string
		between []byte
		second  identity
		want    int // processes
	}{
		{"the same", nil, first, 1},
		{"after exec", processRecord(bpf.EventProcessExec, identity{PID: 100, Start: 5_000_000_123, Exec: 2}),
			identity{PID: 100, Start: 5_000_000_123, Exec: 2}, 2},
		{"exec whose event was lost", nil, identity{PID: 100, Start: 5_000_000_123, Exec: 2}, 2},
		{"exit and pid reuse", processRecord(bpf.EventProcessExit, first),
			identity{PID: 100, Start: 9_000_000_456, Exec: 1}, 2},
		{"pid reuse whose exit was lost", nil, identity{PID: 100, Start: 9_000_000_456, Exec: 1}, 2},
		{"exit of an earlier owner of the pid, told late", processRecord(bpf.EventProcessExit,
			identity{PID: 100, Start: 1, Exec: 1}), first, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := testAgent()
			a.fold(sampleRecord(first, nativeFrame))
			if c.between != nil {
				a.fold(c.between)
			}
			a.fold(sampleRecord(c.second, nativeFrame))
			if len(w.Processes) != c.want {
				t.Errorf("%d processes, want %d", len(w.Processes), c.want)
			}
			if w.Folded != 2 || a.state().Samples != 2 {
				t.Errorf("%d samples folded, %d received, want 2", w.Folded, a.state().Samples)
			}
		})
	}
}

// A process that was found in /proc, whose start is known in 10 ms only, is the one that the kernel
// side speaks of.
func TestProcessFoundInProc(t *testing.T) {
	a, w := testAgent()
	p := fold.NewProcess(proc.Identity{PID: 100, Start: 5_000_000_000}, false)
	a.state().Table[100] = p
	a.fold(sampleRecord(identity{PID: 100, Start: 5_000_000_123, Exec: 4}, nativeFrame))
	if _, ok := w.Processes[p]; !ok {
		t.Error("the sample was taken for another process's")
	}
	a.fold(processRecord(bpf.EventProcessExec, identity{PID: 100, Start: 5_000_000_123, Exec: 5}))
	if !p.Exited.Load() {
		t.Error("the process was kept after it executed another program")
	}
}

// The kernel works for a process for a moment after it said that it ended: samples of that are
// still its own.
func TestSampleAfterExit(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 5, Exec: 1}
	a.fold(sampleRecord(id, nativeFrame))
	a.fold(processRecord(bpf.EventProcessExit, id))
	a.fold(sampleRecord(id, nativeFrame))
	if len(w.Processes) != 1 || w.Folded != 2 {
		t.Errorf("%d samples of %d processes, want 2 of 1", w.Folded, len(w.Processes))
	}
	if a.owner.Do((*fold.State).Submit); len(a.state().Table) != 0 {
		t.Errorf("%d processes are left", len(a.state().Table))
	}
}

// Every record that is received is folded or discarded for a reason.
func TestReceivedIdentity(t *testing.T) {
	a, w := testAgent()
	id := identity{PID: 100, Start: 1, Exec: 1}
	a.fold(sampleRecord(id, nativeFrame))
	a.fold(sampleRecord(id)) // no frame at all
	broken := sampleRecord(id, nativeFrame, nativeFrame)
	a.fold(broken[:len(broken)-8]) // fewer frames than it says
	w.PIDs = map[int]bool{7: true}
	a.fold(sampleRecord(id, nativeFrame)) // belongs to nobody's window
	if w.Filtered != 1 || w.Received != w.Folded+profile.Sum(w.Discarded) {
		t.Errorf("the window filtered %d, received %d, folded %d and discarded %v", w.Filtered, w.Received, w.Folded,
			w.Discarded)
	}
	want := map[string]uint64{profile.EmptyStack: 1, profile.Malformed: 1, profile.NoWindow: 1}
	for why, n := range want {
		if a.state().Discarded[why] != n {
			t.Errorf("%s: %d, want %d", why, a.state().Discarded[why], n)
		}
	}
	if got := a.state().Folded + profile.Sum(a.state().Discarded); a.state().Samples != got {
		t.Errorf("received %d, folded and discarded %d", a.state().Samples, got)
	}
}

// Records of what an agent does not record are counted, and nothing else.
func TestUnknownRecords(t *testing.T) {
	a, w := testAgent()
	r := record{Identity: identity{PID: 100, Start: 5, Exec: 1}, Attachment: 7, User: "a:1 b:2"}
	a.fold(foldtest.Observation(r, bpf.ProbeObservation{What: bpf.ObservedAllocation, Every: 1, Count: 2,
		Values: [8]uint64{16, 1 << 18}}, "A"))
	a.fold(foldtest.Call(r.Identity, bpf.EngineListener, 3, foldtest.JIT(1, 4), foldtest.JIT(2, 8)))
	if s := a.state(); s.Unknown != 2 || s.Samples != 0 || len(s.Table) != 0 || len(w.Processes) != 0 {
		t.Errorf("%d records unknown, %d samples of %d processes", s.Unknown, s.Samples, len(s.Table))
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(sampleRecord(identity{PID: 1, Start: 2, Exec: 3}, nativeFrame, jitFrame))
	f.Add(processRecord(bpf.EventProcessExit, identity{PID: 1, Start: 2, Exec: 3}))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, _ := testAgent()
		a.fold(raw)
		a.fold(raw)
		if a.state().Samples != a.state().Folded+profile.Sum(a.state().Discarded) {
			t.Errorf("received %d, folded %d, discarded %v", a.state().Samples, a.state().Folded, a.state().Discarded)
		}
	})
}

// The drainer marks frames as it gets them, and has the map read on when it is time, though it
// knows all frames.
func TestDrainerFollowsMap(t *testing.T) {
	a, _ := testAgent()
	a.state().Hot = true
	id, frame := identity{PID: 100, Start: 5, Exec: 1}, guest.RawFrame{Frame: guesttest.NativeAt(guesttest.CodeAt),
		Kind: guest.RawExact}
	a.fold(sampleRecord(id, frame.Frame))
	p := a.state().Table[100]
	for _, c := range []struct {
		code  guest.JITCode
		dirty bool
	}{
		{guest.JITCode{Epoch: 7, Again: 1 << 62}, true}, // the frame is a new one
		{guest.JITCode{Epoch: 7, Again: 1 << 62}, false},
		{guest.JITCode{Epoch: 7}, true},
	} {
		clear(a.state().Dirty)
		c.code.Low, c.code.High = guesttest.CodeAt, guesttest.CodeAt+0x1000
		p.Code.Store(&c.code)
		a.fold(sampleRecord(id, frame.Frame))
		if _, dirty := a.state().Dirty[p]; dirty != c.dirty {
			t.Errorf("%+v: to be worked on: %t", c.code, dirty)
		}
	}
	marked := frame
	marked.Epoch = 7
	if _, ok := p.Requested[marked]; !ok || len(p.Requested) != 2 {
		t.Errorf("requested are %v", p.Requested)
	}
	if p.Hot.Samples[guesttest.CodeAt] != 3 {
		t.Errorf("%+v is hot", p.Hot)
	}
}

// TestSampleRetries: a sample hands a process to a worker when it is due, although its frames are
// known.
func TestSampleRetries(t *testing.T) {
	a, _ := testAgent()
	id := identity{PID: 100, Start: 5_000_000_123, Exec: 1}
	a.fold(sampleRecord(id, 0x1000))
	p := a.state().Table[100]
	clear(a.state().Dirty)
	a.fold(sampleRecord(id, 0x1000))
	if len(a.state().Dirty) != 0 {
		t.Fatal("a process without work is handed to a worker")
	}
	p.SetRetry(2)
	if a.fold(sampleRecord(id, 0x1000)); len(a.state().Dirty) != 0 { // at 1 ns
		t.Error("the process is handed to a worker before it is due")
	}
	p.SetRetry(1)
	if a.fold(sampleRecord(id, 0x1000)); len(a.state().Dirty) != 1 {
		t.Error("the process is not handed to a worker")
	}
}

// BenchmarkReceive folds samples whose stacks and frames are known, as nearly all are, of CPUs that
// tick in turn. A thread has one stack or many, which differ in their three innermost frames. The
// aim is a microsecond a sample and no allocation.
func BenchmarkReceive(b *testing.B) {
	fold.FindNested = false
	b.Cleanup(func() { fold.FindNested = true })
	for _, c := range []struct {
		cpus, stacks int
		short        bool // samples refer to earlier ones
	}{
		{2, 1, false}, {8, 1, false}, {128, 1, false}, {8, 100, false}, {8, 10_000, false}, {128, 100, false},
		{2, 1, true}, {8, 1, true}, {128, 1, true}, {8, 100, true}, {8, 10_000, true}, {128, 100, true},
	} {
		b.Run(fmt.Sprintf("cpus=%d/stacks=%d/short=%t", c.cpus, c.stacks, c.short), func(b *testing.B) {
			a, w := testAgent()
			var records, again [][]byte
			for i := range c.cpus * c.stacks {
				frames := make([]bpf.Frame, 24)
				for level := range frames {
					frames[level] = nativeFrame + bpf.Frame(level<<20)
				}
				for level, stack := 2, i/c.cpus; level >= 0; level, stack = level-1, stack/22 {
					frames[level] += bpf.Frame(stack % 22)
				}
				id := identity{PID: uint32(i%c.cpus) + 1, Start: 5, Exec: 1}
				if !c.short {
					records = append(records, sampleRecord(id, frames...))
					continue
				}
				full, callers := foldtest.Full(id, frames...)
				records, again = append(records, full), append(again, foldtest.Short(id, callers, frames[0]))
			}
			for _, r := range records {
				a.receive(r)
			}
			if c.short {
				records = again
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				a.receive(records[i%len(records)])
			}
			if w.Folded < uint64(b.N) || w.Contexts() < len(records) {
				b.Errorf("%d samples with %d contexts are in the window, want %d of %d stacks", w.Folded, w.Contexts(),
					b.N, len(records))
			}
		})
	}
}

func TestRingBytes(t *testing.T) {
	for cpus, want := range map[int]uint32{1: 1 << 20, 2: 1 << 20, 3: 2 << 20, 4: 2 << 20, 8: 4 << 20, 9: 4 << 20,
		1 << 20: 4 << 20} {
		if got := ringBytesOf(cpus); got != want {
			t.Errorf("%d CPUs: %d bytes, want %d", cpus, got, want)
		}
	}
}
