package cpython

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// From 3.13 on _PyRuntime begins with _Py_DebugOffsets: a cookie, and then numbers of 64 bits, which
// say where fields are. Which number is which differs from one minor version to the next.
const debugCookie = "xdebugpy"

// debugFields are the numbers by minor version, as far as they are needed, in their order.
var debugFields = map[int][]string{
	13: strings.Fields("version free_threaded " +
		"runtime.size runtime.finalizing runtime.interpreters_head " +
		"interpreter.size interpreter.id interpreter.next interpreter.threads_head interpreter.gc " +
		"interpreter.modules interpreter.sysdict interpreter.builtins interpreter.ceval_gil interpreter.gil " +
		"interpreter.gil_enabled interpreter.gil_locked interpreter.gil_holder " +
		"thread.size thread.prev thread.next thread.interp thread.current_frame thread.thread_id " +
		"thread.native_thread_id thread.datastack_chunk thread.status " +
		"frame.size frame.previous frame.executable frame.instr_ptr frame.localsplus frame.owner " +
		"code.size code.filename code.name code.qualname code.linetable code.firstlineno code.argcount " +
		"code.localsplusnames code.localspluskinds code.code_adaptive " +
		"object.size object.type"),
	14: strings.Fields("version free_threaded " +
		"runtime.size runtime.finalizing runtime.interpreters_head " +
		"interpreter.size interpreter.id interpreter.next interpreter.threads_head interpreter.threads_main " +
		"interpreter.gc interpreter.modules interpreter.sysdict interpreter.builtins interpreter.ceval_gil " +
		"interpreter.gil interpreter.gil_enabled interpreter.gil_locked interpreter.gil_holder " +
		"interpreter.code_generation interpreter.tlbc_generation " +
		"thread.size thread.prev thread.next thread.interp thread.current_frame thread.thread_id " +
		"thread.native_thread_id thread.datastack_chunk thread.status " +
		"frame.size frame.previous frame.executable frame.instr_ptr frame.localsplus frame.owner " +
		"frame.stackpointer frame.tlbc_index " +
		"code.size code.filename code.name code.qualname code.linetable code.firstlineno code.argcount " +
		"code.localsplusnames code.localspluskinds code.code_adaptive code.tlbc " +
		"object.size object.type"),
}

// debugSize is how many bytes the numbers of a version have that are needed, with the cookie.
func debugSize(minor int) int { return len(debugCookie) + 8*len(debugFields[minor]) }

// parseDebugOffsets reads the offsets at the beginning of a _PyRuntime.
func parseDebugOffsets(b []byte, v version) (Offsets, error) {
	names := debugFields[v.minor()]
	if len(b) < debugSize(v.minor()) || !bytes.HasPrefix(b, []byte(debugCookie)) {
		return Offsets{}, fmt.Errorf("no _Py_DebugOffsets: %w", vmruntime.ErrMalformed)
	}
	field := make(map[string]uint64, len(names))
	for i, name := range names {
		field[name] = binary.LittleEndian.Uint64(b[len(debugCookie)+8*i:])
	}
	if said := version(field["version"]); said>>16 != v>>16 {
		return Offsets{}, fmt.Errorf("_Py_DebugOffsets of %v in CPython %v: %w", said, v, vmruntime.ErrMalformed)
	}
	header := field["object.size"]
	o := Offsets{
		InterpretersHead: field["runtime.interpreters_head"], InterpreterNext: field["interpreter.next"],
		ThreadsHead: field["interpreter.threads_head"], InterpreterGIL: field["interpreter.ceval_gil"],
		ThreadNext: field["thread.next"], ThreadInterpreter: field["thread.interp"], ThreadID: field["thread.thread_id"],
		ThreadFrame: field["thread.current_frame"],
		FrameCode:   field["frame.executable"], FramePrevious: field["frame.previous"],
		FrameAt: field["frame.instr_ptr"], FrameEntry: field["frame.owner"], Form: EntryShim,
		CodeFirstLine: field["code.firstlineno"], CodeFile: field["code.filename"], CodeName: field["code.name"],
		CodeQualifiedName: field["code.qualname"], CodeLines: field["code.linetable"],
		CodeBegin:    field["code.code_adaptive"],
		ObjectHeader: header, ObjectType: field["object.type"],
		ASCIIHeader: header + 24, CompactHeader: header + 40,
		FreeThreaded: field["free_threaded"] != 0,
	}
	return o, o.check()
}
