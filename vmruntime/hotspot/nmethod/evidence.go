package nmethod

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
	safepoints   offsets // with a map of the references there
	instructions []byte  // instructions of the code, if they may be searched
	checks       []byte  // its table of implicit null checks
}

// offsets are some in the code of a compilation, ascending; nil if they are not known.
type offsets []int32

func (o offsets) contains(offset int32) bool {
	_, found := slices.BinarySearch(o, offset)
	return found
}

// readScopes reads the debug information of b, and the evidence on its instructions. What it returns
// refers to the batches.
func (p *Codes) readScopes(
	b codecache.Blob, header []byte, scopes, tables *vmstructs.Batch,
) (raw debuginfo.RawScopes, e evidence, err error) {
	maps, checks := p.oopMaps(header), table{}
	needs := []vmstructs.Need{p.Schema.scopes.Need(b.Addr, header, &raw, &err), maps.needCount}
	if size := b.End - b.Begin; b.Tier() == vmruntime.TierC2 && runtime.GOARCH == "amd64" && size <= maxScannedCode &&
		(!p.complete || p.SafepointsOnly) {
		needs = append(needs, func(batch *vmstructs.Batch) func() {
			at := len(batch.Ranges)
			batch.Add(b.Begin, size)
			return func() {
				if all, ok := batch.Bytes(at); ok {
					e.instructions = all
				}
			}
		})
		if s := &p.Schema.scopes; s.ImplicitChecks.Known {
			base := b.Addr
			if s.Immutable.Known {
				base = s.Immutable.Read(header)
			}
			checks = table{addr: base + s.ImplicitChecks.Read(header), header: 4, entry: implicitPair}
			needs = append(needs, checks.needCount)
		}
	}
	if gathered := p.Memory.GatherInto(scopes, needs...); gathered != nil || err != nil {
		return raw, e, cmp.Or(gathered, err)
	}
	if err := p.Memory.GatherInto(tables, maps.needEntries, checks.needEntries); err != nil {
		return raw, e, err
	}
	e.safepoints, e.checks = safepointsIn(maps.entries), checks.entries
	return raw, e, nil
}

// A table is entries behind a header that begins with their number, 32 bits. They are nil if they
// cannot be read.
type table struct {
	addr, header, entry uint64 // where it is, and sizes in bytes; 0 if it is not known
	count               uint64
	entries             []byte
}

func (t *table) needCount(b *vmstructs.Batch) func() {
	at := len(b.Ranges)
	b.Add(t.addr, 4)
	return func() {
		if n, ok := b.Word(at); ok && n <= debuginfo.MaxPositions {
			t.count = n
		}
	}
}

func (t *table) needEntries(b *vmstructs.Batch) func() {
	at := len(b.Ranges)
	b.Add(t.addr+t.header, t.count*t.entry)
	return func() {
		if entries, ok := b.Bytes(at); ok && t.count > 0 {
			t.entries = entries
		}
	}
}

// weigh finds out what t's positions say, and what else is known of the instructions of b.
func (p *Codes) weigh(t *debuginfo.Table, b codecache.Blob, known evidence) error {
	safepoints := known.safepoints
	t.Complete = p.complete
	if p.SafepointsOnly {
		t.Positions = slices.DeleteFunc(t.Positions,
			func(at debuginfo.Position) bool {
				return at.Scope != debuginfo.NoScope && !safepoints.contains(at.Offset)
			})
		t.Evidence, t.Complete = t.Positions, false
	} else if safepoints != nil {
		t.Complete = t.Complete || slices.ContainsFunc(t.Positions, func(at debuginfo.Position) bool {
			return at.Scope != debuginfo.NoScope && !safepoints.contains(at.Offset)
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
func (p *Codes) safepoints(header []byte) (offsets, error) {
	maps := p.oopMaps(header)
	if err := p.Memory.Gather(maps.needCount); err != nil {
		return nil, err
	}
	entries := vmstructs.PassingBatch()
	defer entries.Free()
	if err := p.Memory.GatherInto(entries, maps.needEntries); err != nil {
		return nil, err
	}
	return safepointsIn(maps.entries), nil
}

// oopMaps is the table of the maps of references of a compilation.
func (p *Codes) oopMaps(header []byte) table {
	s := &p.Schema.scopes
	set := s.OopMaps.Read(header)
	if set == 0 || !s.OopMapCount.Known || s.OopMapsHeader != oopMapPair {
		return table{}
	}
	return table{addr: set, header: s.OopMapsHeader, entry: oopMapPair}
}

// safepointsIn are the offsets in entries of such a table.
func safepointsIn(pairs []byte) (list offsets) {
	for ; len(pairs) >= oopMapPair; pairs = pairs[oopMapPair:] {
		list = append(list, int32(binary.LittleEndian.Uint32(pairs)))
	}
	slices.Sort(list)
	return list
}

const (
	// oopMapPair is the size of an ImmutableOopMapPair in bytes
	// (src/hotspot/share/compiler/oopMap.hpp): pc offset, offset of the map.
	oopMapPair = 8
	// implicitPair is the size of a pair in an ImplicitExceptionTable in bytes
	// (src/hotspot/share/code/exceptionHandlerTable.hpp): offset, where to.
	implicitPair = 8
)

// marks finds instructions that check something, with the scope of what they check.
func (p *Codes) marks(t *debuginfo.Table, b codecache.Blob, known evidence) (marks []debuginfo.Position, err error) {
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

// traps says of each position whether the code is left for the interpreter there.
func (p *Codes) traps(t *debuginfo.Table, b codecache.Blob, instructions []byte) ([]bool, error) {
	called := make([]uint64, len(t.Positions)) // what is called before a position; 0 if nothing is
	for i, at := range t.Positions {
		if to, ok := calledBefore(instructions, b.Begin, at.Offset); ok && at.Scope != debuginfo.NoScope {
			called[i] = to
		}
	}
	if p.trap == 0 {
		if err := p.findTrap(vmstructs.Distinct(called)); err != nil {
			return nil, err
		}
	}
	traps := make([]bool, len(called))
	for i, to := range called {
		traps[i] = to != 0 && to == p.trap
	}
	return traps, nil
}

// findTrap looks for the stub that leaves C2's code for the interpreter among what a compilation
// calls. There is one in a VM.
func (p *Codes) findTrap(called []uint64) error {
	const most = 256 // look-ups; most compilations call it first or second
	for _, addr := range called[:min(len(called), most)] {
		if p.trap != 0 {
			return nil
		}
		// All stubs are there, but for few that are made late.
		if p.Cache.HeapOf(addr) != p.Cache.HeapOf(p.Layout.Interpreter.Low) {
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
