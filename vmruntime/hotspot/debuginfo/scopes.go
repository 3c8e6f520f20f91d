// Package debuginfo decodes HotSpot's compressed debug information: what is inlined at which
// instruction of a compiled method, and the lines of a method.
//
//	s := debuginfo.NewSchema(resolver)
//	raw, err := debuginfo.Read(reader, &s, nmethod, header)
//	table, err := debuginfo.Decode(raw, bias)
//	place := table.At(offset)                              // an instruction by its offset in the code
//	line := debuginfo.LineOf(lines, bci, bias)
//
// Files:
//
//	schema      where in an nmethod debug information is
//	scopes      PcDescs and ScopeDescs: positions in the code, and the chains of inlined methods
//	locals      where a frame keeps its local variables
//	neighbours  instructions for which nothing is recorded
//	linetable   lines by bytecode index
//	unsigned5   the code of numbers in all of these
//
// Everything is decoded once and completely. Decoding bounds every count, and chains of scopes
// cannot have cycles.
package debuginfo

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on the debug information of one compiled method, some ten times what was seen.
const (
	maxScopeBytes = 1 << 20  // bytes of each of the three areas
	MaxPositions  = 64 << 10 // positions in the code
	maxScopes     = 64 << 10 // distinct ones
	MaxInlining   = 1024     // scopes in one chain
)

// RawScopes is the debug information of one compiled method as it lies in memory.
type RawScopes struct {
	PCs      []byte // PcDesc array (src/hotspot/share/code/pcDesc.hpp)
	Scopes   []byte // ScopeDesc stream (src/hotspot/share/code/scopeDesc.hpp)
	Metadata []byte // pointers, to Methods among others
}

// A Scope is one level of inlining: a place in a method, and the call there that was inlined into.
type Scope struct {
	Sender int32 // index of the scope that it was inlined into, NoScope for the compiled method itself
	Method int32 // index in Table.Methods
	BCI    int32 // bytecode index, -1 before the first bytecode
}

// NoScope stands for no scope where the index of one is expected.
const NoScope = -1

// Layout of a PcDesc: pc offset, scope offset, object offset, flags, 32 bits each.
const (
	pcDescSize  = 16
	pcDescScope = 4
)

// A Position says where in the source an instruction comes from. HotSpot records one for every
// place where it may have to look at the frame (the return address of a call, a poll, an implicit
// null check), and with DebugNonSafepoints one more whenever the place in the source changes.
type Position struct {
	Offset int32 // bytes from the method's first instruction
	Scope  int32 // index, NoScope for none
}

// A Table is decoded debug information: what is inlined at which instruction of one compiled
// method.
type Table struct {
	Positions []Position // in ascending order
	Scopes    []Scope
	Methods   []uint64   // addresses of the distinct Methods
	Complete  bool       // there are positions between safepoints: it was compiled with DebugNonSafepoints
	Evidence  []Position // evidence about instructions without a position: see shared
}

// A Place is what is known of an instruction.
type Place struct {
	Scope    int32 // the innermost one that is certain, NoScope if that is only the compiled method itself
	Located  bool  // so is its bytecode index
	Recorded bool  // the VM says so; otherwise something may be inlined in it
}

// At returns what is known of the instruction at offset, which was sampled or is returned to.
//
// A position is recorded behind the instructions that it is about. For calls it is the return
// address; between safepoints, both compilers note the place in the source after they have emitted
// an instruction (NonSafepointEmitter in src/hotspot/share/opto/output.cpp,
// LIR_Assembler::process_debug_info in c1). Disassembly of a method with three inlined leaves shows
// it: each position is the end of the last instruction of its leaf. So where there are positions
// for all instructions, the first one at or after offset counts.
//
// Why an equal one counts, though it ends the code before: a sampled pc is that of the instruction
// that was not yet executed, and the processor was interrupted while it waited for the one before.
// In a chain of dependent additions and divisions all samples are on the instruction behind a slow
// one, none on the slow one itself. Measured on such a chain, of leaves whose shares are known, one
// of which ends in a division: "at or after" gives it its share, "after" less than half of it, "at
// or before" swaps two other leaves (TestInlinedShares).
//
// Without DebugNonSafepoints the first position after offset is that of another instruction, often
// of a method that was inlined next to the sampled one: see shared.
func (t *Table) At(offset int32) Place {
	i := sort.Search(len(t.Positions), func(i int) bool { return t.Positions[i].Offset >= offset })
	if i < len(t.Positions) && t.Positions[i].Scope != NoScope && (t.Complete || t.Positions[i].Offset == offset) {
		return Place{Scope: t.Positions[i].Scope, Located: true, Recorded: true}
	}
	// The last one is a sentinel: what is behind all others handles exceptions.
	if t.Complete && i >= len(t.Positions)-1 {
		return Place{Scope: NoScope, Located: true, Recorded: true}
	}
	return t.shared(offset)
}

// Decode decodes raw completely, so that the process's memory is not needed again.
func Decode(raw RawScopes, bias uint32) (*Table, error) {
	if n := len(raw.PCs) / pcDescSize; n > MaxPositions {
		return nil, fmt.Errorf("%d code positions: %w", n, vmruntime.ErrMalformed)
	}
	scratch := scopeIndexes.Get().(*[]int32)
	defer scopeIndexes.Put(scratch)
	*scratch = slices.Grow((*scratch)[:0], len(raw.Scopes)+len(raw.Metadata)/8)
	all := (*scratch)[:len(raw.Scopes)+len(raw.Metadata)/8]
	clear(all)
	d := scopeDecoder{raw: raw, bias: bias, scopeAt: all[:len(raw.Scopes)], methodAt: all[len(raw.Scopes):],
		methods: make(map[uint64]int32)}
	d.table.Positions = make([]Position, 0, len(raw.PCs)/pcDescSize)
	last := int32(-1) // the first one is a sentinel at -1
	for b := raw.PCs; len(b) >= pcDescSize; b = b[pcDescSize:] {
		offset := int32(binary.LittleEndian.Uint32(b))
		if offset < last {
			return nil, fmt.Errorf("code position %d after %d: %w", offset, last, vmruntime.ErrMalformed)
		}
		scope, err := d.chain(binary.LittleEndian.Uint32(b[pcDescScope:]))
		if err != nil {
			return nil, err
		}
		d.table.Positions = append(d.table.Positions, Position{offset, scope})
		last = offset
	}
	d.table.Evidence = d.table.Positions
	d.table.Scopes = slices.Clip(d.table.Scopes)
	d.table.Methods = slices.Clip(d.table.Methods)
	table := d.table // alone: a pointer into d would keep what was decoded
	return &table, nil
}

// A scopeDecoder turns offsets into the scope stream into scopes, each once, as positions share
// their callers.
type scopeDecoder struct {
	raw      RawScopes
	bias     uint32 // bias of UNSIGNED5
	table    Table
	scopeAt  []int32          // by offset in the stream: index, plus 1
	methodAt []int32          // by index in the metadata: index in table.Methods, plus 1
	methods  map[uint64]int32 // by address: index in table.Methods
}

// scopeIndexes are the tables of scopeDecoders that are not in use.
var scopeIndexes = sync.Pool{New: func() any { return new([]int32) }}

// chain decodes the scope at offset and those that it was inlined into. Offset 0 means none.
func (d *scopeDecoder) chain(offset uint32) (first int32, err error) {
	first = NoScope
	inner := int32(NoScope)
	for range MaxInlining {
		if offset == 0 {
			return first, nil
		}
		var i int32
		var sender uint32
		known := uint64(offset) < uint64(len(d.scopeAt)) && d.scopeAt[offset] != 0
		if known {
			i = d.scopeAt[offset] - 1
		} else if i, sender, err = d.decode(offset); err != nil {
			return NoScope, err
		}
		if inner == NoScope {
			first = i
		} else {
			d.table.Scopes[inner].Sender = i
		}
		if known {
			return first, nil
		}
		// A scope is written after the one that it is inlined into: this excludes cycles.
		if sender >= offset {
			return NoScope, fmt.Errorf("scope %#x is inlined into %#x: %w", offset, sender, vmruntime.ErrMalformed)
		}
		inner, offset = i, sender
	}
	return NoScope, fmt.Errorf("more than %d levels of inlining: %w", MaxInlining, vmruntime.ErrMalformed)
}

// decode adds the scope at offset: the offset of the one that it is inlined into, the method's
// index in the metadata (from 1), and the bytecode index plus 1. What follows (locals, expressions,
// monitors) is not needed.
func (d *scopeDecoder) decode(offset uint32) (index int32, sender uint32, err error) {
	if uint64(offset) >= uint64(len(d.raw.Scopes)) || len(d.table.Scopes) >= maxScopes {
		return 0, 0, fmt.Errorf("scope at %#x of %#x bytes: %w", offset, len(d.raw.Scopes), vmruntime.ErrMalformed)
	}
	in := Unsigned5{Data: d.raw.Scopes[offset:], Bias: d.bias}
	sender = in.Next()
	slot := uint64(in.Next())
	bci := int64(in.Next()) - 1
	if in.Failed || slot == 0 || slot > uint64(len(d.raw.Metadata)/8) || bci > maxCodeSize {
		return 0, 0, fmt.Errorf("scope at %#x: %w", offset, vmruntime.ErrMalformed)
	}
	method := d.method(slot - 1)
	index = int32(len(d.table.Scopes))
	d.scopeAt[offset] = index + 1
	d.table.Scopes = append(d.table.Scopes, Scope{Sender: NoScope, Method: method, BCI: int32(bci)})
	return index, sender, nil
}

// method returns the index of the method that the metadata has at an index.
func (d *scopeDecoder) method(slot uint64) int32 {
	if i := d.methodAt[slot]; i != 0 {
		return i - 1
	}
	address := binary.LittleEndian.Uint64(d.raw.Metadata[8*slot:])
	i, known := d.methods[address] // it may be there twice
	if !known {
		i = int32(len(d.table.Methods))
		d.methods[address] = i
		d.table.Methods = append(d.table.Methods, address)
	}
	d.methodAt[slot] = i + 1
	return i
}

// maxCodeSize is the largest bytecode index: a method has at most 64 KiB of bytecode (JVM
// specification, 4.7.3).
const maxCodeSize = 1<<16 - 1
