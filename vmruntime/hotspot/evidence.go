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
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/codecache"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// maxScannedCode bounds the instructions of one compilation that are searched for jumps, in bytes.
const maxScannedCode = 1 << 20

// An evidence is what is known of the instructions of a compilation besides its debug information.
// What could not be read is nil.
type evidence struct {
	safepoints   map[int32]bool // by offset
	instructions []byte         // instructions of the code, if they may be searched
	checks       []byte         // its table of implicit null checks
}

// readEvidence reads the evidence on b.
func (p *Process) readEvidence(b codecache.Blob, header []byte) (e evidence, err error) {
	var err1, err2, err3 error
	readSafepoints := func() { e.safepoints, err1 = p.safepoints(header) }
	size := b.End - b.Begin
	if b.Tier() != vmruntime.TierC2 || runtime.GOARCH != "amd64" || size > maxScannedCode || p.complete &&
		!p.safepointsOnly {
		readSafepoints()
		return e, err1
	}
	p.memory.Together(
		readSafepoints,
		func() {
			var code vmstructs.Batch
			code.Add(b.Begin, size)
			if err2 = code.Read(p.memory.Mem); err2 == nil {
				if all, ok := code.Bytes(0); ok {
					e.instructions = all
				}
			}
		},
		func() {
			if s := &p.schema.scopes; s.ImplicitChecks.Known {
				base := b.Addr
				if s.Immutable.Known {
					base = s.Immutable.Read(header)
				}
				e.checks, err3 = p.table(base+s.ImplicitChecks.Read(header), 4, implicitPair)
			}
		},
	)
	return e, cmp.Or(err1, err2, err3)
}

// weigh finds out what t's positions say, and what else is known of the instructions of b.
func (p *Process) weigh(t *debuginfo.Table, b codecache.Blob, known evidence) error {
	safepoints := known.safepoints
	t.Complete = p.complete
	if p.safepointsOnly {
		t.Positions = slices.DeleteFunc(t.Positions,
			func(at debuginfo.Position) bool { return at.Scope != debuginfo.NoScope && !safepoints[at.Offset] })
		t.Evidence, t.Complete = t.Positions, false
	} else if safepoints != nil {
		t.Complete = t.Complete || slices.ContainsFunc(t.Positions, func(at debuginfo.Position) bool {
			return at.Scope != debuginfo.NoScope && !safepoints[at.Offset]
		})
	}
	switch {
	case b.Tier() != vmruntime.TierC2:
	case t.Complete:
		t.ForgetDefault(safepoints)
	case known.instructions != nil:
		marks, err := p.marks(t, b, known)
		if err != nil {
			return err
		}
		if len(marks) > 0 {
			t.Evidence = slices.Concat(t.Positions, marks)
			slices.SortStableFunc(t.Evidence, func(a, b debuginfo.Position) int {
				return cmp.Compare(a.Offset,
					b.Offset)
			})
		}
	}
	return nil
}

// safepoints are the offsets in a compilation that have a map of the references there; nil if they
// are not known. They are what is recorded without DebugNonSafepoints, or while an agent of JVMTI
// asked for compiled methods to be announced.
func (p *Process) safepoints(header []byte) (map[int32]bool, error) {
	s := &p.schema.scopes
	set := s.OopMaps.Read(header)
	if set == 0 || !s.OopMapCount.Known || s.OopMapsHeader != oopMapPair {
		return nil, nil
	}
	pairs, err := p.table(set, s.OopMapsHeader, oopMapPair)
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
	// oopMapPair is the size of an ImmutableOopMapPair in bytes
	// (src/hotspot/share/compiler/oopMap.hpp): pc offset, offset of the map.
	oopMapPair = 8
	// implicitPair is the size of a pair in an ImplicitExceptionTable in bytes
	// (src/hotspot/share/code/exceptionHandlerTable.hpp): offset, where to.
	implicitPair = 8
)

// table reads the entries behind a header that begins with their number, 32 bits. Nil if it cannot
// be read.
func (p *Process) table(addr, header, entry uint64) ([]byte, error) {
	var count, entries vmstructs.Batch
	count.Add(addr, 4)
	if err := count.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	n, ok := count.Word(0)
	if !ok || n == 0 || n > debuginfo.MaxPositions {
		return nil, nil
	}
	entries.Add(addr+header, n*entry)
	if err := entries.Read(p.memory.Mem); err != nil {
		return nil, err
	}
	if b, ok := entries.Bytes(0); ok {
		return b, nil
	}
	return nil, nil
}

// marks finds instructions that check something, with the scope of what they check.
func (p *Process) marks(t *debuginfo.Table, b codecache.Blob, known evidence) (marks []debuginfo.Position, err error) {
	traps, err := p.traps(t, b, known.instructions)
	if err != nil {
		return nil, err
	}
	checked := func(from, to int32) {
		i := sort.Search(len(t.Positions), func(i int) bool { return t.Positions[i].Offset > to })
		if i == len(t.Positions) || !traps[i] || from >= t.Positions[i].Offset {
			return
		}
		if _, recorded := slices.BinarySearchFunc(t.Positions, from, func(at debuginfo.Position, offset int32) int {
			return cmp.Compare(at.Offset, offset)
		}); !recorded {
			marks = append(marks, debuginfo.Position{Offset: from, Scope: t.Positions[i].Scope})
		}
	}
	conditionalJumps(known.instructions, checked)
	for checks := known.checks; len(checks) >= implicitPair; checks = checks[implicitPair:] {
		// A sampled pc is that of the load, or of what is behind it.
		checked(int32(binary.LittleEndian.Uint32(checks))+1, int32(binary.LittleEndian.Uint32(checks[4:])))
	}
	return marks, nil
}

// traps are the positions, by index, at which the code is left for the interpreter.
func (p *Process) traps(t *debuginfo.Table, b codecache.Blob, instructions []byte) (map[int]bool, error) {
	called := make(map[uint64][]int) // positions by what is called before them
	var order []uint64
	for i, at := range t.Positions {
		if to, ok := calledBefore(instructions, b.Begin, at.Offset); ok && at.Scope != debuginfo.NoScope {
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

// findTrap looks for the stub that leaves C2's code for the interpreter among what a compilation
// calls. There is one in a VM.
func (p *Process) findTrap(called []uint64) error {
	const most = 256 // look-ups; most compilations call it first or second
	for _, addr := range called[:min(len(called), most)] {
		if p.trap != 0 {
			return nil
		}
		// All stubs are there, but for few that are made late.
		if p.codeCache.HeapOf(addr) != p.codeCache.HeapOf(p.layout.Interpreter.Low) {
			continue
		}
		name, kind, err := p.blobAt(addr)
		switch {
		case errors.Is(err, vmruntime.ErrUnknown), errors.Is(err, vmruntime.ErrStale),
			errors.Is(err, vmruntime.ErrMalformed):
		case err != nil:
			return err
		case kind == codecache.KindStub && strings.Contains(strings.ToLower(name), "uncommon"):
			p.trap = addr
		}
	}
	return nil
}
