package hotspot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sort"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// maxScannedCode bounds the instructions of one compilation that are searched for jumps, in bytes.
const maxScannedCode = 1 << 20

// weigh finds out what t's positions say, and what else is known of the instructions of b. What cannot be read is not
// known.
func (p *Process) weigh(t *scopeTable, b blob, header []byte) error {
	safepoints, err := p.safepoints(header)
	if err != nil {
		return err
	}
	t.complete = p.complete
	if p.safepointsOnly {
		t.positions = slices.DeleteFunc(t.positions, func(at position) bool { return at.scope != noScope && !safepoints[at.offset] })
		t.evidence, t.complete = t.positions, false
	} else if safepoints != nil {
		t.complete = t.complete || slices.ContainsFunc(t.positions, func(at position) bool {
			return at.scope != noScope && !safepoints[at.offset]
		})
	}
	switch {
	case b.tier() != vmruntime.TierC2:
	case t.complete:
		t.forgetDefault(safepoints)
	case runtime.GOARCH == "amd64":
		marks, err := p.marks(t, b, header)
		if err != nil {
			return err
		}
		if len(marks) > 0 {
			t.evidence = slices.Concat(t.positions, marks)
			slices.SortStableFunc(t.evidence, func(a, b position) int { return cmp.Compare(a.offset, b.offset) })
		}
	}
	return nil
}

// safepoints are the offsets in a compilation that have a map of the references there; nil if they are not known. They are
// what is recorded without DebugNonSafepoints, or while an agent of JVMTI asked for compiled methods to be announced.
func (p *Process) safepoints(header []byte) (map[int32]bool, error) {
	s := &p.schema.scopes
	set := s.oopMaps.of(header)
	if set == 0 || !s.oopMapCount.known || s.oopMapsHeader != oopMapPair {
		return nil, nil
	}
	pairs, err := p.table(set, s.oopMapsHeader, oopMapPair)
	if err != nil || pairs == nil {
		return nil, err
	}
	offsets := make(map[int32]bool, len(pairs)/oopMapPair)
	for ; len(pairs) >= oopMapPair; pairs = pairs[oopMapPair:] {
		offsets[int32(binary.LittleEndian.Uint32(pairs))] = true
	}
	return offsets, nil
}

const (
	oopMapPair   = 8 // bytes of an ImmutableOopMapPair (src/hotspot/share/compiler/oopMap.hpp): pc offset, offset of the map
	implicitPair = 8 // bytes in an ImplicitExceptionTable (src/hotspot/share/code/exceptionHandlerTable.hpp): offset, where to
)

// table reads the entries behind a header that begins with their number, 32 bits. Nil if it cannot be read.
func (p *Process) table(addr, header, entry uint64) ([]byte, error) {
	var count, entries batch
	count.add(addr, 4)
	if err := count.read(p.memory.mem); err != nil {
		return nil, err
	}
	n, ok := count.word(0)
	if !ok || n == 0 || n > maxPositions {
		return nil, nil
	}
	entries.add(addr+header, n*entry)
	if err := entries.read(p.memory.mem); err != nil {
		return nil, err
	}
	if b, ok := entries.bytes(0); ok {
		return b, nil
	}
	return nil, nil
}

// marks finds instructions that check something, with the scope of what they check.
func (p *Process) marks(t *scopeTable, b blob, header []byte) (marks []position, err error) {
	size := b.end - b.begin
	if size > maxScannedCode {
		return nil, nil
	}
	var code batch
	code.add(b.begin, size)
	if err := code.read(p.memory.mem); err != nil {
		return nil, err
	}
	instructions, ok := code.bytes(0)
	if !ok {
		return nil, nil
	}
	traps, err := p.traps(t, b, instructions)
	if err != nil {
		return nil, err
	}
	checked := func(from, to int32) {
		i := sort.Search(len(t.positions), func(i int) bool { return t.positions[i].offset > to })
		if i == len(t.positions) || !traps[i] || from >= t.positions[i].offset {
			return
		}
		if _, recorded := slices.BinarySearchFunc(t.positions, from, func(at position, offset int32) int {
			return cmp.Compare(at.offset, offset)
		}); !recorded {
			marks = append(marks, position{from, t.positions[i].scope})
		}
	}
	conditionalJumps(instructions, checked)
	s := &p.schema.scopes
	if !s.implicitChecks.known {
		return marks, nil
	}
	base := b.addr
	if s.immutable.known {
		base = s.immutable.of(header)
	}
	checks, err := p.table(base+s.implicitChecks.of(header), 4, implicitPair)
	for ; len(checks) >= implicitPair; checks = checks[implicitPair:] {
		// A sampled pc is that of the load, or of what is behind it.
		checked(int32(binary.LittleEndian.Uint32(checks))+1, int32(binary.LittleEndian.Uint32(checks[4:])))
	}
	return marks, err
}

// traps are the positions, by index, at which the code is left for the interpreter.
func (p *Process) traps(t *scopeTable, b blob, instructions []byte) (map[int]bool, error) {
	called := make(map[uint64][]int) // positions by what is called before them
	var order []uint64
	for i, at := range t.positions {
		if to, ok := calledBefore(instructions, b.begin, at.offset); ok && at.scope != noScope {
			if called[to] == nil {
				order = append(order, to)
			}
			called[to] = append(called[to], i)
		}
	}
	if err := p.findTrap(order); err != nil {
		return nil, err
	}
	traps := make(map[int]bool)
	for _, i := range called[p.trap] { // none calls 0, which is no code
		traps[i] = true
	}
	return traps, nil
}

// findTrap looks for the stub that leaves C2's code for the interpreter among what a compilation calls. There is one in a VM.
func (p *Process) findTrap(called []uint64) error {
	const most = 256 // look-ups; most compilations call it first or second
	for _, addr := range called[:min(len(called), most)] {
		if p.trap != 0 {
			return nil
		}
		if p.codeCache.heapOf(addr) != p.codeCache.heapOf(p.layout.Interpreter.Low) { // all stubs are there, but for few that are made late
			continue
		}
		name, kind, err := p.blobAt(addr)
		switch {
		case errors.Is(err, vmruntime.ErrUnknown), errors.Is(err, vmruntime.ErrStale), errors.Is(err, vmruntime.ErrMalformed):
		case err != nil:
			return err
		case kind == kindStub && strings.Contains(strings.ToLower(name), "uncommon"):
			p.trap = addr
		}
	}
	return nil
}
