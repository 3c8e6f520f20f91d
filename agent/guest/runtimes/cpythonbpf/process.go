package cpythonbpf

import (
	"errors"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/cpython"
)

// errWindow: no CPython has its fields that far from the beginning of a structure.
var errWindow = errors.New("structures of CPython are larger than the walker supports")

// forms are the forms of frames.
var forms = map[cpython.FrameForm]uint32{
	cpython.EntryEach: bpf.CPythonEntryEach,
	cpython.EntryFlag: bpf.CPythonEntryFlag,
	cpython.EntryShim: bpf.CPythonEntryShim,
}

// process is what the kernel side must know of an interpreter. The caller sets identity and slot.
func process(l *cpython.Layout) (*bpf.HotspotProcess, error) {
	const word = 8
	p := &bpf.CPythonProcess{
		Form:         forms[l.Form],
		Interpreters: l.Interpreters, CodeType: l.CodeType, EvalLow: l.EvalLow, EvalHigh: l.EvalHigh,
		Gil: l.GIL, GilSize: cpython.GILSize,
		InterpreterNext: uint32(l.InterpreterNext), InterpreterThreads: uint32(l.ThreadsHead),
		InterpreterGil: uint32(l.InterpreterGIL),
		ThreadNext:     uint32(l.ThreadNext), ThreadInterpreter: uint32(l.ThreadInterpreter),
		ThreadId: uint32(l.ThreadID), ThreadFrame: uint32(l.ThreadFrame), CframeFrame: uint32(l.CFrame),
		FrameCode: uint32(l.FrameCode), FramePrevious: uint32(l.FramePrevious), FrameAt: uint32(l.FrameAt),
		FrameEntry: uint32(l.FrameEntry),
		ObjectType: uint32(l.ObjectType), CodeFirst: uint32(l.CodeFirstLine &^ (word - 1)),
		CodeFile: uint32(l.CodeFile), CodeName: uint32(l.CodeName), CodeLines: uint32(l.CodeLines),
		CodeBegin: uint32(l.CodeBegin), CodeUnits: uint32(l.ObjectHeader),
	}
	p.FrameBytes = max(p.FrameCode, p.FramePrevious, p.FrameAt, p.FrameEntry&^(word-1)) + word
	p.CodeBytes = max(p.ObjectType, p.CodeFirst, p.CodeFile, p.CodeName, p.CodeLines, p.CodeUnits) + word
	if p.FrameBytes > bpf.CPythonFrameBytes || p.CodeBytes > bpf.CPythonCodeBytes {
		return nil, errWindow
	}
	if l.HasCFrame {
		p.Form |= bpf.CPythonCFrame
	}
	if l.CodeBegin != 0 {
		p.Form |= bpf.CPythonAddress
	}
	if l.CountsBytes {
		p.Form |= bpf.CPythonBytes
	}
	return bpf.CPythonRecord(p), nil
}
