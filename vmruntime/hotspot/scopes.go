package hotspot

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on the debug information of one compiled method, some ten times what was seen.
const (
	maxScopeBytes = 1 << 20  // of each of the three areas
	maxPositions  = 64 << 10 // in the code
	maxScopes     = 64 << 10 // distinct ones
	maxInlining   = 1024     // scopes in one chain
)

// rawScopes is the debug information of one compiled method as it lies in the guest's memory.
type rawScopes struct {
	pcs      []byte // PcDesc array (src/hotspot/share/code/pcDesc.hpp)
	scopes   []byte // ScopeDesc stream (src/hotspot/share/code/scopeDesc.hpp)
	metadata []byte // pointers, to Methods among others
}

// A scope is one level of inlining: a place in a method, and the call there that was inlined into.
type scope struct {
	sender int32 // index of the scope that it was inlined into, noScope for the compiled method itself
	method int32 // index in scopeTable.methods
	bci    int32 // bytecode index, -1 before the first bytecode
	line   int32 // in the source, 0 if unknown
}

const noScope = -1

// Layout of a PcDesc: pc offset, scope offset, object offset, flags, 32 bits each.
const (
	pcDescSize  = 16
	pcDescScope = 4
)

// A position says where in the source an instruction comes from. HotSpot records one for every place where it may
// have to look at the frame (the return address of a call, a poll, an implicit null check), and with
// DebugNonSafepoints one more whenever the place in the source changes.
type position struct {
	offset int32 // bytes from the method's first instruction
	scope  int32 // index, noScope for none
}

// A scopeTable is decoded debug information: what is inlined at which instruction of one compiled method.
type scopeTable struct {
	positions []position // in ascending order
	scopes    []scope
	methods   []uint64   // addresses of the distinct Methods
	complete  bool       // there are positions between safepoints: it was compiled with DebugNonSafepoints
	evidence  []position // of instructions without a position: see shared
}

// A place is what is known of an instruction.
type place struct {
	scope    int32 // the innermost one that is certain, noScope if that is only the compiled method itself
	located  bool  // so is its bytecode index
	recorded bool  // the VM says so; otherwise something may be inlined in it
}

// at returns what is known of the instruction at offset, which was sampled or is returned to.
//
// A position is recorded behind the instructions that it is about. For calls it is the return address; between
// safepoints, both compilers note the place in the source after they have emitted an instruction (NonSafepointEmitter in
// src/hotspot/share/opto/output.cpp, LIR_Assembler::process_debug_info in c1). Disassembly of a method with three inlined
// leaves shows it: each position is the end of the last instruction of its leaf. So where there are positions for all
// instructions, the first one at or after offset counts.
//
// Why an equal one counts, though it ends the code before: a sampled pc is that of the instruction that was not yet
// executed, and the processor was interrupted while it waited for the one before. In a chain of dependent additions
// and divisions all samples are on the instruction behind a slow one, none on the slow one itself. Measured on such
// a chain, of leaves whose shares are known, one of which ends in a division: "at or after" gives it its share, "after" less
// than half of it, "at or before" swaps two other leaves (TestInlinedShares).
//
// Without DebugNonSafepoints the first position after offset is that of another instruction, often of a method that was
// inlined beside the one that was sampled: see shared.
func (t *scopeTable) at(offset int32) place {
	i := sort.Search(len(t.positions), func(i int) bool { return t.positions[i].offset >= offset })
	if i < len(t.positions) && t.positions[i].scope != noScope && (t.complete || t.positions[i].offset == offset) {
		return place{scope: t.positions[i].scope, located: true, recorded: true}
	}
	if t.complete && i >= len(t.positions)-1 { // the last one is a sentinel: what is behind all others handles exceptions
		return place{scope: noScope, located: true, recorded: true}
	}
	return t.shared(offset)
}

// decodeScopes decodes raw completely, so that the guest's memory is not needed again. Lines remain 0.
func decodeScopes(raw rawScopes, bias uint32) (*scopeTable, error) {
	if n := len(raw.pcs) / pcDescSize; n > maxPositions {
		return nil, fmt.Errorf("%d code positions: %w", n, vmruntime.ErrMalformed)
	}
	d := scopeDecoder{raw: raw, bias: bias, scopeAt: make(map[uint32]int32), methodAt: make(map[uint64]int32)}
	d.table.positions = make([]position, 0, len(raw.pcs)/pcDescSize)
	last := int32(-1) // the first one is a sentinel at -1
	for b := raw.pcs; len(b) >= pcDescSize; b = b[pcDescSize:] {
		offset := int32(binary.LittleEndian.Uint32(b))
		if offset < last {
			return nil, fmt.Errorf("code position %d after %d: %w", offset, last, vmruntime.ErrMalformed)
		}
		scope, err := d.chain(binary.LittleEndian.Uint32(b[pcDescScope:]))
		if err != nil {
			return nil, err
		}
		d.table.positions = append(d.table.positions, position{offset, scope})
		last = offset
	}
	d.table.evidence = d.table.positions
	d.table.scopes = slices.Clip(d.table.scopes)
	d.table.methods = slices.Clip(d.table.methods)
	return &d.table, nil
}

// A scopeDecoder turns offsets into the scope stream into scopes, each once, as positions share their callers.
type scopeDecoder struct {
	raw      rawScopes
	bias     uint32 // of UNSIGNED5
	table    scopeTable
	scopeAt  map[uint32]int32 // offset in the stream -> index
	methodAt map[uint64]int32 // address -> index
}

// chain decodes the scope at offset and those that it was inlined into. Offset 0 means none.
func (d *scopeDecoder) chain(offset uint32) (first int32, err error) {
	first = noScope
	inner := int32(noScope)
	for range maxInlining {
		if offset == 0 {
			return first, nil
		}
		i, known := d.scopeAt[offset]
		var sender uint32
		if !known {
			if i, sender, err = d.decode(offset); err != nil {
				return noScope, err
			}
		}
		if inner == noScope {
			first = i
		} else {
			d.table.scopes[inner].sender = i
		}
		if known {
			return first, nil
		}
		// A scope is written after the one that it is inlined into: this excludes cycles.
		if sender >= offset {
			return noScope, fmt.Errorf("scope %#x is inlined into %#x: %w", offset, sender, vmruntime.ErrMalformed)
		}
		inner, offset = i, sender
	}
	return noScope, fmt.Errorf("more than %d levels of inlining: %w", maxInlining, vmruntime.ErrMalformed)
}

// decode adds the scope at offset: the offset of the one that it is inlined into, the method's index in the metadata
// (from 1), and the bytecode index plus 1. What follows (locals, expressions, monitors) is not needed.
func (d *scopeDecoder) decode(offset uint32) (index int32, sender uint32, err error) {
	if uint64(offset) >= uint64(len(d.raw.scopes)) || len(d.table.scopes) >= maxScopes {
		return 0, 0, fmt.Errorf("scope at %#x of %#x bytes: %w", offset, len(d.raw.scopes), vmruntime.ErrMalformed)
	}
	in := stream5{data: d.raw.scopes[offset:], bias: d.bias}
	sender = in.next()
	slot := uint64(in.next())
	bci := int64(in.next()) - 1
	if in.failed || slot == 0 || slot > uint64(len(d.raw.metadata)/8) || bci > maxCodeSize {
		return 0, 0, fmt.Errorf("scope at %#x: %w", offset, vmruntime.ErrMalformed)
	}
	method := d.method(binary.LittleEndian.Uint64(d.raw.metadata[8*(slot-1):]))
	index = int32(len(d.table.scopes))
	d.scopeAt[offset] = index
	d.table.scopes = append(d.table.scopes, scope{sender: noScope, method: method, bci: int32(bci)})
	return index, sender, nil
}

func (d *scopeDecoder) method(address uint64) int32 {
	i, ok := d.methodAt[address]
	if !ok {
		i = int32(len(d.table.methods))
		d.methodAt[address] = i
		d.table.methods = append(d.table.methods, address)
	}
	return i
}

// maxCodeSize is the largest bytecode index: a method has at most 64 KiB of bytecode (JVM specification, 4.7.3).
const maxCodeSize = 1<<16 - 1
