// Package methodinfo reads what a HotSpot VM keeps of its methods: names, lines, source files, and what
// tells one from another that has its memory later. It reads many methods at a time, each step of
// the way in one batch, and turns the VM's names into those that people know.
//
//	r := methodinfo.Reader{Reader: memory, Schema: &schema, Bias: bias}
//	methods, err := r.Methods(addrs)                       // by address; those that cannot be read are absent
//	frame := methods[addr].Frame(bci, bias)
package methodinfo

import (
	"math"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Schema leads from a Method (src/hotspot/share/oops/method.hpp) to its names and lines:
// Method -> ConstMethod -> ConstantPool -> Symbols, and ConstantPool -> Klass -> Symbol.
type Schema struct {
	constMethod, Code, access vmstructs.Field // fields of Method

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

// NewSchema looks up the fields.
func NewSchema(r *vmstructs.Resolver) Schema {
	s := Schema{
		constMethod:     r.Field("Method._constMethod"),
		Code:            r.Optional("Method._code"),
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

// Layout leads from a Method to its bytecode.
type Layout struct {
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

// Layout is what the kernel side reads of a Method.
func (s *Schema) Layout() Layout {
	return Layout{
		ConstMethod:     s.constMethod.Offset,
		Code:            s.Code.Offset,
		ConstMethodSize: uint32(s.constMethodSize),
		CodeSize:        s.codeSize.Offset,
		Constants:       s.constants.Offset,
		PoolSize:        uint32(s.poolSize),
		NameShift:       s.nameShift(),
		MayRedefine:     s.mayRedefine,
	}
}

// SymbolLayout is where a Symbol has the 16 bits of its length, and its text.
func (s *Schema) SymbolLayout() (length, body uint32) {
	return s.symbolLength.Offset + uint32(s.symbolLengthShift/8), s.symbolBody.Offset
}

// A source is where code comes from, for people. It is immutable.
type source struct {
	Function  string   // java.util.HashMap.get
	Signature string   // (Ljava/lang/Object;)Ljava/lang/Object;
	File      string   // HashMap.java, or ""
	Leaf      bool     // it calls nothing: nothing can be inlined in it
	enters    []uint16 // bytecode indexes of instructions that enter monitors
	locked    bool     // it is synchronized: it enters one before its first instruction
}

// A Method is what a guest knows about one of its methods. It is immutable.
type Method struct {
	*source
	Body  Body
	Lines []byte // compressed line number table, or nil
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

// A Body distinguishes a Method from others that have its memory later: a class that is
// redefined leaves its old methods' memory to others without being unloaded. The kernel side
// compares the same (struct seen_method).
type Body struct {
	ConstMethod uint64
	Shape       uint64 // shapeSize bytes of it from _code_size on: the indexes of its names, too
	Name        uint64 // its constant pool and the Symbol of its name in one word; 0 if they could not be read
}

// Differs reports whether a method with that body cannot be the one that the kernel side met.
func (b Body) Differs(seen vmruntime.SeenMethod) bool {
	other := Body{seen.Body, seen.Shape, seen.Name}
	return b.ConstMethod != other.ConstMethod || b.Shape != other.Shape || b.Name != other.Name && b.Name != 0 &&
		other.Name != 0
}

// nameWord is Body.name. The kernel side computes the same (read_method_name in
// interpreter.bpf.h).
func nameWord(pool, symbol uint64) uint64 {
	if pool == 0 || symbol == 0 {
		return 0
	}
	return (pool + Untag(symbol)) * vmruntime.SeenNameHash
}

// nameShift is how many bits of a shape are below the index of the name; 0 if that is not in a
// shape.
func (s *Schema) nameShift() uint32 {
	from := s.nameIndex.Offset - s.codeSize.Offset
	if s.nameIndex.Offset < s.codeSize.Offset || from > shapeSize-2 {
		return 0
	}
	return 8 * from
}

const shapeSize = 8

// Bytes is about how much memory m holds.
func (m *Method) Bytes() int {
	return 208 + 2*len(m.enters) + len(m.Function) + len(m.Signature) + len(m.Lines)
}

// Symbols reads Symbols (src/hotspot/share/oops/symbol.hpp), the strings that the VM shares: a
// length in 16 bits, and as many bytes of modified UTF-8. Those that cannot be read are absent;
// what is longer than vmstructs.MaxNameBytes is cut.
func (r Reader) Symbols(addrs []uint64) (map[uint64]string, error) {
	const guess = 64 // bytes to read at first: most symbols are shorter
	heads, tails := vmstructs.PassingBatch(), vmstructs.PassingBatch()
	defer heads.Free()
	defer tails.Free()
	addrs = vmstructs.Distinct(addrs)
	for _, addr := range addrs {
		heads.Add(addr, min(guess, vmstructs.PageSize-addr%vmstructs.PageSize)) // not into a page that may be missing
	}
	if err := heads.Read(r.Mem); err != nil {
		return nil, err
	}
	found := make(map[uint64]string, len(addrs))
	body := uint64(r.Schema.symbolBody.Offset)
	var long []uint64
	for i, addr := range addrs {
		head, ok := heads.Bytes(i)
		if !ok || r.Schema.symbolLength.End() > uint64(len(head)) {
			continue
		}
		length := min(r.Schema.symbolLength.Read(head)>>r.Schema.symbolLengthShift, vmstructs.MaxNameBytes)
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

// Frame names a place in m.
func (m *Method) Frame(bci int, bias uint32) vmruntime.Frame {
	f := vmruntime.Frame{
		Function:  m.Function,
		Signature: m.Signature,
		File:      m.File,
		BCI:       max(bci, -1),
		Tier:      vmruntime.TierInterpreter,
	}
	if bci >= 0 {
		f.Line = debuginfo.LineOf(m.Lines, bci, bias)
		f.Enters = m.entersAt(bci)
	}
	return f
}
