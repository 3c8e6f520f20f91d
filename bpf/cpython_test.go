//go:build linux && amd64

package bpf

import (
	"bytes"
	"encoding/binary"
	"os"
	"testing"
	"time"
	"unsafe"
)

// A fakePython is an interpreter in memory of the test, and the stack of a thread that runs it.
type fakePython struct {
	CPythonProcess
	*fakeStack
	mem    region
	top    uint64 // where the next structure goes
	thread uint64 // PyThreadState
	self   uint64 // pthread_self() of the thread
	first  uint64 // innermost frame
}

// pythons are what differs between versions, as far as the walker cares.
var pythons = []struct {
	name  string
	setup func(*CPythonProcess)
}{
	{"3.9", func(p *CPythonProcess) {
		p.Form = CPythonEntryEach | CPythonBytes
		p.FrameBytes, p.FrameCode, p.FramePrevious, p.FrameAt = 112, 32, 24, 104
		p.CodeBytes, p.CodeFirst, p.CodeFile, p.CodeName, p.CodeLines = 128, 40, 104, 112, 120
		p.ThreadFrame = 24
		p.Gil = 0x7000_0000
	}},
	{"3.10", func(p *CPythonProcess) {
		p.Form = CPythonEntryEach
		p.FrameBytes, p.FrameCode, p.FramePrevious, p.FrameAt = 104, 32, 24, 96
		p.CodeBytes, p.CodeFirst, p.CodeFile, p.CodeName, p.CodeLines = 128, 40, 104, 112, 120
		p.ThreadFrame = 24
		p.Gil = 0x7000_0000
	}},
	{"3.11", func(p *CPythonProcess) {
		newerPython(p)
		p.Form = CPythonAddress | CPythonCFrame | CPythonEntryFlag
		p.FrameCode, p.FramePrevious, p.FrameAt, p.FrameEntry = 32, 48, 56, 68
		p.CodeFirst, p.ThreadFrame, p.CframeFrame = 72, 56, 8
		p.Gil = 0x7000_0000
	}},
	{"3.12", func(p *CPythonProcess) {
		newerPython(p)
		p.Form = CPythonAddress | CPythonCFrame | CPythonEntryShim
		p.ThreadFrame = 56
	}},
	{"3.13", newerPython},
}

func newerPython(p *CPythonProcess) {
	p.Form = CPythonAddress | CPythonEntryShim
	p.FrameBytes, p.FrameCode, p.FramePrevious, p.FrameAt, p.FrameEntry = 80, 0, 8, 56, 70
	p.CodeBytes, p.CodeFirst, p.CodeFile, p.CodeName, p.CodeLines = 144, 64, 112, 120, 136
	p.CodeBegin, p.CodeUnits, p.ThreadFrame, p.InterpreterGil = 200, 16, 72, 16
}

const pythonUnits = 1000 // instructions of each code object

// pythonText is memory in which every address follows a call, as return addresses do.
var pythonText = func() uint64 {
	text := bytes.Repeat([]byte{0xe8}, 1<<16)
	pythonTextBytes = text
	return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(text))))
}()

var pythonTextBytes []byte // keeps it

// Places in that: the interpreter's loop of 0x1000 bytes, the place in it that calls, and places outside.
var (
	evalLoop    = pythonText + 0x1000
	evalCall    = evalLoop + 0x500
	pythonOther = pythonText + 0x4000
	pythonLibc  = pythonText + 0x8000
)

// newPython makes an interpreter whose first thread is another one, and a thread with a native stack.
func newPython(t testing.TB, setup func(*CPythonProcess)) *fakePython {
	vm := &fakeVM{}
	p := &fakePython{fakeStack: vm.newStack(t, 1<<20), mem: newRegion(t, 4<<20), self: 0x7f55_0000_0700}
	p.top = p.mem.base
	p.CodeType, p.EvalLow, p.EvalHigh, p.GilSize = 0x9000, evalLoop, evalLoop+0x1000, 208
	p.InterpreterNext, p.InterpreterThreads = 0, 8
	p.ThreadNext, p.ThreadInterpreter, p.ThreadId, p.ObjectType = 8, 16, 152, 8
	setup(&p.CPythonProcess)
	p.fakeStack.sp, p.fakeStack.bp, p.pc = p.fakeStack.mem.end()-1024, 0, pythonLibc-0x100
	p.frames = []placedFrame{{native(pythonLibc - 0x100), 0}}
	interpreter, other := p.alloc(256), p.alloc(256)
	p.thread = p.alloc(256)
	p.Interpreters = p.alloc(8)
	p.mem.put64(p.Interpreters, interpreter)
	p.mem.put64(interpreter+uint64(p.InterpreterThreads), other)
	p.mem.put64(other+uint64(p.ThreadNext), p.thread)
	p.mem.put64(p.thread+uint64(p.ThreadId), p.self)
	p.mem.put64(p.thread+uint64(p.ThreadInterpreter), interpreter)
	return p
}

func (p *fakePython) alloc(size uint64) uint64 {
	at := p.top
	p.top += (size + 15) &^ 15
	return at
}

// code makes a code object.
func (p *fakePython) code(name uint64) uint64 {
	at := p.alloc(uint64(p.CodeBytes) + 16)
	p.mem.put64(at+uint64(p.ObjectType), p.CodeType)
	p.mem.put64(at+uint64(p.CodeFirst), 17)
	p.mem.put64(at+uint64(p.CodeFile), 0x5000)
	p.mem.put64(at+uint64(p.CodeName), name)
	p.mem.put64(at+uint64(p.CodeLines), 0x6000)
	if p.Form&CPythonAddress != 0 {
		p.mem.put64(at+uint64(p.CodeUnits), pythonUnits)
	}
	return at
}

// frame adds a frame to the list. entry says that the interpreter's loop was entered with it.
func (p *fakePython) frame(code uint64, index uint16, entry bool) uint64 {
	if p.Form&CPythonEntryShim != 0 && entry {
		shim := p.alloc(uint64(p.FrameBytes))
		p.mem.put64(shim+uint64(p.FramePrevious), p.first)
		p.mem.at(shim + uint64(p.FrameEntry))[0] = 3
		p.first = shim
	}
	f := p.alloc(uint64(p.FrameBytes))
	p.mem.put64(f+uint64(p.FrameCode), code)
	p.mem.put64(f+uint64(p.FramePrevious), p.first)
	switch {
	case p.Form&CPythonAddress != 0:
		p.mem.put64(f+uint64(p.FrameAt), code+uint64(p.CodeBegin)+2*uint64(index))
	case p.Form&CPythonBytes != 0:
		p.mem.put32(f+uint64(p.FrameAt), 2*uint32(index))
	default:
		p.mem.put32(f+uint64(p.FrameAt), uint32(index))
	}
	if p.Form&CPythonEntryFlag != 0 && entry {
		p.mem.at(f + uint64(p.FrameEntry))[0] = 1
	}
	p.first = f
	return f
}

// python calls a function of Python: from C if entry is set, and otherwise from Python. Where each frame
// has a loop of its own, it is always from C.
func (p *fakePython) python(code uint64, index uint16, entry bool) *fakePython {
	if p.Form&CPythonEntryEach != 0 {
		entry = true
	}
	if entry {
		p.unseen(evalCall)
	}
	p.frame(code, index, entry)
	p.seen(interpretedFrame(code, index))
	return p
}

// interpretedFrame is the frame of an instruction of a code object.
func interpretedFrame(code uint64, index uint16) Frame {
	return Frame(FrameInterpreted)<<60 | Frame(code>>3&(1<<44-1))<<16 | Frame(index)
}

// frameList is what a thread has of its frames: the innermost one, or what leads to it.
func (p *fakePython) frameList(innermost uint64) uint64 {
	if p.Form&CPythonCFrame == 0 {
		return innermost
	}
	to := p.alloc(16)
	p.mem.put64(to+uint64(p.CframeFrame), innermost)
	return to
}

// start makes the list of frames that of the thread, and the interpreter known to the kernel side.
func (p *fakePython) start(t testing.TB, w *walker) WalkTestRequest {
	p.mem.put64(p.thread+uint64(p.ThreadFrame), p.frameList(p.first))
	p.Serial = lastSerial.Add(1)
	p.Slot = p.Serial % MaxAttached
	epochs := ProfileEpochs{}
	if err := w.Epochs.Put(p.Slot, &epochs); err != nil {
		t.Fatal(err)
	}
	pid := uint32(os.Getpid())
	if err := w.Processes.Put(pid, CPythonRecord(&p.CPythonProcess)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Processes.Delete(pid) })
	return WalkTestRequest{
		Pid: pid, Pc: p.pc, Sp: p.fakeStack.sp, Bp: p.fakeStack.bp, Fsbase: p.self, Tid: p.Serial, Born: uint64(p.Serial),
	}
}

// outermostPython drops the native frames before the first of Python's: a walk ends there.
func (p *fakePython) outermostPython() {
	for i, f := range p.frames {
		if f.Kind() == FrameInterpreted {
			p.frames = p.frames[i:]
			return
		}
	}
}

func eachPython(t *testing.T, test func(t *testing.T, w *walker, p *fakePython)) {
	w := newWalker(t)
	for _, v := range pythons {
		t.Run(v.name, func(t *testing.T) {
			pinned(t)
			test(t, w, newPython(t, v.setup))
		})
	}
}

// TestKernelPython walks stacks on which C and Python take turns.
func TestKernelPython(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main, handler, key := p.code(0x100), p.code(0x200), p.code(0x300)
		p.native(pythonOther)
		p.python(main, 3, true).python(handler, 500, false)
		p.native(pythonOther + 0x40) // list.sort calls its key function
		p.native(pythonOther + 0x80)
		p.python(key, 7, true)
		p.native(pythonOther + 0xc0)
		p.native(pythonLibc)
		p.outermostPython()
		req := p.start(t, w)
		got := p.check(t, w, req, EndRoot)
		if got.Attachment != p.Serial {
			t.Errorf("the sample is of attachment %d, want %d", got.Attachment, p.Serial)
		}
		p.check(t, w, req, EndRoot) // the thread is known now
	})
}

// The sampled instruction is in the interpreter's loop.
func TestKernelPythonLoop(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main := p.code(0x100)
		p.python(main, 3, true).python(main, 4, false).python(main, 5, false)
		p.outermostPython()
		p.check(t, w, p.start(t, w), EndRoot)
	})
}

// Where native code has no frame pointers, all frames of Python follow the native ones that were
// found.
func TestKernelPythonNoFramePointer(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main, key := p.code(0x100), p.code(0x200)
		p.python(main, 3, true).python(main, 4, false)
		p.native(pythonOther)
		p.python(key, 5, true)
		p.native(pythonOther + 0x40)
		p.fakeStack.bp = poison
		p.frames = p.frames[:0]
		p.seen(interpretedFrame(main, 3))
		p.seen(interpretedFrame(main, 4))
		p.seen(interpretedFrame(key, 5))
		p.seen(native(pythonOther + 0x40))
		p.check(t, w, p.start(t, w), EndRoot)
	})
}

// A thread of an interpreter that is none of Python's, and one that runs nothing.
func TestKernelPythonNoFrames(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		p.native(pythonOther)
		req := p.start(t, w)
		p.check(t, w, req, EndRoot)
		req.Fsbase += 8
		req.Tid++
		p.check(t, w, req, EndRoot)
		p.check(t, w, req, EndRoot)
	})
}

// Another interpreter's thread, behind the first interpreter's.
func TestKernelPythonInterpreters(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		p.python(p.code(0x100), 3, true)
		p.outermostPython()
		first, second := p.mem.word(p.Interpreters), p.alloc(256)
		idle := p.alloc(256) // the thread's state in the first interpreter
		p.mem.put64(idle+uint64(p.ThreadId), p.self)
		p.mem.put64(first+uint64(p.InterpreterThreads), idle)
		p.mem.put64(first+uint64(p.InterpreterNext), second)
		p.mem.put64(second+uint64(p.InterpreterThreads), p.thread)
		p.check(t, w, p.start(t, w), EndRoot)
	})
}

// A thread that runs code of a subinterpreter, which its code of the main one has called. The
// subinterpreter is the newer one. It stays when its code has returned.
func TestKernelPythonSubinterpreter(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main, sub := p.code(0x100), p.code(0x200)
		p.python(main, 3, true).python(main, 4, false)
		outer := p.first
		p.native(pythonOther)
		p.first = 0
		p.python(sub, 5, true).python(sub, 6, false)
		p.native(pythonOther + 0x40)
		p.outermostPython()
		first, newer := p.mem.word(p.Interpreters), p.alloc(256)
		state := p.alloc(256) // in the main interpreter
		p.mem.put64(state+uint64(p.ThreadId), p.self)
		p.mem.put64(state+uint64(p.ThreadFrame), p.frameList(outer))
		p.mem.put64(first+uint64(p.InterpreterThreads), state)
		p.mem.put64(newer+uint64(p.InterpreterThreads), p.thread)
		p.mem.put64(newer+uint64(p.InterpreterNext), first)
		p.mem.put64(p.Interpreters, newer)
		req := p.start(t, w)
		p.check(t, w, req, EndRoot)
		p.check(t, w, req, EndRoot) // the thread is searched again
		p.mem.put64(p.thread+uint64(p.ThreadFrame), p.frameList(0))
		req.Bp = poison
		compare(t, w.walk(t, req), []Frame{
			native(pythonOther + 0x40), interpretedFrame(main, 4), interpretedFrame(main, 3),
		}, EndRoot)
	})
}

// Words of the stack that code without frame pointers leads to are no frames.
func TestKernelPythonNoCall(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main := p.code(0x100)
		p.python(main, 3, true)
		p.outermostPython()
		p.unseen(libc + 0x10) // nothing is there
		req := p.start(t, w)
		compare(t, w.walk(t, req), []Frame{native(libc + 0x10), interpretedFrame(main, 3)}, EndRoot)
	})
}

// A function that has not built its frame yet, or has given it up, is the loop's: what rbp leads to is
// what called the loop.
func TestKernelPythonNoFrameYet(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main, key := p.code(0x100), p.code(0x200)
		p.python(main, 3, true)
		p.native(pythonOther)
		p.python(key, 4, true)
		p.outermostPython()
		text := newRegion(t, 4096)
		for i, test := range []struct {
			code  string
			frame bool // rbp is pushed
		}{
			{"\xf3\x0f\x1e\xfa", false}, {"\x55\x48\x89\xe5", false}, {"\xc3\x90\x90\x90", false},
			{"\xff\x25\x01\x02", false}, {"\x48\x89\xe5\x90", true},
		} {
			pc := text.base + uint64(64*i)
			copy(text.at(pc), test.code)
			sp := p.fakeStack.sp
			p.push(evalCall)
			if test.frame {
				p.push(p.bp)
			}
			req := p.start(t, w)
			req.Pc = pc
			compare(t, w.walk(t, req), []Frame{
				native(pc), interpretedFrame(key, 4), native(pythonOther), interpretedFrame(main, 3),
			}, EndRoot)
			p.fakeStack.sp = sp
		}
	})
}

// An instruction that the code object does not have: of a copy, in a free-threaded build.
func TestKernelPythonOtherInstruction(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		if p.Form&CPythonAddress == 0 {
			t.Skip("this version counts instructions")
		}
		main := p.code(0x100)
		p.python(main, pythonUnits, true)
		p.outermostPython()
		req := p.start(t, w)
		req.Bp = poison
		compare(t, w.walk(t, req), []Frame{interpretedFrame(main, 0xffff)}, EndRoot)
	})
}

// A thread that is in a system call for the lock.
func TestKernelPythonGIL(t *testing.T) {
	gil := Frame(FrameStub)<<60 | CPythonGIL
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		lock := p.Gil
		if lock == 0 {
			lock = 0x7100_0000
			p.mem.put64(p.mem.word(p.Interpreters)+uint64(p.InterpreterGil), lock)
		}
		main := p.code(0x100)
		p.python(main, 3, true)
		p.outermostPython()
		p.seen(gil)
		p.frames = append(p.frames, placedFrame{native(pythonLibc), 0})
		p.unseen(pythonLibc)
		req := p.start(t, w)
		for _, test := range []struct {
			name              string
			syscall, argument uint64
			waits             bool
		}{
			{"for its condition", 202, lock + 32, true},
			{"for its mutex", 202, lock + 80, true},
			{"for another futex", 202, lock + 208, false},
			{"in another system call", 1, lock + 32, false},
			{"in none", 0, lock + 32, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				req.Syscall, req.Argument = test.syscall, test.argument
				want := []Frame{native(pythonLibc), gil, interpretedFrame(main, 3)}
				if !test.waits {
					want = []Frame{want[0], want[2]}
				}
				req.Bp = poison
				compare(t, w.walk(t, req), want, EndRoot)
			})
		}
	})
}

// A code object whose memory has become another one's begins an epoch.
func TestKernelPythonCodeChanges(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main := p.code(0x100)
		p.python(main, 3, true)
		p.outermostPython()
		req := p.start(t, w)
		if got := p.check(t, w, req, EndRoot); got.ClassEpoch != 0 {
			t.Errorf("epoch %d at first", got.ClassEpoch)
		}
		for i, at := range []uint32{p.CodeName, p.CodeFile, p.CodeFirst, p.CodeLines} {
			p.mem.put64(main+uint64(at), 0x4242)
			if got, want := p.check(t, w, req, EndRoot).ClassEpoch, uint32(i+1)<<20; got != want {
				t.Errorf("change %d: epoch %#x, want %#x", i, got, want)
			}
			if got, want := p.check(t, w, req, EndRoot).ClassEpoch, uint32(i+1)<<20; got != want {
				t.Errorf("after change %d: epoch %#x, want %#x", i, got, want)
			}
		}
	})
}

// What is in the target's memory may be anything.
func TestKernelPythonHostile(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		main := p.code(0x100)
		frame := p.frame(main, 3, true)
		req := p.start(t, w)
		interpreter := p.mem.word(p.Interpreters)
		for _, test := range []struct {
			name  string
			spoil func()
			end   WalkEnd
		}{
			{"a frame leads to itself", func() { p.mem.put64(frame+uint64(p.FramePrevious), frame) }, EndDeep},
			{"a frame leads to where nothing is", func() { p.mem.put64(frame+uint64(p.FramePrevious), 0x1000) }, EndRead},
			{"a frame has no code", func() { p.mem.put64(frame+uint64(p.FrameCode), 0) }, EndRead},
			{"a frame's code is none", func() {
				p.mem.put64(frame+uint64(p.FrameCode), frame)
				p.mem.put64(frame+uint64(p.FramePrevious), 0)
			}, EndInterpreter},
			{"a thread leads to itself", func() {
				p.mem.put64(p.mem.word(interpreter+uint64(p.InterpreterThreads))+uint64(p.ThreadNext),
					p.mem.word(interpreter+uint64(p.InterpreterThreads)))
			}, EndScan},
			{"an interpreter leads to itself", func() {
				p.mem.put64(interpreter+uint64(p.InterpreterThreads), 0)
				p.mem.put64(interpreter+uint64(p.InterpreterNext), interpreter)
			}, EndScan},
			{"there is no interpreter", func() { p.mem.put64(p.Interpreters, 1<<63) }, EndPointer},
		} {
			t.Run(test.name, func(t *testing.T) {
				test.spoil()
				req.Tid += 1000
				if got := w.walk(t, req); got.End != test.end {
					t.Errorf("the walk ended with %q, want %q", got.End, test.end)
				}
			})
		}
	})
}

// A walk of frames without end takes no longer than it may.
func TestKernelPythonTime(t *testing.T) {
	eachPython(t, func(t *testing.T, w *walker, p *fakePython) {
		frame := p.frame(p.code(0x100), 3, false)
		p.mem.put64(frame+uint64(p.FramePrevious), frame)
		req := p.start(t, w)
		req.WalkNs = uint64(20 * time.Microsecond)
		if got := w.walk(t, req); got.End != EndTime {
			t.Errorf("the walk ended with %q", got.End)
		}
	})
}

// FuzzPythonWalk has the walker follow memory that may be anything: it returns.
func FuzzPythonWalk(f *testing.F) {
	w := newWalker(f)
	f.Add(uint8(0), []byte{1, 2, 3}, uint16(0))
	f.Add(uint8(4), []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0x7f}, uint16(512))
	f.Fuzz(func(t *testing.T, which uint8, data []byte, at uint16) {
		p := newPython(t, pythons[int(which)%len(pythons)].setup)
		main := p.code(0x100)
		p.python(main, 3, true).python(main, 4, false).python(main, 5, true)
		req := p.start(t, w)
		for i, b := range data { // addresses in the region, where they are low
			from := p.mem.base + (uint64(at)+8*uint64(i))%(p.top-p.mem.base-8)
			p.mem.put64(from&^7, p.mem.base+uint64(b)*8)
		}
		got := w.walk(t, req)
		if len(got.User) > MaxUserFrames || got.End == EndNone {
			t.Errorf("%d frames, %v", len(got.User), got.End)
		}
	})
}

// The record of CPython is one form of the records in the map.
func TestCPythonRecord(t *testing.T) {
	p := &CPythonProcess{StartTicks: 1, Serial: 2, Slot: 3, Form: CPythonEntryShim, CodeBegin: 200}
	record := CPythonRecord(p)
	if record.StartTicks != 1 || record.Serial != 2 || record.Slot != 3 || record.CodeLow != 0 || record.CodeHigh != 0 {
		t.Errorf("got %+v", record)
	}
	if back := (*CPythonProcess)(unsafe.Pointer(record)); back.CodeBegin != 200 || record.Flags&processCPython == 0 {
		t.Errorf("got %+v", back)
	}
	if HotspotTLS&processCPython != 0 {
		t.Error("a record of HotSpot is one of CPython")
	}
	if unsafe.Sizeof(CPythonProcess{}) > unsafe.Sizeof(HotspotProcess{}) {
		t.Error("the record of CPython is too large")
	}
	if binary.Size(p) < 0 {
		t.Error("the record has no fixed size")
	}
}
