package cpython

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// A code is what a code object says of itself. It is immutable.
type code struct {
	id       identity
	function string // json.decoder.JSONDecoder.decode
	file     string // as co_filename has it
	first    int32  // line on which it begins
	lines    []byte // line table, nil if it could not be read
}

// bytes is about how much memory c holds.
func (c *code) bytes() int { return 160 + len(c.function) + len(c.file) + len(c.lines) }

// An identity distinguishes a code object from others that have its memory later. The kernel side
// computes the same (cpython.bpf.h).
type identity struct {
	file  uint64 // address of the string with its file
	shape uint64 // the aligned word that has the line on which it begins
	name  uint64 // addresses of its name and its line table in one word
}

// identityOf is that of a code object of which the first bytes were read.
func (o *Offsets) identityOf(b []byte) identity {
	return identity{
		file:  word(b, o.CodeFile),
		shape: word(b, o.CodeFirstLine&^7),
		name:  (word(b, o.CodeName) + word(b, o.CodeLines)<<16) * vmruntime.SeenNameHash,
	}
}

// seenAs reports whether i is what the kernel side met.
func (i identity) seenAs(m vmruntime.SeenMethod) bool {
	return i.file == m.Body && i.shape == m.Shape && (i.name == m.Name || m.Name == 0)
}

// A codeRead is one code object on the way.
type codeRead struct {
	addr     uint64
	header   []byte
	contents [3]content // file, name, line table
	heads    [3]int     // their ranges in a batch
	data     [3][]byte
	tooMuch  bool // the others of its batch left no room for it
}

// maxRestBytes bounds what is read together of strings and tables that are longer than headBytes. It
// suffices for any one code object.
const maxRestBytes = 1 << 20

// The parts of a codeRead.
const (
	partFile = iota
	partName
	partLines
	parts
)

// readCodes reads the code objects at these addresses. Those that cannot be read, changed meanwhile,
// or are too long to be read with the others, are absent. The caller bounds how many there are. An
// error says that the process cannot be read at all.
func (p *Process) readCodes(addrs []uint64) (map[uint64]*code, error) {
	o := &p.layout.Offsets
	reads := make([]codeRead, 0, len(addrs))
	headers, err := p.readHeaders(addrs)
	if err != nil {
		return nil, err
	}
	var heads batch
	for i, addr := range addrs {
		h := headers[i]
		if h == nil || word(h, o.ObjectType) != p.layout.CodeType {
			continue
		}
		r := codeRead{addr: addr, header: h}
		for part, at := range r.pointers(o) {
			r.heads[part] = heads.addHead(at, o.leastHead())
		}
		reads = append(reads, r)
	}
	if err := heads.read(p.memory); err != nil {
		return nil, err
	}
	var rests batch
	budget := maxRestBytes
	for i := range reads {
		reads[i].locate(o, &heads, &rests, &budget)
	}
	if err := rests.read(p.memory); err != nil {
		return nil, err
	}
	// A code object keeps its strings. So if it is still the same, they were too.
	addrs = addrs[:0:0]
	for i := range reads {
		addrs = append(addrs, reads[i].addr)
	}
	after, err := p.readHeaders(addrs)
	if err != nil {
		return nil, err
	}
	found := make(map[uint64]*code, len(reads))
	for i := range reads {
		r := &reads[i]
		if after[i] == nil || o.identityOf(after[i]) != o.identityOf(r.header) {
			continue
		}
		if c, ok := r.code(o, &rests); ok {
			found[r.addr] = c
		}
	}
	return found, nil
}

// readHeaders reads the beginnings of code objects: nil for those that cannot be read.
func (p *Process) readHeaders(addrs []uint64) ([][]byte, error) {
	var b batch
	for _, addr := range addrs {
		b.add(addr, CodeWindow)
	}
	if err := b.read(p.memory); err != nil {
		return nil, err
	}
	headers := make([][]byte, len(addrs))
	for i := range addrs {
		headers[i] = b.bytes(i)
	}
	return headers, nil
}

// pointers are where the parts of a code object are.
func (r *codeRead) pointers(o *Offsets) [parts]uint64 {
	name := o.CodeName
	if o.CodeQualifiedName != 0 {
		name = o.CodeQualifiedName
	}
	return [parts]uint64{word(r.header, o.CodeFile), word(r.header, name), word(r.header, o.CodeLines)}
}

// locate takes the parts that were read with their heads, and has the others read as a whole.
func (r *codeRead) locate(o *Offsets, heads, rests *batch, budget *int) {
	for part, addr := range r.pointers(o) {
		head := heads.bytes(r.heads[part])
		r.heads[part] = -1
		find := o.stringContent
		if part == partLines {
			find = o.bytesContent
		}
		c, ok := find(addr, head)
		if !ok {
			continue
		}
		r.contents[part] = c
		if r.data[part] = c.within(addr, head); r.data[part] != nil || c.length == 0 {
			continue
		}
		if r.tooMuch = r.tooMuch || c.length > *budget; !r.tooMuch {
			*budget -= c.length
			r.heads[part] = rests.add(c.at, c.length)
		}
	}
}

// code is what was read. ok is false if the names are missing.
func (r *codeRead) code(o *Offsets, rests *batch) (c *code, ok bool) {
	for part := range r.data {
		if i := r.heads[part]; i >= 0 {
			r.data[part] = rests.bytes(i)
		}
	}
	file := r.contents[partFile].text(r.data[partFile])
	name := r.contents[partName].text(r.data[partName])
	if name == "" || r.tooMuch {
		return nil, false
	}
	return &code{
		id: o.identityOf(r.header), function: functionName(file, name), file: file,
		first: int32(word(r.header, o.CodeFirstLine&^7) >> (8 * (o.CodeFirstLine & 4))), lines: r.data[partLines],
	}, true
}
