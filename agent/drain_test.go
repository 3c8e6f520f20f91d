package agent

import (
	"log/slog"
	"testing"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/target/targettest"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// testAgent folds records, without a kernel side and without workers.
func testAgent() (*Agent, *Window) {
	a := &Agent{
		table: map[int]*fold.Process{}, dirty: map[*fold.Process]struct{}{},
		windows: map[*Window]struct{}{}, closing: map[*Window]struct{}{},
		discarded: noDiscards(), oldest: noTime,
		log: slog.New(slog.DiscardHandler),
	}
	a.resolver, a.joiner = target.NewResolver(target.Config{Runtimes: runtimes.Table(), Log: a.log}), a.newJoiner(nil, nil)
	w := newWindow(a, nil)
	a.windows[w] = struct{}{}
	return a, w
}

// Frames of native and of compiled code.
const (
	nativeFrame = bpf.Frame(uint64(bpf.FrameNative)<<60 | 0x7f0000001000)
	jitFrame    = bpf.Frame(uint64(bpf.FrameJIT)<<60 | 7<<32 | 0x100)
)

type identity struct {
	pid   uint32
	start uint64
	exec  uint32
}

func (id identity) header(kind uint8) bpf.Header {
	return bpf.Header{Time: 1, Pid: id.pid, Tid: id.pid, Start: id.start, Exec: id.exec, Kind: kind}
}

// sampleRecord is what the kernel side writes for a sample with these user frames.
func sampleRecord(id identity, frames ...bpf.Frame) []byte {
	s := bpf.ProfileSample{Header: id.header(bpf.EventSample), UserFrames: uint16(len(frames)), End: uint8(bpf.EndRoot)}
	for i, f := range frames {
		s.Frames[i] = uint64(f)
	}
	size := unsafe.Offsetof(s.Frames) + 8*uintptr(len(frames))
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&s)), size)...)
}

func processRecord(kind uint8, id identity) []byte {
	e := bpf.ProcessEvent{Header: id.header(kind)}
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))...)
}

// Samples of one pid are of one process until it executes another program, ends, or its pid is used again.
func TestProcessIdentity(t *testing.T) {
	first := identity{100, 5_000_000_123, 1}
	for _, c := range []struct {
		name    string
		between []byte
		second  identity
		want    int // processes
	}{
		{"the same", nil, first, 1},
		{"after exec", processRecord(bpf.EventProcessExec, identity{100, 5_000_000_123, 2}), identity{100, 5_000_000_123, 2}, 2},
		{"exec whose event was lost", nil, identity{100, 5_000_000_123, 2}, 2},
		{"exit and pid reuse", processRecord(bpf.EventProcessExit, first), identity{100, 9_000_000_456, 1}, 2},
		{"pid reuse whose exit was lost", nil, identity{100, 9_000_000_456, 1}, 2},
		{"exit of an earlier owner of the pid, told late", processRecord(bpf.EventProcessExit, identity{100, 1, 1}), first, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			a, w := testAgent()
			a.handle(sampleRecord(first, nativeFrame))
			if c.between != nil {
				a.handle(c.between)
			}
			a.handle(sampleRecord(c.second, nativeFrame))
			if len(w.processes) != c.want {
				t.Errorf("%d processes, want %d", len(w.processes), c.want)
			}
			if w.folded != 2 || a.received.samples != 2 {
				t.Errorf("%d samples folded, %d received, want 2", w.folded, a.received.samples)
			}
		})
	}
}

// A process that was found in /proc, whose start is known in 10 ms only, is the one that the kernel side speaks of.
func TestProcessFoundInProc(t *testing.T) {
	a, w := testAgent()
	p := fold.NewProcess(proc.Identity{PID: 100, Start: 5_000_000_000}, false)
	a.table[100] = p
	a.handle(sampleRecord(identity{100, 5_000_000_123, 4}, nativeFrame))
	if _, ok := w.processes[p]; !ok {
		t.Error("the sample was taken for another process's")
	}
	a.handle(processRecord(bpf.EventProcessExec, identity{100, 5_000_000_123, 5}))
	if !p.Exited.Load() {
		t.Error("the process was kept after it executed another program")
	}
}

// The kernel works for a process for a moment after it said that it ended: samples of that are still its own.
func TestSampleAfterExit(t *testing.T) {
	a, w := testAgent()
	id := identity{100, 5, 1}
	a.handle(sampleRecord(id, nativeFrame))
	a.handle(processRecord(bpf.EventProcessExit, id))
	a.handle(sampleRecord(id, nativeFrame))
	if len(w.processes) != 1 || w.folded != 2 {
		t.Errorf("%d samples of %d processes, want 2 of 1", w.folded, len(w.processes))
	}
	if a.submitDirty(); len(a.table) != 0 {
		t.Errorf("%d processes are left", len(a.table))
	}
}

// Every record that is received is folded or discarded for a reason.
func TestReceivedIdentity(t *testing.T) {
	a, w := testAgent()
	id := identity{100, 1, 1}
	a.handle(sampleRecord(id, nativeFrame))
	a.handle(sampleRecord(id)) // no frame at all
	broken := sampleRecord(id, nativeFrame, nativeFrame)
	a.handle(broken[:len(broken)-8]) // fewer frames than it says
	w.pids = map[int]bool{7: true}
	a.handle(sampleRecord(id, nativeFrame)) // of nobody's window
	if w.filtered != 1 || w.received != w.folded+profile.Sum(w.discarded) {
		t.Errorf("the window filtered %d, received %d, folded %d and discarded %v", w.filtered, w.received, w.folded, w.discarded)
	}
	want := map[string]uint64{profile.EmptyStack: 1, profile.Malformed: 1, profile.NoWindow: 1}
	for why, n := range want {
		if a.discarded[why] != n {
			t.Errorf("%s: %d, want %d", why, a.discarded[why], n)
		}
	}
	if got := a.received.folded + profile.Sum(a.discarded); a.received.samples != got {
		t.Errorf("received %d, folded and discarded %d", a.received.samples, got)
	}
}

func FuzzHandle(f *testing.F) {
	f.Add(sampleRecord(identity{1, 2, 3}, nativeFrame, jitFrame))
	f.Add(processRecord(bpf.EventProcessExit, identity{1, 2, 3}))
	f.Add(callRecord(identity{1, 2, 3}, bpf.EngineListener, 0, foldtest.JIT(1, 2), foldtest.JIT(3, 4)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		a, _ := listeningAgent()
		a.handle(raw)
		a.handle(raw)
		if c := a.engines.counts; c.received != c.folded+profile.Sum(c.discarded) {
			t.Errorf("of calls, received %d, folded %d, discarded %v", c.received, c.folded, c.discarded)
		}
		if a.received.samples != a.received.folded+profile.Sum(a.discarded) {
			t.Errorf("received %d, folded %d, discarded %v", a.received.samples, a.received.folded, a.discarded)
		}
	})
}

// The drainer marks frames as it gets them, and has the map read on when it is time, though it knows all frames.
func TestDrainerFollowsMap(t *testing.T) {
	a, _ := testAgent()
	a.engines = &callEngines{agent: a}
	a.engines.runFake(calls.Listener)
	a.sources.then = []source{a.engines}
	id, frame := identity{100, 5, 1}, target.RawFrame{Frame: targettest.NativeAt(targettest.CodeAt), Kind: target.RawExact}
	a.handle(sampleRecord(id, frame.Frame))
	p := a.table[100]
	for _, c := range []struct {
		code  target.JITCode
		dirty bool
	}{
		{target.JITCode{Epoch: 7, Again: 1 << 62}, true}, // the frame is a new one
		{target.JITCode{Epoch: 7, Again: 1 << 62}, false},
		{target.JITCode{Epoch: 7}, true},
	} {
		clear(a.dirty)
		c.code.Low, c.code.High = targettest.CodeAt, targettest.CodeAt+0x1000
		p.Code.Store(&c.code)
		a.handle(sampleRecord(id, frame.Frame))
		if _, dirty := a.dirty[p]; dirty != c.dirty {
			t.Errorf("%+v: to be worked on: %t", c.code, dirty)
		}
	}
	marked := frame
	marked.Epoch = 7
	if _, ok := p.Requested[marked]; !ok || len(p.Requested) != 2 {
		t.Errorf("requested are %v", p.Requested)
	}
	if p.Hot.Samples[targettest.CodeAt] != 3 {
		t.Errorf("%+v is hot", p.Hot)
	}
}

// TestSampleRetries: a sample hands a process to a worker when it is due, although its frames are known.
func TestSampleRetries(t *testing.T) {
	a, _ := testAgent()
	id := identity{100, 5_000_000_123, 1}
	a.handle(sampleRecord(id, 0x1000))
	p := a.table[100]
	clear(a.dirty)
	a.handle(sampleRecord(id, 0x1000))
	if len(a.dirty) != 0 {
		t.Fatal("a process without work is handed to a worker")
	}
	p.SetRetry(2)
	if a.handle(sampleRecord(id, 0x1000)); len(a.dirty) != 0 { // at 1 ns
		t.Error("the process is handed to a worker before it is due")
	}
	p.SetRetry(1)
	if a.handle(sampleRecord(id, 0x1000)); len(a.dirty) != 1 {
		t.Error("the process is not handed to a worker")
	}
}
