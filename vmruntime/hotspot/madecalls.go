package hotspot

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on madeCalls.
const (
	maxCodeBytes  = 4 << 20 // of one compilation
	maxStubs      = 1 << 12 // addresses in them
	callBytes     = 5       // call rel32 on x86-64, the only instruction that both compilers call Java methods with
	callOpcode    = 0xe8
	callOffsetLen = 4
)

// madeCalls returns the places in a compilation, as offsets from its begin, that calls of Java methods return to. Debug
// information alone does not tell them from places where a null check may fail, or a trap leaves the code for the
// interpreter: those have the bytecode index of a call, too, when the callee was compiled into its caller. Nil if it
// cannot be told.
func (p *Process) madeCalls(of vmruntime.Compilation, c *code) (map[int32]bool, error) {
	size := of.End - of.Begin
	if runtime.GOARCH != "amd64" || c.scopes == nil || size > maxCodeBytes {
		return nil, nil
	}
	instructions, err := p.bytes(of.Begin, size)
	if err != nil {
		return nil, nil
	}
	calls := map[int32]bool{}
	for _, at := range c.scopes.positions {
		to, ok := calledBefore(instructions, of.Begin, at.offset)
		if !ok || at.scope == noScope {
			continue
		}
		if java := to >= of.Begin && to < of.End; java || p.leadsToJava(to) {
			calls[at.offset] = true
		}
	}
	// What was read was this compilation if it still is.
	if now, err := p.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, PC: of.Begin, Version: of.Version}); err != nil {
		return nil, fmt.Errorf("instructions: %w", err)
	} else if now.Begin != of.Begin || now.End != of.End {
		return nil, vmruntime.ErrStale
	}
	return calls, nil
}

// calledBefore returns where the call goes that returns to offset in the code that begins at begin, if there is one.
func calledBefore(instructions []byte, begin uint64, offset int32) (to uint64, ok bool) {
	from := int(offset) - callBytes
	if from < 0 || int(offset) > len(instructions) || instructions[from] != callOpcode {
		return 0, false
	}
	distance := int32(binary.LittleEndian.Uint32(instructions[from+1:][:callOffsetLen]))
	return begin + uint64(offset) + uint64(int64(distance)), true
}

// leadsToJava tells whether what is called at an address ends in a Java method: code of one, or what finds one.
func (p *Process) leadsToJava(to uint64) bool {
	// Where the code cache has several parts, stubs are in that of the interpreter; but for some that are made late and
	// found no room there, which are those on the way to a method.
	if h := p.heapOf(to); len(p.heaps) > 1 && h != nil && h != p.heapOf(p.layout.Interpreter.Low) {
		return true
	}
	name, kind, err := p.blobAt(to)
	switch {
	case err != nil:
		return false
	case kind == kindStub, kind == kindContinuation:
		return resolves(name)
	}
	return true
}

// blobAt returns what is at an address in the code cache. Stubs stay where they are as long as the VM lives.
func (p *Process) blobAt(pc uint64) (name string, kind blobKind, err error) {
	if name, known := p.stubAt[pc]; known {
		return name, kindOf(name), nil
	}
	addr, err := p.find(pc)
	if err != nil {
		return "", 0, err
	}
	header, err := p.bytes(addr, p.schema.blob.blobHeader)
	if err != nil {
		return "", 0, err
	}
	pointer := p.schema.blob.name.of(header)
	if err := p.learn([]uint64{pointer}); err != nil {
		return "", 0, err
	}
	name, named := p.kinds.names[pointer]
	if kind = kindOf(name); named && kind != kindNMethod && kind != kindNative && len(p.stubAt) < maxStubs {
		if p.stubAt == nil {
			p.stubAt = map[uint64]string{}
		}
		p.stubAt[pc] = name
	}
	return name, kind, nil
}

// resolves tells whether a stub finds the method to call (SharedRuntime::generate_resolve_blob): calls lead there until
// they are made for the first time, or when what was found there before does not fit.
func resolves(stub string) bool {
	return strings.Contains(stub, "resolve_") || strings.Contains(stub, "ic_miss") || strings.Contains(stub, "wrong_method")
}
