package hotspot

import (
	"bytes"
	"cmp"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Bounds on one batch of methods. Callers bound how many methods they ask for.
const (
	maxLineBytes  = 32 << 10 // bytes of one line number table; 20,000 lines of source
	maxLinesBytes = 1 << 20  // bytes of all of them; what is beyond has no lines
	poolSlot      = 8        // bytes of one constant
)

// A methodReader reads Methods, many at a time: each step of the way is one batch.
type methodReader struct {
	vmstructs.Reader
	schema *methodSchema
	bias   uint32 // bias of UNSIGNED5
}

// A methodRead is one Method on the way: addresses of the structures around it.
type methodRead struct {
	addr, constMethod, pool, klass uint64
	header                         []byte // header of the ConstMethod
	class, name, signature, file   uint64 // Symbols; file may be 0
	lines                          []byte
	leaf                           bool     // its bytecode has no calls
	enters                         []uint16 // see source
	locked                         bool
	ok                             bool // nothing failed so far
}

// names reads only the names of the methods at addrs. Methods that cannot be read are absent.
func (r methodReader) names(addrs []uint64) (map[uint64]methodName, error) {
	reads, symbols, err := r.read(addrs, r.readConstMethods, r.readPools, r.readKlasses)
	if err != nil {
		return nil, err
	}
	names := make(map[uint64]methodName, len(reads))
	for i := range reads {
		if name, ok := reads[i].names(symbols); ok {
			names[reads[i].addr] = name
		}
	}
	return names, nil
}

// methods reads the methods at addrs with their lines. Methods that cannot be read are absent.
func (r methodReader) methods(addrs []uint64) (map[uint64]*method, error) {
	reads, symbols, err := r.read(addrs, r.readConstMethods, r.together(
		r.then(r.readPools, r.together(r.readKlasses, r.readFiles)),
		r.readLines, r.readBytecode))
	if err != nil {
		return nil, err
	}
	methods := make(map[uint64]*method, len(reads))
	for i := range reads {
		read := &reads[i]
		name, ok := read.names(symbols)
		if !ok {
			continue
		}
		methods[read.addr] = &method{
			source: &source{
				function:  functionName(name.class, name.name),
				signature: name.signature,
				file:      symbols[read.file],
				leaf:      read.leaf,
				enters:    read.enters,
				locked:    read.locked,
			},
			body:  methodBody{read.constMethod, r.schema.shape(read.header), nameWord(read.pool, read.name)},
			lines: read.lines,
		}
	}
	return methods, nil
}

// follow takes the steps one after the other.
func (r methodReader) follow(addrs []uint64, steps ...methodStep) ([]methodRead, error) {
	reads := make([]methodRead, 0, len(addrs))
	for _, addr := range vmstructs.Distinct(addrs) {
		reads = append(reads, methodRead{addr: addr, ok: true})
	}
	return reads, r.then(steps...)(reads)
}

// A methodStep reads one more thing of methods.
type methodStep func([]methodRead) error

// then takes steps one after the other.
func (r methodReader) then(steps ...methodStep) methodStep {
	return func(reads []methodRead) error {
		for _, step := range steps {
			if err := step(reads); err != nil {
				return err
			}
		}
		return nil
	}
}

// together takes steps that do not need each other.
func (r methodReader) together(steps ...methodStep) methodStep {
	return func(reads []methodRead) error {
		errs := make([]error, len(steps))
		functions := make([]func(), len(steps))
		for i, step := range steps {
			functions[i] = func() { errs[i] = step(reads) }
		}
		r.Together(functions...)
		return cmp.Or(errs...)
	}
}

// read takes the steps, then reads the Symbols that they found.
func (r methodReader) read(addrs []uint64, steps ...methodStep) ([]methodRead, map[uint64]string, error) {
	reads, err := r.follow(addrs, steps...)
	if err != nil {
		return nil, nil, err
	}
	var pointers []uint64
	for _, m := range reads {
		if m.ok {
			pointers = append(pointers, m.class, m.name, m.signature, m.file)
		}
	}
	symbols, err := r.symbols(pointers)
	return reads, symbols, err
}

func (m *methodRead) names(symbols map[uint64]string) (name methodName, ok bool) {
	var ok1, ok2, ok3 bool
	name.class, ok1 = symbols[m.class]
	name.name, ok2 = symbols[m.name]
	name.signature, ok3 = symbols[m.signature]
	return name, m.ok && ok1 && ok2 && ok3
}

// readConstMethods goes from Method to ConstMethod and reads its header.
func (r methodReader) readConstMethods(reads []methodRead) error {
	var pointers, headers vmstructs.Batch
	for _, m := range reads {
		pointers.Add(r.schema.constMethod.At(m.addr), 8)
	}
	if err := pointers.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		m := &reads[i]
		m.constMethod, m.ok = pointers.Word(i)
		headers.Add(m.constMethod, r.schema.constMethodSize)
	}
	if err := headers.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		m := &reads[i]
		header, ok := headers.Bytes(i)
		m.header, m.ok = header, m.ok && ok
		m.pool = r.schema.constants.Read(header)
	}
	return nil
}

// bodies reads what distinguishes the methods at addrs from others that may have their memory
// later. Those that cannot be read are absent.
func (r methodReader) bodies(addrs []uint64) (map[uint64]methodBody, error) {
	reads := make([]methodRead, len(addrs))
	for i, addr := range addrs {
		reads[i].addr = addr
	}
	if err := r.readConstMethods(reads); err != nil {
		return nil, err
	}
	var names vmstructs.Batch
	for _, m := range reads {
		names.Add(r.slot(m.pool, r.schema.nameIndex.Read(m.header)), poolSlot)
	}
	if err := names.Read(r.Mem); err != nil {
		return nil, err
	}
	bodies := make(map[uint64]methodBody, len(addrs))
	for i, m := range reads {
		if symbol, _ := names.Word(i); m.ok {
			bodies[m.addr] = methodBody{m.constMethod, r.schema.shape(m.header), nameWord(m.pool, symbol)}
		}
	}
	return bodies, nil
}

// shape is methodBody.shape of a ConstMethod's header.
func (s *methodSchema) shape(header []byte) uint64 {
	return vmstructs.Field{Offset: s.codeSize.Offset, Width: shapeSize, Known: true}.Read(header)
}

// readPools reads what the constant pool says: the names, and which class it belongs to.
func (r methodReader) readPools(reads []methodRead) error {
	const each = 3 // ranges of a method
	var b vmstructs.Batch
	for _, m := range reads {
		b.Add(r.schema.holder.At(m.pool), 8)
		b.Add(r.slot(m.pool, r.schema.nameIndex.Read(m.header)), poolSlot)
		b.Add(r.slot(m.pool, r.schema.signatureIndex.Read(m.header)), poolSlot)
	}
	if err := b.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		m := &reads[i]
		var ok1, ok2, ok3 bool
		m.klass, ok1 = b.Word(each * i)
		m.name, ok2 = b.Word(each*i + 1)
		m.signature, ok3 = b.Word(each*i + 2)
		m.name, m.signature = untag(m.name), untag(m.signature)
		m.ok = m.ok && ok1 && ok2 && ok3
	}
	return nil
}

// slot is the address of a constant in a pool.
func (r methodReader) slot(pool, index uint64) uint64 {
	return pool + r.schema.poolSize + poolSlot*index
}

// untag removes the mark that HotSpot keeps in the lowest bit of a constant.
func untag(constant uint64) uint64 { return constant &^ 1 }

// readKlasses goes from the classes to their names. Methods share classes, so each is read once.
func (r methodReader) readKlasses(reads []methodRead) error {
	var all []uint64
	for _, m := range reads {
		if m.ok {
			all = append(all, m.klass)
		}
	}
	var b vmstructs.Batch
	klasses := vmstructs.Distinct(all)
	for _, klass := range klasses {
		b.Add(r.schema.klassName.At(klass), 8)
	}
	if err := b.Read(r.Mem); err != nil {
		return err
	}
	names := make(map[uint64]uint64, len(klasses))
	for i, klass := range klasses {
		if name, ok := b.Word(i); ok {
			names[klass] = name
		}
	}
	for i := range reads {
		reads[i].class = names[reads[i].klass]
	}
	return nil
}

// readFiles reads which constant is the name of the source file; 0 means that the class file does
// not say.
func (r methodReader) readFiles(reads []methodRead) error {
	if !r.schema.sourceFile.Known && !r.schema.klassSourceFile.Known {
		return nil
	}
	var indexes, symbols vmstructs.Batch
	for _, m := range reads {
		if r.schema.sourceFile.Known {
			indexes.Add(r.schema.sourceFile.At(m.pool), 2)
		} else {
			indexes.Add(r.schema.klassSourceFile.At(m.klass), 2)
		}
	}
	if err := indexes.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range reads {
		index, _ := indexes.Word(i)
		symbols.Add(r.slot(m.pool, index), poolSlot)
	}
	if err := symbols.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		index, ok1 := indexes.Word(i)
		symbol, ok2 := symbols.Word(i)
		if ok1 && ok2 && index != 0 {
			reads[i].file = untag(symbol)
		}
	}
	return nil
}

// readLines reads the line number tables. One begins behind the bytecode, which is behind the
// ConstMethod; how long it is is not written anywhere, only how long everything together is.
func (r methodReader) readLines(reads []methodRead) error {
	var b vmstructs.Batch
	var with []*methodRead
	budget := uint64(maxLinesBytes)
	for i := range reads {
		m := &reads[i]
		start := r.schema.constMethodSize + r.schema.codeSize.Read(m.header)
		end := 8 * r.schema.totalSize.Read(m.header)
		if !m.ok || r.schema.flags.Read(m.header)&r.schema.hasLines == 0 || end <= start {
			continue
		}
		if n := min(end-start, maxLineBytes); n <= budget {
			budget -= n
			b.Add(m.constMethod+start, n)
			with = append(with, m)
		}
	}
	if err := b.Read(r.Mem); err != nil {
		return err
	}
	for i, m := range with {
		if rest, ok := b.Bytes(i); ok {
			m.lines = bytes.Clone(rest[:debuginfo.LineTableSize(rest, r.bias)])
		}
	}
	return nil
}

// readBytecode finds methods that call nothing, and where methods enter monitors. Those with more
// bytecode than most count as calling something.
func (r methodReader) readBytecode(reads []methodRead) error {
	const (
		most         = 4096   // bytes
		mostEnters   = 64     // monitor enters of a method
		synchronized = 0x0020 // ACC_SYNCHRONIZED
		accessBytes  = 2
	)
	var codes vmstructs.Batch
	for _, m := range reads {
		size := r.schema.codeSize.Read(m.header)
		if !m.ok || size > most {
			size = 0
		}
		codes.Add(m.constMethod+r.schema.constMethodSize, size)
		codes.Add(address(m.addr, r.schema.access), accessBytes)
	}
	if err := codes.Read(r.Mem); err != nil {
		return err
	}
	for i := range reads {
		if code, ok := codes.Bytes(2 * i); ok {
			calls, complete := calldata.Invokes(code)
			reads[i].leaf = complete && len(calls) == 0
			reads[i].enters = calldata.MonitorEnters(code, mostEnters)
		}
		access, ok := codes.Word(2*i + 1)
		reads[i].locked = ok && access&synchronized != 0
	}
	return nil
}
