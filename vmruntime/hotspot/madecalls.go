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
	maxLeads      = 1 << 12 // addresses of stubs
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
		from := int(at.offset) - callBytes
		if at.scope == noScope || from < 0 || int(at.offset) > len(instructions) || instructions[from] != callOpcode {
			continue
		}
		distance := int32(binary.LittleEndian.Uint32(instructions[from+1:][:callOffsetLen]))
		to := of.Begin + uint64(at.offset) + uint64(int64(distance))
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

// leadsToJava tells whether what is called at an address ends in a Java method: code of one, or what finds one. Stubs
// stay where they are as long as the VM lives.
func (p *Process) leadsToJava(to uint64) bool {
	if java, known := p.leads[to]; known {
		return java
	}
	// Where the code cache has several parts, stubs are in that of the interpreter; but for some that are made late and
	// found no room there, which are those on the way to a method.
	if h := p.heapOf(to); len(p.heaps) > 1 && h != nil && h != p.heapOf(p.layout.Interpreter.Low) {
		return true
	}
	addr, err := p.find(to)
	if err != nil {
		return false
	}
	header, err := p.bytes(addr, p.schema.blob.blobHeader)
	if err != nil {
		return false
	}
	name := p.schema.blob.name.of(header)
	if err := p.learn([]uint64{name}); err != nil {
		return false
	}
	java := true
	switch p.kinds.of(name) {
	case kindNMethod, kindNative:
		return true
	case kindStub, kindContinuation:
		java = resolves(p.kinds.names[name])
	}
	if len(p.leads) < maxLeads {
		if p.leads == nil {
			p.leads = map[uint64]bool{}
		}
		p.leads[to] = java
	}
	return java
}

// resolves tells whether a stub finds the method to call (SharedRuntime::generate_resolve_blob): calls lead there until
// they are made for the first time, or when what was found there before does not fit.
func resolves(stub string) bool {
	return strings.Contains(stub, "resolve_") || strings.Contains(stub, "ic_miss") || strings.Contains(stub, "wrong_method")
}
