package cpython

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// FrameForm says how frames of a version say where the interpreter was entered from C.
type FrameForm uint8

// The forms.
const (
	// EntryEach: the interpreter's loop runs one frame (3.9, 3.10).
	EntryEach FrameForm = iota
	// EntryFlag: a byte of the frame is not 0 if the loop began with it (3.11).
	EntryFlag
	// EntryShim: the loop begins with a frame of its own, which is owned by C and runs no code of
	// the program (3.12 and later).
	EntryShim
)

// OwnedByC is the least owner of a frame that runs no code of the program, with EntryShim.
const OwnedByC = 3

// Offsets are where the fields are that this package and the walker read, in bytes from the
// beginning of a structure. In comments 3.9 stands for 3.9 and 3.10.
type Offsets struct {
	InterpretersHead uint64 // _PyRuntimeState: the first PyInterpreterState
	InterpreterNext  uint64 // PyInterpreterState
	ThreadsHead      uint64 // PyInterpreterState: the newest PyThreadState
	RuntimeGIL       uint64 // _PyRuntimeState, before 3.12: the global interpreter lock
	InterpreterGIL   uint64 // PyInterpreterState, from 3.12 on: a pointer to its lock

	ThreadNext        uint64 // PyThreadState
	ThreadInterpreter uint64 // PyThreadState
	ThreadID          uint64 // PyThreadState: pthread_self()
	ThreadFrame       uint64 // PyThreadState: the innermost frame; 3.11 and 3.12: a _PyCFrame
	HasCFrame         bool   // 3.11 and 3.12
	CFrame            uint64 // _PyCFrame: the innermost frame

	FrameCode     uint64 // a frame: its code object
	FramePrevious uint64
	// FrameAt is where a frame is: from 3.11 on the address of an instruction, before that a number
	// of 32 bits.
	FrameAt    uint64
	FrameEntry uint64 // a byte: see FrameForm
	Form       FrameForm

	CodeFirstLine                 uint64 // PyCodeObject: 32 bits
	CodeFile, CodeName, CodeLines uint64 // PyCodeObject: strings, and the bytes of the line table
	CodeQualifiedName             uint64 // PyCodeObject: a string; 0 if it has none, as in 3.9
	CodeBegin                     uint64 // PyCodeObject: its instructions; 0 in 3.9, which has them elsewhere
	ObjectHeader                  uint64 // sizeof(PyObject)
	ObjectType                    uint64 // PyObject
	ASCIIHeader, CompactHeader    uint64 // of strings: what is before their characters
	FreeThreaded                  bool   // there is no lock by default
	CountsBytes                   bool   // 3.9: FrameAt counts bytes, not instructions of two
}

// Windows are how much the walker reads of a structure: all that it needs of it is there.
const (
	FrameWindow = 128 // bytes of a frame
	CodeWindow  = 192 // bytes of a code object
)

// GILSize is the size of a lock in bytes: its condition variables and mutexes are in it.
const GILSize = 208

// byVersion are the offsets of the versions that do not say them. Compilers lay these structures
// out the same way on all 64-bit machines.
var byVersion = map[int]Offsets{
	9: {
		InterpretersHead: 32, InterpreterNext: 0, ThreadsHead: 8, RuntimeGIL: 352,
		ThreadNext: 8, ThreadInterpreter: 16, ThreadID: 176, ThreadFrame: 24,
		FrameCode: 32, FramePrevious: 24, FrameAt: 104, Form: EntryEach,
		CodeFirstLine: 40, CodeFile: 104, CodeName: 112, CodeLines: 120,
		ObjectHeader: 16, ObjectType: 8, ASCIIHeader: 48, CompactHeader: 72, CountsBytes: true,
	},
	10: {
		InterpretersHead: 32, InterpreterNext: 0, ThreadsHead: 8, RuntimeGIL: 352,
		ThreadNext: 8, ThreadInterpreter: 16, ThreadID: 176, ThreadFrame: 24,
		FrameCode: 32, FramePrevious: 24, FrameAt: 96, Form: EntryEach,
		CodeFirstLine: 40, CodeFile: 104, CodeName: 112, CodeLines: 120,
		ObjectHeader: 16, ObjectType: 8, ASCIIHeader: 48, CompactHeader: 72,
	},
	11: {
		InterpretersHead: 40, InterpreterNext: 0, ThreadsHead: 16, RuntimeGIL: 360,
		ThreadNext: 8, ThreadInterpreter: 16, ThreadID: 152, ThreadFrame: 56, HasCFrame: true, CFrame: 8,
		FrameCode: 32, FramePrevious: 48, FrameAt: 56, FrameEntry: 68, Form: EntryFlag,
		CodeFirstLine: 72, CodeFile: 112, CodeName: 120, CodeQualifiedName: 128, CodeLines: 136,
		CodeBegin: 184, ObjectHeader: 16, ObjectType: 8, ASCIIHeader: 48, CompactHeader: 72,
	},
	12: {
		InterpretersHead: 40, InterpreterNext: 0, ThreadsHead: 72, InterpreterGIL: 384,
		ThreadNext: 8, ThreadInterpreter: 16, ThreadID: 136, ThreadFrame: 56, HasCFrame: true, CFrame: 0,
		FrameCode: 0, FramePrevious: 8, FrameAt: 56, FrameEntry: 70, Form: EntryShim,
		CodeFirstLine: 68, CodeFile: 112, CodeName: 120, CodeQualifiedName: 128, CodeLines: 136,
		CodeBegin: 192, ObjectHeader: 16, ObjectType: 8, ASCIIHeader: 40, CompactHeader: 56,
	},
}

// check reports what a walker could not work with.
func (o *Offsets) check() error {
	word := func(at, window uint64) bool { return at%8 == 0 && at+8 <= window }
	switch {
	case o.InterpretersHead >= maxOffset, o.InterpreterNext >= maxOffset, o.ThreadsHead >= maxOffset,
		o.InterpreterGIL >= maxOffset, o.ThreadNext >= maxOffset, o.ThreadInterpreter >= maxOffset,
		o.ThreadID >= maxOffset, o.ThreadFrame >= maxOffset, o.CodeBegin >= maxOffset:
	case !word(o.FrameCode, FrameWindow), !word(o.FramePrevious, FrameWindow), !word(o.FrameAt, FrameWindow),
		o.FrameEntry >= FrameWindow:
	case !word(o.ObjectType, CodeWindow), !word(o.CodeFile, CodeWindow), !word(o.CodeName, CodeWindow),
		!word(o.CodeLines, CodeWindow), o.CodeFirstLine+4 > CodeWindow,
		o.CodeFirstLine%4 != 0, o.CodeQualifiedName != 0 && !word(o.CodeQualifiedName, CodeWindow):
	case o.ObjectHeader < 16 || o.ObjectHeader > 64:
	default:
		return nil
	}
	return fmt.Errorf("offsets of CPython's structures: %w", vmruntime.ErrMalformed)
}

// maxOffset bounds an offset, in bytes: a PyInterpreterState of 3.13 has 280 KB.
const maxOffset = 1 << 22
