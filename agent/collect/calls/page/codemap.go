package page

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"unique"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Bounds on what one process may register, and on all of them together.
const (
	maxMethods    = 1 << 16
	maxGuestBytes = 64 << 20
	maxAllBytes   = 256 << 20
	// overhead is the approximate size of a method or code version without its names and sites, in
	// bytes.
	overhead = 256
	// keepForgotten is how long removed code can still be looked up, in ns: calls arrive later than
	// they are made.
	keepForgotten = 10e9
)

const forever = ^uint64(0)

// A codeMap is a process's registered methods and their code. Registrations arrive late, so each
// has the time from which it is valid, and calls are looked up by their time. Several goroutines
// may use it.
type codeMap struct {
	mapping unique.Handle[symbol.Mapping]
	all     *atomic.Int64 // bytes of all processes together

	mu        sync.RWMutex
	bytes     int64
	methods   map[uint32]symbol.Symbol
	versions  versions
	forgotten []*version // in the order in which the FORGETs arrived
}

func newCodeMap(runtime string, all *atomic.Int64) *codeMap {
	return &codeMap{
		mapping: unique.Make(symbol.Mapping{File: "[jit:" + symbol.CleanName(runtime) + "]"}),
		all:     all, methods: map[uint32]symbol.Symbol{},
	}
}

// A verdict says whether a registration was accepted; if not, why, in a word.
type verdict string

const (
	taken          verdict = ""
	tooManyMethods verdict = "methods"
	tooManyBytes   verdict = "bytes"
	unknownCode    verdict = "unknown_code"
)

// register takes a METHOD that arrived at the time now. Messages with the same id, begin and time
// are parts of one method.
func (c *codeMap) register(m *method, now uint64) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge(now)
	if v := c.part(m); v != nil {
		cost := siteSize * int64(len(m.sites))
		if !c.reserve(cost) {
			return tooManyBytes
		}
		v.bytes += cost
		v.add(m.sites)
		return taken
	}
	if _, known := c.methods[m.id]; !known {
		if why := c.name(m); why != taken {
			return why
		}
	}
	cost := overhead + siteSize*int64(len(m.sites))
	if !c.reserve(cost) {
		return tooManyBytes
	}
	// A process's clock that is ahead would hide the code from all calls until then.
	v := &version{
		id: m.id, begin: m.begin, size: m.size, time: m.time, from: min(m.time, now), until: forever, bytes: cost,
	}
	v.add(m.sites)
	for _, old := range c.versions.insert(v) {
		c.free(old)
	}
	return taken
}

// part returns the version that m continues, or nil.
func (c *codeMap) part(m *method) *version {
	for v := range c.versions.at(m.begin) {
		if v.id == m.id && v.begin == m.begin && v.time == m.time && v.size == m.size {
			return v
		}
	}
	return nil
}

// name gives m's id its permanent name.
func (c *codeMap) name(m *method) verdict {
	if len(c.methods) >= maxMethods {
		return tooManyMethods
	}
	name, file := symbol.CleanName(string(m.name)), symbol.CleanName(string(m.file))
	if name == "" {
		name = symbol.Unknown
	}
	if !c.reserve(overhead + int64(len(name)+len(file))) {
		return tooManyBytes
	}
	c.methods[m.id] = symbol.Intern(symbol.Frame{
		Function: name, SystemName: name, File: file, Kind: symbol.KindJIT, Mapping: c.mapping,
	})
	return taken
}

// forget takes a FORGET that arrived at the time now.
func (c *codeMap) forget(f *forget, now uint64) verdict {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.purge(now)
	for v := range c.versions.at(f.begin) {
		if v.id == f.id && v.begin == f.begin && v.until == forever {
			v.until = min(f.time, now)
			c.forgotten = append(c.forgotten, v)
			return taken
		}
	}
	return unknownCode
}

// caller returns the method whose code made, at that time, a call that returns to pc, and where in
// the method that is.
func (c *codeMap) caller(pc, moment uint64) (s symbol.Symbol, offset, line uint32, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	v := c.versions.find(pc-1, moment) // the address of the call: the return address may be behind the method's end
	if v == nil {
		return s, 0, 0, false
	}
	offset = uint32(pc - v.begin)
	return c.methods[v.id], offset, v.line(offset), true
}

// callee returns the method of that id.
func (c *codeMap) callee(id uint64) (s symbol.Symbol, ok bool) {
	if id >= 1<<32 {
		return s, false
	}
	c.mu.RLock()
	defer c.mu.RUnlock()
	s, ok = c.methods[uint32(id)]
	return s, ok
}

// names returns the names of all methods, in no order.
func (c *codeMap) names() []string {
	c.mu.RLock()
	defer c.mu.RUnlock()
	list := make([]string, 0, len(c.methods))
	for _, m := range c.methods {
		list = append(list, m.Value().Function)
	}
	return list
}

// len is the number of methods.
func (c *codeMap) len() int {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return len(c.methods)
}

// reserve charges the process, unless it or all processes together have registered too much.
func (c *codeMap) reserve(bytes int64) bool {
	if c.bytes+bytes > maxGuestBytes {
		return false
	}
	if c.all.Add(bytes) > maxAllBytes {
		c.all.Add(-bytes)
		return false
	}
	c.bytes += bytes
	return true
}

func (c *codeMap) free(v *version) {
	c.bytes -= v.bytes
	c.all.Add(-v.bytes)
	v.bytes = 0
}

// purge removes code that was forgotten long ago.
func (c *codeMap) purge(now uint64) {
	for len(c.forgotten) > 0 && c.forgotten[0].until+keepForgotten < now {
		v := c.forgotten[0]
		c.forgotten = c.forgotten[1:]
		c.versions.remove(v)
		c.free(v)
	}
}

// close releases the process's share of the memory of all processes. Its entries can still be
// looked up.
func (c *codeMap) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all.Add(-c.bytes)
	c.bytes = 0
}

// A version is code of a method at one place, for a period of time.
type version struct {
	id          uint32
	size        uint32
	begin       uint64
	time        uint64 // as registered
	from, until uint64 // ns, CLOCK_MONOTONIC: [from, until)
	bytes       int64  // charged for it
	sites       []site // ascending
}

// add adds sites, in any order.
func (v *version) add(sites []site) {
	v.sites = append(v.sites, sites...)
	slices.SortStableFunc(v.sites, func(a, b site) int { return cmp.Compare(a.offset, b.offset) })
}

// line is the line of the call that returns to offset, 0 if that is unknown.
func (v *version) line(offset uint32) uint32 {
	i, ok := slices.BinarySearchFunc(v.sites, offset, func(s site,
		offset uint32) int {
		return cmp.Compare(s.offset, offset)
	})
	if !ok {
		return 0
	}
	return v.sites[i].line
}

// versions are code versions by place, in a hash table by size class. A version of a class, whose
// size is at most 1<<class bytes and more than half of that, lies in one or two blocks of that
// size. So looking up an address takes one probe for each class in use, and adding one is cheap in
// whatever order a hostile process does it. The zero value is ready to use.
type versions struct {
	blocks  map[block][]*version
	classes uint64 // bit n: class n was used
}

// A block is the memory of 1<<class bytes with that index.
type block struct {
	class int
	index uint64
}

// maxHistory is how many versions are kept in one block. At most three are live, unless they
// overlap.
const maxHistory = 16

// at visits the versions around pc, past ones too.
func (t *versions) at(pc uint64) iter.Seq[*version] {
	return func(yield func(*version) bool) {
		for classes := t.classes; classes != 0; classes &= classes - 1 {
			class := bits.TrailingZeros64(classes)
			for _, v := range t.blocks[block{class, pc >> class}] {
				if pc-v.begin < uint64(v.size) && !yield(v) {
					return
				}
			}
		}
	}
}

// find returns the version whose code was at pc at that time, or nil. Later code at the same place
// replaces earlier code.
func (t *versions) find(pc, moment uint64) (best *version) {
	for v := range t.at(pc) {
		if v.from <= moment && moment < v.until && (best == nil || v.from >= best.from) {
			best = v
		}
	}
	return best
}

// blocksOf returns the one or two blocks that v is in.
func blocksOf(v *version) []block {
	class := bits.Len32(v.size - 1)
	first, last := block{class, v.begin >> class}, block{class, (v.begin + uint64(v.size) - 1) >> class}
	if first == last {
		return []block{first}
	}
	return []block{first, last}
}

// insert adds v, and returns the versions that it displaced.
func (t *versions) insert(v *version) (removed []*version) {
	if t.blocks == nil {
		t.blocks = map[block][]*version{}
	}
	for _, b := range blocksOf(v) {
		if list := t.blocks[b]; len(list) >= maxHistory {
			old := oldest(list)
			t.remove(old)
			removed = append(removed, old)
		}
		t.blocks[b] = append(t.blocks[b], v)
		t.classes |= 1 << b.class
	}
	return removed
}

// oldest returns the version to displace: removed ones before live ones.
func oldest(list []*version) *version {
	return slices.MinFunc(list, func(a, b *version) int {
		return cmp.Or(cmp.Compare(a.until, b.until), cmp.Compare(a.from, b.from))
	})
}

// remove takes v out; a v that is not in the table is ignored.
func (t *versions) remove(v *version) {
	for _, b := range blocksOf(v) {
		list := slices.DeleteFunc(t.blocks[b], func(o *version) bool { return o == v })
		if len(list) == 0 {
			delete(t.blocks, b)
			continue
		}
		t.blocks[b] = list
	}
}
