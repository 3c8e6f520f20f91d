package hotspot

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// methodSchema leads from a Method (src/hotspot/share/oops/method.hpp) to its names and lines:
// Method -> ConstMethod -> ConstantPool -> Symbols, and ConstantPool -> Klass -> Symbol.
type methodSchema struct {
	constMethod, code, access vmstructs.Field // fields of Method

	constants, nameIndex, signatureIndex vmstructs.Field // fields of ConstMethod
	codeSize, flags, totalSize           vmstructs.Field // fields of ConstMethod; totalSize in words
	constMethodSize                      uint64
	hasLines                             uint64 // bit in flags
	mayRedefine                          uint64 // static of JvmtiExport; 0 if unknown

	holder, sourceFile vmstructs.Field // fields of ConstantPool
	poolSize           uint64

	klassName       vmstructs.Field // field of Klass
	klassSourceFile vmstructs.Field // field of InstanceKlass, in early JDKs

	symbolLength, symbolBody vmstructs.Field
	symbolLengthShift        uint // where the length is the upper half of a field
}

func newMethodSchema(r *vmstructs.Resolver) methodSchema {
	s := methodSchema{
		constMethod:     r.Field("Method._constMethod"),
		code:            r.Optional("Method._code"),
		access:          r.Optional("Method._access_flags"),
		constants:       r.Field("ConstMethod._constants"),
		nameIndex:       r.Field("ConstMethod._name_index"),
		signatureIndex:  r.Field("ConstMethod._signature_index"),
		codeSize:        r.Field("ConstMethod._code_size"),
		flags:           r.Field("ConstMethod._flags", "ConstMethod._flags._flags"),
		totalSize:       r.Optional("ConstMethod._constMethod_size"),
		constMethodSize: r.Size("ConstMethod"),
		hasLines: uint64(r.Constant("ConstMethod::_has_linenumber_table",
			"ConstMethodFlags::_misc_has_linenumber_table")),
		mayRedefine:     r.OptionalStatic("JvmtiExport._can_hotswap_or_post_breakpoint"),
		holder:          r.Field("ConstantPool._pool_holder"),
		sourceFile:      r.Optional("ConstantPool._source_file_name_index"),
		poolSize:        r.Size("ConstantPool"),
		klassName:       r.Field("Klass._name"),
		klassSourceFile: r.Optional("InstanceKlass._source_file_name_index"),
		symbolLength:    r.Field("Symbol._length", "Symbol._length_and_refcount"),
		symbolBody:      r.Field("Symbol._body", "Symbol._body[0]"),
	}
	if s.symbolLength.Width == 4 {
		s.symbolLengthShift = 16
	}
	return s
}

// MethodLayout leads from a Method to its bytecode.
type MethodLayout struct {
	ConstMethod     uint32 // Method: pointer
	Code            uint32 // Method: pointer to its nmethod or null
	ConstMethodSize uint32 // the bytecode follows a ConstMethod
	CodeSize        uint32 // ConstMethod: 16 bits, of the bytecode
	Constants       uint32 // ConstMethod: pointer to its ConstantPool
	PoolSize        uint32 // the constants follow a ConstantPool, 8 bytes each
	NameShift       uint32 // shift of the name's index in the 64 bits from CodeSize on; 0 if it is not there
	// MayRedefine is where the VM says, in a byte, whether an agent or a debugger in it may
	// redefine classes; 0 if it does not say.
	MayRedefine uint64
}

// layout is what the kernel side reads of a Method.
func (s *methodSchema) layout() MethodLayout {
	return MethodLayout{
		ConstMethod:     s.constMethod.Offset,
		Code:            s.code.Offset,
		ConstMethodSize: uint32(s.constMethodSize),
		CodeSize:        s.codeSize.Offset,
		Constants:       s.constants.Offset,
		PoolSize:        uint32(s.poolSize),
		NameShift:       s.nameShift(),
		MayRedefine:     s.mayRedefine,
	}
}

// symbolLayout is where a Symbol has the 16 bits of its length, and its text.
func (s *methodSchema) symbolLayout() (length, body uint32) {
	return s.symbolLength.Offset + uint32(s.symbolLengthShift/8), s.symbolBody.Offset
}

// A source is where code comes from, for people. It is immutable.
type source struct {
	function  string   // java.util.HashMap.get
	signature string   // (Ljava/lang/Object;)Ljava/lang/Object;
	file      string   // HashMap.java, or ""
	leaf      bool     // it calls nothing: nothing can be inlined in it
	enters    []uint16 // bytecode indexes of instructions that enter monitors
	locked    bool     // it is synchronized: it enters one before its first instruction
}

// A method is what a guest knows about one of its methods. It is immutable.
type method struct {
	*source
	body  methodBody
	lines []byte // compressed line number table, or nil
}

// entersAt reports whether the interpreter may enter a monitor where its frame has this index. It
// calls the VM for that with the index of the instruction behind monitorenter, whatever the
// processor (TemplateTable::monitorenter); a synchronized method begins with it.
func (s *source) entersAt(bci int) bool {
	if bci == 0 {
		return s.locked
	}
	return bci <= math.MaxUint16 && slices.Contains(s.enters, uint16(bci-1))
}

// A methodBody distinguishes a Method from others that have its memory later: a class that is
// redefined leaves its old methods' memory to others without being unloaded. The kernel side
// compares the same (struct seen_method).
type methodBody struct {
	constMethod uint64
	shape       uint64 // shapeSize bytes of it from _code_size on: the indexes of its names, too
	name        uint64 // its constant pool and the Symbol of its name in one word; 0 if they could not be read
}

// differs reports whether a method with that body cannot be the one that the kernel side met.
func (b methodBody) differs(seen vmruntime.SeenMethod) bool {
	other := methodBody{seen.Body, seen.Shape, seen.Name}
	return b.constMethod != other.constMethod || b.shape != other.shape || b.name != other.name && b.name != 0 &&
		other.name != 0
}

// nameWord is methodBody.name. The kernel side computes the same (read_method_name in
// interpreter.bpf.h).
func nameWord(pool, symbol uint64) uint64 {
	if pool == 0 || symbol == 0 {
		return 0
	}
	return (pool + untag(symbol)) * 0x9e3779b97f4a7c15
}

// nameShift is how many bits of a shape are below the index of the name; 0 if that is not in a
// shape.
func (s *methodSchema) nameShift() uint32 {
	from := s.nameIndex.Offset - s.codeSize.Offset
	if s.nameIndex.Offset < s.codeSize.Offset || from > shapeSize-2 {
		return 0
	}
	return 8 * from
}

const shapeSize = 8

// Bytes is about how much memory m holds.
func (m *method) Bytes() int {
	return 208 + 2*len(m.enters) + len(m.function) + len(m.signature) + len(m.lines)
}

// symbols reads Symbols (src/hotspot/share/oops/symbol.hpp), the strings that the VM shares: a
// length in 16 bits, and as many bytes of modified UTF-8. Those that cannot be read are absent;
// what is longer than vmstructs.MaxNameBytes is cut.
func (r methodReader) symbols(addrs []uint64) (map[uint64]string, error) {
	const guess = 64 // bytes to read at first: most symbols are shorter
	var heads, tails vmstructs.Batch
	addrs = vmstructs.Distinct(addrs)
	for _, addr := range addrs {
		heads.Add(addr, min(guess, vmstructs.PageSize-addr%vmstructs.PageSize)) // not into a page that may be missing
	}
	if err := heads.Read(r.Mem); err != nil {
		return nil, err
	}
	found := make(map[uint64]string, len(addrs))
	body := uint64(r.schema.symbolBody.Offset)
	var long []uint64
	for i, addr := range addrs {
		head, ok := heads.Bytes(i)
		if !ok || r.schema.symbolLength.End() > uint64(len(head)) {
			continue
		}
		length := min(r.schema.symbolLength.Read(head)>>r.schema.symbolLengthShift, vmstructs.MaxNameBytes)
		if body+length <= uint64(len(head)) {
			found[addr] = vmstructs.CleanText(head[body : body+length])
			continue
		}
		tails.Add(addr+body, length)
		long = append(long, addr)
	}
	if err := tails.Read(r.Mem); err != nil {
		return nil, err
	}
	for i, addr := range long {
		if text, ok := tails.Bytes(i); ok {
			found[addr] = vmstructs.CleanText(text)
		}
	}
	return found, nil
}

// frame names a place in m.
func (m *method) frame(bci int, bias uint32) vmruntime.Frame {
	f := vmruntime.Frame{
		Function:  m.function,
		Signature: m.signature,
		File:      m.file,
		BCI:       max(bci, -1),
		Tier:      vmruntime.TierInterpreter,
	}
	if bci >= 0 {
		f.Line = debuginfo.LineOf(m.lines, bci, bias)
		f.Enters = m.entersAt(bci)
	}
	return f
}
