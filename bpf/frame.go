package bpf

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A Frame is one frame of a user stack in one word (enum frame_kind in sample.h draws the bits). It
// names a code version, not only an address: code memory that is reused gives another Frame.
type Frame uint64

// FrameKind says how a frame was recognised.
type FrameKind uint8

// Kinds of frames.
const (
	FrameJIT         = FrameKind(ProfileFrameKindFRAME_JIT)
	FrameStub        = FrameKind(ProfileFrameKindFRAME_STUB)
	FrameInterpreted = FrameKind(ProfileFrameKindFRAME_INTERP)
	FrameNative      = FrameKind(ProfileFrameKindFRAME_NATIVE)
)

const noBCI = 0xffff

// Kind of f.
func (f Frame) Kind() FrameKind { return FrameKind(f >> 60) }

// CompileID is the low 28 bits of the compile id of a FrameJIT.
func (f Frame) CompileID() uint32 { return uint32(f>>32) & 0xfffffff }

// CodeOffset is the distance of the pc of a FrameJIT or FrameStub from HotspotProcess.CodeLow.
func (f Frame) CodeOffset() uint32 { return uint32(f) }

// NativeFrame is the frame of an address.
func NativeFrame(pc uint64) Frame { return Frame(FrameNative)<<60 | Frame(pc&(1<<59-1)) }

// PC of a FrameNative.
func (f Frame) PC() uint64 { return uint64(f) & (1<<60 - 1) }

// Layout of a FrameNative that may be none.
const (
	maybeShift   = 59
	maybePCBits  = 31
	distanceBits = 28
)

// MaybeCallerFrame is the frame that stands for a return address, if the function that was sampled
// has no frame.
func MaybeCallerFrame(sampled, back uint64) Frame {
	distance := Frame((back - sampled) & (1<<distanceBits - 1))
	return Frame(FrameNative)<<60 | 1<<maybeShift | distance<<maybePCBits | Frame(sampled&(1<<maybePCBits-1))
}

// MaybeCaller reports whether f stands for the caller of the sampled function, if that has no frame
// of its own, and for nothing otherwise. Sampled are the low bits of the sampled pc: see Sampled.
// The return address is distance bytes behind the sampled pc.
func (f Frame) MaybeCaller() (sampled uint32, distance int32, ok bool) {
	if f.Kind() != FrameNative || f>>maybeShift&1 == 0 {
		return 0, 0, false
	}
	return uint32(f) & (1<<maybePCBits - 1), int32(f>>maybePCBits<<(32-distanceBits)) >> (32 - distanceBits), true
}

// Sampled returns the first address from start on that has the low bits of a sampled pc.
func Sampled(low uint32, start uint64) uint64 {
	return start + (uint64(low)-start)&(1<<maybePCBits-1)
}

// Method is the address of the Method structure of a FrameInterpreted.
func (f Frame) Method() uint64 { return uint64(f) >> 16 & (1<<44 - 1) << 3 }

// BCI is the bytecode index of a FrameInterpreted, -1 if unknown.
func (f Frame) BCI() int32 {
	if b := int32(f & 0xffff); b != noBCI {
		return b
	}
	return -1
}

// String is for test failures and logs.
func (f Frame) String() string {
	switch f.Kind() {
	case FrameJIT:
		return fmt.Sprintf("jit{id %d, code+%#x}", f.CompileID(), f.CodeOffset())
	case FrameStub:
		return fmt.Sprintf("stub{code+%#x}", f.CodeOffset())
	case FrameInterpreted:
		return fmt.Sprintf("interpreted{%#x, bci %d}", f.Method(), f.BCI())
	case FrameNative:
		if sampled, distance, ok := f.MaybeCaller(); ok {
			return fmt.Sprintf("maybe native{%#x%+d}", sampled, distance)
		}
		return fmt.Sprintf("native{%#x}", f.PC())
	}
	return fmt.Sprintf("frame{%#x}", uint64(f))
}

// WalkEnd says why a walk of a user stack ended.
type WalkEnd uint8

// Ends of walks.
const (
	EndNone        = WalkEnd(ProfileWalkEndEND_NONE)
	EndRoot        = WalkEnd(ProfileWalkEndEND_ROOT)
	EndDepth       = WalkEnd(ProfileWalkEndEND_DEPTH)
	EndPointer     = WalkEnd(ProfileWalkEndEND_POINTER)
	EndNoCode      = WalkEnd(ProfileWalkEndEND_NO_CODE)
	EndNoBlob      = WalkEnd(ProfileWalkEndEND_NO_BLOB)
	EndRead        = WalkEnd(ProfileWalkEndEND_READ)
	EndDirection   = WalkEnd(ProfileWalkEndEND_DIRECTION)
	EndInterpreter = WalkEnd(ProfileWalkEndEND_INTERPRETER)
	EndHeap        = WalkEnd(ProfileWalkEndEND_HEAP)
	EndCompat      = WalkEnd(ProfileWalkEndEND_COMPAT)
	EndNoAnchor    = WalkEnd(ProfileWalkEndEND_NO_ANCHOR)
	EndUnsupported = WalkEnd(ProfileWalkEndEND_UNSUPPORTED)
	EndKnown       = WalkEnd(ProfileWalkEndEND_KNOWN)
	EndScan        = WalkEnd(ProfileWalkEndEND_SCAN)
	EndDeep        = WalkEnd(ProfileWalkEndEND_DEEP)
	EndThaw        = WalkEnd(ProfileWalkEndEND_THAW)
	EndTime        = WalkEnd(ProfileWalkEndEND_TIME)
	EndRule        = WalkEnd(ProfileWalkEndEND_RULE)
	EndCount       = WalkEnd(ProfileWalkEndEND_COUNT)
)

var endNames = [EndCount]string{
	EndNone: "kernel thread", EndRoot: "root", EndDepth: "deeper than 1024 frames", EndPointer: "no frame pointer",
	EndNoCode: "caller outside the code cache", EndNoBlob: "no code at caller", EndRead: "stack not readable",
	EndDirection: "caller below callee", EndInterpreter: "interpreter frame unclear",
	EndHeap: "rest of virtual thread on heap", EndCompat: "32-bit process", EndNoAnchor: "no way back to Java frames",
	EndUnsupported: "not supported here", EndKnown: "known from before",
	EndScan: "scan budget", EndDeep: "deeper than 5120 frames", EndThaw: "virtual thread freezing or thawing",
	EndTime: "time", EndRule: "no unwind rule",
}

// String is the reason in a few words, as it is shown to users: "no frame pointer".
func (e WalkEnd) String() string {
	if e < EndCount {
		return endNames[e]
	}
	return fmt.Sprintf("reason %d", uint8(e))
}

// Truncated reports whether frames are missing at the root side.
func (e WalkEnd) Truncated() bool { return e != EndRoot && e != EndNone && e != EndKnown }

// What hotspot.h defines of the seen_methods table.
const (
	seenMethods       = 1 << 14
	seenMethodsProbed = 4
	seenMethodsHash   = 0x9e3779b97f4a7c15
)

// ClassEpochChange is what is added to Epochs.Classes when a walk meets a Method structure as
// another method than before. What is below it counts classes that were unloaded.
const ClassEpochChange = 1 << 20

// SeenMethod returns what the method of a VM was when a walk met it last; false if none did, or if
// the table forgot it.
func (o *Objects) SeenMethod(serial uint32, method uint64) (SeenMethod, bool) {
	first := uint32((method ^ uint64(serial)<<48) * seenMethodsHash >> 40)
	for i := range uint32(seenMethodsProbed) {
		var m SeenMethod
		at := (first + i) & (seenMethods - 1)
		if o.SeenMethods.Lookup(at, &m) == nil && m.Serial == serial && m.Method == method {
			return m, true
		}
	}
	return SeenMethod{}, false
}

// What unwind.h defines: the layout of unwind tables, and of what the kernel side knows of processes
// whose code has some.
type (
	// UnwoundProcess says which code of a process has which table.
	UnwoundProcess = ProfileUnwoundProcess
	// UnwindMapping is a range of code with its table.
	UnwindMapping = ProfileUnwindMapping
	// UnwindWant has addresses of a process whose tables a walk lacked.
	UnwindWant = ProfileUnwindWant
)

// Bounds of the kernel side of unwind tables.
const (
	MaxUnwindTables   = 1024                      // MAX_UNWIND_TABLES
	MaxUnwound        = 2048                      // MAX_UNWOUND: processes
	MaxUnwindMappings = 128                       // MAX_UNWIND_MAPPINGS: mappings of one process
	LeastUnwoundAge   = 50 * time.Millisecond     // UNWIND_LEAST_AGE_NS: of processes that ask for tables
	MaxUnwoundRows    = unwindBlocks * unwindRows // rows of one table

	unwindRows   = 1024 // UNWIND_ROWS
	unwindBlocks = 2048 // UNWIND_BLOCKS
	// UnwindBlockBytes is the unit in which tables take memory.
	UnwindBlockBytes = 8 + 8*unwindRows
	// NoUnwindTable is the table of code that has none.
	NoUnwindTable = 0xffff  // NO_UNWIND_TABLE
	unwindNowhere = 1 << 62 // UNWIND_NOWHERE
)

// UnwindBlocks is how many blocks a table of that many rows has.
func UnwindBlocks(rows int) int { return 1 + (rows+unwindRows-1)/unwindRows }

// NewUnwindTable makes a table for Objects.UnwindTables. Its rows ascend: each is an offset in the
// lower half of a word, less than 1<<32 - 1, and a rule in the upper half. The caller closes the
// table, and may do so once it is among the others.
func NewUnwindTable(generation uint32, rows int, row func(int) uint64) (*ebpf.Map, error) {
	if rows == 0 || rows > MaxUnwoundRows {
		return nil, fmt.Errorf("unwind table of %d rows: %w", rows, unix.E2BIG)
	}
	blocks := UnwindBlocks(rows)
	m, err := ebpf.NewMap(&ebpf.MapSpec{
		Name: "unwind_table", Type: ebpf.Array, KeySize: 4, ValueSize: UnwindBlockBytes, MaxEntries: uint32(blocks),
		Flags: unix.BPF_F_INNER_MAP,
	})
	if err != nil {
		return nil, fmt.Errorf("make unwind table: %w", err)
	}
	var index, block ProfileUnwindBlock
	for i := range index.Rows {
		index.Rows[i] = ^uint64(0)
	}
	index.Generation, block.Generation = uint64(generation), uint64(generation)
	for b := range blocks - 1 {
		first := b * unwindRows
		for i := range block.Rows {
			block.Rows[i] = ^uint64(0)
			if first+i < rows {
				block.Rows[i] = row(first + i)
			}
		}
		half, shift := &index.Rows[b/2], b%2*32
		*half = *half&^(0xffffffff<<shift) | uint64(uint32(block.Rows[0]))<<shift
		if err = m.Put(uint32(1+b), &block); err != nil {
			break
		}
	}
	if err == nil {
		err = m.Put(uint32(0), &index)
	}
	if err != nil {
		m.Close()
		return nil, fmt.Errorf("fill unwind table: %w", err)
	}
	return m, nil
}

// SetMappings sets the code that has tables: at most MaxUnwindMappings ranges, ascending.
func (p *ProfileUnwoundProcess) SetMappings(mappings []UnwindMapping) {
	for i := copy(p.Mappings[:], mappings); i < len(p.Mappings); i++ {
		p.Mappings[i] = UnwindMapping{Begin: unwindNowhere, Table: NoUnwindTable}
	}
}
