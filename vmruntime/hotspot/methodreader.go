package hotspot

import (
	"bytes"

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

// A methodName is the identity of a method as the VM has it: java/util/HashMap, get,
// (Ljava/lang/Object;)….
type methodName struct {
	class, name, signature string
}

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
	fileIndex                      uint64 // index of the constant with the file; 0 if there is none
	lines                          []byte
	leaf                           bool     // its bytecode has no calls
	enters                         []uint16 // see source
	locked                         bool
	ok                             bool // nothing failed so far
}

// names reads only the names of the methods at addrs. Methods that cannot be read are absent.
func (r methodReader) names(addrs []uint64) (map[uint64]methodName, error) {
	reads, symbols, err := r.named(addrs)
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
	rounds := []methodRound{{r.pools, r.lines, r.bytecode}, {r.klasses}}
	switch {
	case r.schema.sourceFile.Known:
		rounds[0], rounds[1] = append(rounds[0], r.fileIndexes), append(rounds[1], r.files)
	case r.schema.klassSourceFile.Known:
		rounds[1] = append(rounds[1], r.fileIndexes)
		rounds = append(rounds, methodRound{r.files})
	}
	reads, symbols, err := r.read(addrs, rounds...)
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

// A methodStep reads one more thing of methods, as a vmstructs.Need does.
type methodStep func(b *vmstructs.Batch, reads []methodRead) (take func())

// A methodRound is steps that do not need each other.
type methodRound []methodStep

// follow goes from the methods to their ConstMethods, then takes the rounds one after the other.
func (r methodReader) follow(addrs []uint64, rounds ...methodRound) ([]methodRead, error) {
	reads := make([]methodRead, 0, len(addrs))
	for _, addr := range vmstructs.Distinct(addrs) {
		reads = append(reads, methodRead{addr: addr, ok: true})
	}
	return reads, r.take(reads, append([]methodRound{{r.constMethods}, {r.headers}}, rounds...)...)
}

// located goes to the ConstMethods only.
func (r methodReader) located(addrs []uint64) ([]methodRead, error) { return r.follow(addrs) }

// pooled also reads what the constant pools say.
func (r methodReader) pooled(addrs []uint64) ([]methodRead, error) {
	return r.follow(addrs, methodRound{r.pools})
}

// named also reads the Symbols of the names: see methodRead.names.
func (r methodReader) named(addrs []uint64) ([]methodRead, map[uint64]string, error) {
	return r.read(addrs, methodRound{r.pools}, methodRound{r.klasses})
}

// bytecode is where the bytecode of a method is, which is behind the ConstMethod, and how many
// bytes it has. Native methods have none.
func (r methodReader) bytecodeOf(m *methodRead) (addr, size uint64) {
	return m.constMethod + r.schema.constMethodSize, r.schema.codeSize.Read(m.header)
}

// take takes rounds one after the other.
func (r methodReader) take(reads []methodRead, rounds ...methodRound) error {
	for _, round := range rounds {
		needs := make([]vmstructs.Need, len(round))
		for i, step := range round {
			needs[i] = func(b *vmstructs.Batch) func() { return step(b, reads) }
		}
		if err := r.Gather(needs...); err != nil {
			return err
		}
	}
	return nil
}

// read takes the rounds, then reads the Symbols that they found.
func (r methodReader) read(addrs []uint64, rounds ...methodRound) ([]methodRead, map[uint64]string, error) {
	reads, err := r.follow(addrs, rounds...)
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

// constMethods goes from Method to ConstMethod.
func (r methodReader) constMethods(b *vmstructs.Batch, reads []methodRead) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.schema.constMethod.At(m.addr), 8)
	}
	return func() {
		for i := range reads {
			reads[i].constMethod, reads[i].ok = b.Word(first + i)
		}
	}
}

// headers reads the headers of ConstMethods.
func (r methodReader) headers(b *vmstructs.Batch, reads []methodRead) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(m.constMethod, r.schema.constMethodSize)
	}
	return func() {
		for i := range reads {
			m := &reads[i]
			header, ok := b.Bytes(first + i)
			m.header, m.ok = header, m.ok && ok
			m.pool = r.schema.constants.Read(header)
		}
	}
}

// bodies reads what distinguishes the methods at addrs from others that may have their memory
// later. Those that cannot be read are absent.
func (r methodReader) bodies(addrs []uint64) (map[uint64]methodBody, error) {
	reads := make([]methodRead, len(addrs))
	for i, addr := range addrs {
		reads[i].addr = addr
	}
	if err := r.take(reads, methodRound{r.constMethods}, methodRound{r.headers}); err != nil {
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

// pools reads what the constant pool says: the names, and which class it belongs to.
func (r methodReader) pools(b *vmstructs.Batch, reads []methodRead) func() {
	const each = 3 // ranges of a method
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.schema.holder.At(m.pool), 8)
		b.Add(r.slot(m.pool, r.schema.nameIndex.Read(m.header)), poolSlot)
		b.Add(r.slot(m.pool, r.schema.signatureIndex.Read(m.header)), poolSlot)
	}
	return func() {
		for i := range reads {
			m, at := &reads[i], first+each*i
			var ok1, ok2, ok3 bool
			m.klass, ok1 = b.Word(at)
			m.name, ok2 = b.Word(at + 1)
			m.signature, ok3 = b.Word(at + 2)
			m.name, m.signature = untag(m.name), untag(m.signature)
			m.ok = m.ok && ok1 && ok2 && ok3
		}
	}
}

// slot is the address of a constant in a pool.
func (r methodReader) slot(pool, index uint64) uint64 {
	return pool + r.schema.poolSize + poolSlot*index
}

// untag removes the mark that HotSpot keeps in the lowest bit of a constant.
func untag(constant uint64) uint64 { return constant &^ 1 }

// klasses goes from the classes to their names. Methods share classes, so each is read once.
func (r methodReader) klasses(b *vmstructs.Batch, reads []methodRead) func() {
	var all []uint64
	for _, m := range reads {
		if m.ok {
			all = append(all, m.klass)
		}
	}
	first, klasses := len(b.Ranges), vmstructs.Distinct(all)
	for _, klass := range klasses {
		b.Add(r.schema.klassName.At(klass), 8)
	}
	return func() {
		names := make(map[uint64]uint64, len(klasses))
		for i, klass := range klasses {
			if name, ok := b.Word(first + i); ok {
				names[klass] = name
			}
		}
		for i := range reads {
			reads[i].class = names[reads[i].klass]
		}
	}
}

// fileIndexes reads which constant is the name of the source file; 0 means that the class file does
// not say.
func (r methodReader) fileIndexes(b *vmstructs.Batch, reads []methodRead) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		if r.schema.sourceFile.Known {
			b.Add(r.schema.sourceFile.At(m.pool), 2)
		} else {
			b.Add(r.schema.klassSourceFile.At(m.klass), 2)
		}
	}
	return func() {
		for i := range reads {
			if index, ok := b.Word(first + i); ok {
				reads[i].fileIndex = index
			}
		}
	}
}

// files reads the names of the source files.
func (r methodReader) files(b *vmstructs.Batch, reads []methodRead) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.slot(m.pool, m.fileIndex), poolSlot)
	}
	return func() {
		for i := range reads {
			if symbol, ok := b.Word(first + i); ok && reads[i].fileIndex != 0 {
				reads[i].file = untag(symbol)
			}
		}
	}
}

// lines reads the line number tables. One begins behind the bytecode, which is behind the
// ConstMethod; how long it is is not written anywhere, only how long everything together is.
func (r methodReader) lines(b *vmstructs.Batch, reads []methodRead) func() {
	first := len(b.Ranges)
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
	return func() {
		for i, m := range with {
			if rest, ok := b.Bytes(first + i); ok {
				m.lines = bytes.Clone(rest[:debuginfo.LineTableSize(rest, r.bias)])
			}
		}
	}
}

// bytecode finds methods that call nothing, and where methods enter monitors. Those with more
// bytecode than most count as calling something.
func (r methodReader) bytecode(b *vmstructs.Batch, reads []methodRead) func() {
	const (
		most         = 4096   // bytes
		mostEnters   = 64     // monitor enters of a method
		synchronized = 0x0020 // ACC_SYNCHRONIZED
		accessBytes  = 2
	)
	first := len(b.Ranges)
	for _, m := range reads {
		size := r.schema.codeSize.Read(m.header)
		if !m.ok || size > most {
			size = 0
		}
		b.Add(m.constMethod+r.schema.constMethodSize, size)
		b.Add(r.schema.access.Of(m.addr), accessBytes)
	}
	return func() {
		for i := range reads {
			if code, ok := b.Bytes(first + 2*i); ok {
				calls, complete := calldata.Invokes(code)
				reads[i].leaf = complete && len(calls) == 0
				reads[i].enters = calldata.MonitorEnters(code, mostEnters)
			}
			access, ok := b.Word(first + 2*i + 1)
			reads[i].locked = ok && access&synchronized != 0
		}
	}
}

// klassNames reads the names of classes. Those that cannot be read are absent.
func (r methodReader) klassNames(klasses []uint64) (map[uint64]string, error) {
	var pointers vmstructs.Batch
	for _, klass := range klasses {
		pointers.Add(r.schema.klassName.At(klass), vmstructs.WordSize)
	}
	if err := pointers.Read(r.Mem); err != nil {
		return nil, err
	}
	names := make(map[uint64]uint64, len(klasses))
	var addrs []uint64
	for i, klass := range klasses {
		if symbol, ok := pointers.Word(i); ok {
			names[klass] = symbol
			addrs = append(addrs, symbol)
		}
	}
	symbols, err := r.symbols(addrs)
	if err != nil {
		return nil, err
	}
	found := make(map[uint64]string, len(klasses))
	for klass, symbol := range names {
		if name, ok := symbols[symbol]; ok {
			found[klass] = className(name)
		}
	}
	return found, nil
}
