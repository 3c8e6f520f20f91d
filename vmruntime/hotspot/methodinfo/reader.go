package methodinfo

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
	PoolSlot      = 8        // bytes of one constant
)

// An Identity is the identity of a method as the VM has it: java/util/HashMap, get,
// (Ljava/lang/Object;)….
type Identity struct {
	Class, Name, Signature string
}

// A Reader reads Methods, many at a time: each step of the way is one batch.
type Reader struct {
	vmstructs.Reader
	Schema *Schema
	Bias   uint32 // bias of UNSIGNED5
}

// A Read is one Method on the way: addresses of the structures around it.
type Read struct {
	Addr, ConstMethod, Pool, Klass uint64
	header                         []byte // header of the ConstMethod
	class, Name, Signature, file   uint64 // Symbols; file may be 0
	fileIndex                      uint64 // index of the constant with the file; 0 if there is none
	lines                          []byte
	leaf                           bool     // its bytecode has no calls
	enters                         []uint16 // see source
	locked                         bool
	OK                             bool // nothing failed so far
}

// Names reads only the names of the methods at addrs. Methods that cannot be read are absent.
func (r Reader) Names(addrs []uint64) (map[uint64]Identity, error) {
	reads, symbols, err := r.WithNames(addrs)
	if err != nil {
		return nil, err
	}
	names := make(map[uint64]Identity, len(reads))
	for i := range reads {
		if name, ok := reads[i].Names(symbols); ok {
			names[reads[i].Addr] = name
		}
	}
	return names, nil
}

// Methods reads the methods at addrs with their lines. Methods that cannot be read are absent.
func (r Reader) Methods(addrs []uint64) (map[uint64]*Method, error) {
	rounds := []methodRound{{r.pools, r.lines, r.bytecode}, {r.klasses}}
	switch {
	case r.Schema.sourceFile.Known:
		rounds[0], rounds[1] = append(rounds[0], r.fileIndexes), append(rounds[1], r.files)
	case r.Schema.klassSourceFile.Known:
		rounds[1] = append(rounds[1], r.fileIndexes)
		rounds = append(rounds, methodRound{r.files})
	}
	reads, symbols, err := r.read(addrs, rounds...)
	if err != nil {
		return nil, err
	}
	methods := make(map[uint64]*Method, len(reads))
	for i := range reads {
		read := &reads[i]
		name, ok := read.Names(symbols)
		if !ok {
			continue
		}
		methods[read.Addr] = &Method{
			source: &source{
				Function:  FunctionName(name.Class, name.Name),
				Signature: name.Signature,
				File:      symbols[read.file],
				Leaf:      read.leaf,
				enters:    read.enters,
				locked:    read.locked,
			},
			Body:  Body{read.ConstMethod, r.Schema.shape(read.header), nameWord(read.Pool, read.Name)},
			Lines: read.lines,
		}
	}
	return methods, nil
}

// A methodStep reads one more thing of methods, as a vmstructs.Need does.
type methodStep func(b *vmstructs.Batch, reads []Read) (take func())

// A methodRound is steps that do not need each other.
type methodRound []methodStep

// follow goes from the methods to their ConstMethods, then takes the rounds one after the other.
func (r Reader) follow(addrs []uint64, rounds ...methodRound) ([]Read, error) {
	reads := make([]Read, 0, len(addrs))
	for _, addr := range vmstructs.Distinct(addrs) {
		reads = append(reads, Read{Addr: addr, OK: true})
	}
	return reads, r.take(reads, append([]methodRound{{r.constMethods}, {r.headers}}, rounds...)...)
}

// Headers reads what is in the Methods themselves and in their ConstMethods.
func (r Reader) Headers(addrs []uint64) ([]Read, error) { return r.follow(addrs) }

// WithPools also reads what the constant pools say.
func (r Reader) WithPools(addrs []uint64) ([]Read, error) {
	return r.follow(addrs, methodRound{r.pools})
}

// WithNames also reads the Symbols of the names: see Read.Names.
func (r Reader) WithNames(addrs []uint64) ([]Read, map[uint64]string, error) {
	return r.read(addrs, methodRound{r.pools}, methodRound{r.klasses})
}

// BytecodeOf is where the bytecode of a method is, which is behind the ConstMethod, and how many
// bytes it has. Native methods have none.
func (r Reader) BytecodeOf(m *Read) (addr, size uint64) {
	return m.ConstMethod + r.Schema.constMethodSize, r.Schema.codeSize.Read(m.header)
}

// take takes rounds one after the other.
func (r Reader) take(reads []Read, rounds ...methodRound) error {
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
func (r Reader) read(addrs []uint64, rounds ...methodRound) ([]Read, map[uint64]string, error) {
	reads, err := r.follow(addrs, rounds...)
	if err != nil {
		return nil, nil, err
	}
	var pointers []uint64
	for _, m := range reads {
		if m.OK {
			pointers = append(pointers, m.class, m.Name, m.Signature, m.file)
		}
	}
	symbols, err := r.Symbols(pointers)
	return reads, symbols, err
}

// Names looks the names up among Symbols.
func (m *Read) Names(symbols map[uint64]string) (name Identity, ok bool) {
	var ok1, ok2, ok3 bool
	name.Class, ok1 = symbols[m.class]
	name.Name, ok2 = symbols[m.Name]
	name.Signature, ok3 = symbols[m.Signature]
	return name, m.OK && ok1 && ok2 && ok3
}

// constMethods goes from Method to ConstMethod.
func (r Reader) constMethods(b *vmstructs.Batch, reads []Read) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.Schema.constMethod.At(m.Addr), 8)
	}
	return func() {
		for i := range reads {
			reads[i].ConstMethod, reads[i].OK = b.Word(first + i)
		}
	}
}

// headers reads the headers of ConstMethods.
func (r Reader) headers(b *vmstructs.Batch, reads []Read) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(m.ConstMethod, r.Schema.constMethodSize)
	}
	return func() {
		kept := make([]byte, 0, uint64(len(reads))*r.Schema.constMethodSize)
		for i := range reads {
			m := &reads[i]
			header, ok := b.Bytes(first + i)
			kept = append(kept, header...)
			m.header, kept = kept[:len(header):len(header)], kept[len(header):]
			m.OK = m.OK && ok
			m.Pool = r.Schema.constants.Read(m.header)
		}
	}
}

// Bodies reads what distinguishes the methods at addrs from others that may have their memory
// later. Those that cannot be read are absent.
func (r Reader) Bodies(addrs []uint64) (map[uint64]Body, error) {
	reads := make([]Read, len(addrs))
	for i, addr := range addrs {
		reads[i].Addr = addr
	}
	if err := r.take(reads, methodRound{r.constMethods}, methodRound{r.headers}); err != nil {
		return nil, err
	}
	names := vmstructs.PassingBatch()
	defer names.Free()
	for _, m := range reads {
		names.Add(r.Slot(m.Pool, r.Schema.nameIndex.Read(m.header)), PoolSlot)
	}
	if err := names.Read(r.Mem); err != nil {
		return nil, err
	}
	bodies := make(map[uint64]Body, len(addrs))
	for i, m := range reads {
		if symbol, _ := names.Word(i); m.OK {
			bodies[m.Addr] = Body{m.ConstMethod, r.Schema.shape(m.header), nameWord(m.Pool, symbol)}
		}
	}
	return bodies, nil
}

// shape is Body.shape of a ConstMethod's header.
func (s *Schema) shape(header []byte) uint64 {
	return vmstructs.Field{Offset: s.codeSize.Offset, Width: shapeSize, Known: true}.Read(header)
}

// pools reads what the constant pool says: the names, and which class it belongs to.
func (r Reader) pools(b *vmstructs.Batch, reads []Read) func() {
	const each = 3 // ranges of a method
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.Schema.holder.At(m.Pool), 8)
		b.Add(r.Slot(m.Pool, r.Schema.nameIndex.Read(m.header)), PoolSlot)
		b.Add(r.Slot(m.Pool, r.Schema.signatureIndex.Read(m.header)), PoolSlot)
	}
	return func() {
		for i := range reads {
			m, at := &reads[i], first+each*i
			var ok1, ok2, ok3 bool
			m.Klass, ok1 = b.Word(at)
			m.Name, ok2 = b.Word(at + 1)
			m.Signature, ok3 = b.Word(at + 2)
			m.Name, m.Signature = Untag(m.Name), Untag(m.Signature)
			m.OK = m.OK && ok1 && ok2 && ok3
		}
	}
}

// Slot is the address of a constant in a pool.
func (r Reader) Slot(pool, index uint64) uint64 {
	return pool + r.Schema.poolSize + PoolSlot*index
}

// Untag removes the mark that HotSpot keeps in the lowest bit of a constant.
func Untag(constant uint64) uint64 { return constant &^ 1 }

// klasses goes from the classes to their names. Methods share classes, so each is read once.
func (r Reader) klasses(b *vmstructs.Batch, reads []Read) func() {
	var all []uint64
	for _, m := range reads {
		if m.OK {
			all = append(all, m.Klass)
		}
	}
	first, klasses := len(b.Ranges), vmstructs.Distinct(all)
	for _, klass := range klasses {
		b.Add(r.Schema.klassName.At(klass), 8)
	}
	return func() {
		names := make(map[uint64]uint64, len(klasses))
		for i, klass := range klasses {
			if name, ok := b.Word(first + i); ok {
				names[klass] = name
			}
		}
		for i := range reads {
			reads[i].class = names[reads[i].Klass]
		}
	}
}

// fileIndexes reads which constant is the name of the source file; 0 means that the class file does
// not say.
func (r Reader) fileIndexes(b *vmstructs.Batch, reads []Read) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		if r.Schema.sourceFile.Known {
			b.Add(r.Schema.sourceFile.At(m.Pool), 2)
		} else {
			b.Add(r.Schema.klassSourceFile.At(m.Klass), 2)
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
func (r Reader) files(b *vmstructs.Batch, reads []Read) func() {
	first := len(b.Ranges)
	for _, m := range reads {
		b.Add(r.Slot(m.Pool, m.fileIndex), PoolSlot)
	}
	return func() {
		for i := range reads {
			if symbol, ok := b.Word(first + i); ok && reads[i].fileIndex != 0 {
				reads[i].file = Untag(symbol)
			}
		}
	}
}

// lines reads the line number tables. One begins behind the bytecode, which is behind the
// ConstMethod; how long it is is not written anywhere, only how long everything together is.
func (r Reader) lines(b *vmstructs.Batch, reads []Read) func() {
	first := len(b.Ranges)
	var with []*Read
	budget := uint64(maxLinesBytes)
	for i := range reads {
		m := &reads[i]
		start := r.Schema.constMethodSize + r.Schema.codeSize.Read(m.header)
		end := 8 * r.Schema.totalSize.Read(m.header)
		if !m.OK || r.Schema.flags.Read(m.header)&r.Schema.hasLines == 0 || end <= start {
			continue
		}
		if n := min(end-start, maxLineBytes); n <= budget {
			budget -= n
			b.Add(m.ConstMethod+start, n)
			with = append(with, m)
		}
	}
	return func() {
		for i, m := range with {
			if rest, ok := b.Bytes(first + i); ok {
				m.lines = bytes.Clone(rest[:debuginfo.LineTableSize(rest, r.Bias)])
			}
		}
	}
}

// bytecode finds methods that call nothing, and where methods enter monitors. Those with more
// bytecode than most count as calling something.
func (r Reader) bytecode(b *vmstructs.Batch, reads []Read) func() {
	const (
		most         = 4096   // bytes
		mostEnters   = 64     // monitor enters of a method
		synchronized = 0x0020 // ACC_SYNCHRONIZED
		accessBytes  = 2
	)
	first := len(b.Ranges)
	for _, m := range reads {
		size := r.Schema.codeSize.Read(m.header)
		if !m.OK || size > most {
			size = 0
		}
		b.Add(m.ConstMethod+r.Schema.constMethodSize, size)
		b.Add(r.Schema.access.Of(m.Addr), accessBytes)
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

// KlassNames reads the names of classes. Those that cannot be read are absent.
func (r Reader) KlassNames(klasses []uint64) (map[uint64]string, error) {
	var pointers vmstructs.Batch
	for _, klass := range klasses {
		pointers.Add(r.Schema.klassName.At(klass), vmstructs.WordSize)
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
	symbols, err := r.Symbols(addrs)
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
