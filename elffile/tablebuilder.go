package elffile

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
)

// Preference orders symbols at the same address: the highest is kept. Build breaks ties by what
// people write: fewer leading underscores, then the shorter name, then alphabetically.
type Preference uint8

// A TableBuilder collects symbols for a Table. It keeps addresses from Base to Base + 4 GiB: what
// one ELF file loads, or one kernel, never spans more.
type TableBuilder struct {
	Base    uint64
	entries []entry
	names   []byte
	limit   int // bytes of names, if it is less than maxNameBytes
}

// Grow makes room for that many more symbols and bytes of names. It avoids the garbage of growing
// gradually, which would be several times the table.
func (b *TableBuilder) Grow(symbols, nameBytes int) {
	b.entries = slices.Grow(b.entries, min(symbols, maxSymbols))
	b.names = slices.Grow(b.names, min(nameBytes, maxNameBytes))
}

// expect is Grow for the symbols of a string table of nameBytes, and bounds the names accordingly:
// symbols may share a name or the end of one, but if that more than doubles the names, the table
// was crafted to grow.
func (b *TableBuilder) expect(symbols, nameBytes int) {
	b.Grow(symbols, nameBytes)
	b.limit = len(b.names) + 2*nameBytes + maxName
}

// entry is 16 bytes, as an array of them is sorted.
type entry struct {
	start, size uint32
	name        uint32 // noName for an end mark
	preference  Preference
}

const noName = math.MaxUint32

// Add adds a symbol of size bytes, with its name cut at maxName bytes. A symbol of size 0 extends
// to the next symbol or end mark; inside a symbol with a size it counts as a label and is left out.
// ErrTooLarge when the table is full.
func (b *TableBuilder) Add(start, size uint64, name []byte, preference Preference) error {
	if len(name) == 0 || bytes.IndexByte(name, 0) >= 0 || !b.inRange(start) {
		return nil
	}
	name = name[:min(len(name), maxName)]
	if len(b.entries) >= maxSymbols || len(b.names)+len(name)+1 > b.nameLimit() {
		return fmt.Errorf("%d symbols with %d bytes of names: %w", len(b.entries), len(b.names), ErrTooLarge)
	}
	b.entries = append(b.entries, entry{
		start:      uint32(start - b.Base),
		size:       uint32(min(size, math.MaxUint32)),
		name:       uint32(len(b.names)),
		preference: preference,
	})
	b.names = append(append(b.names, name...), 0)
	return nil
}

// End marks an address where the preceding symbol ends: the end of a segment, or something that is
// not a function.
func (b *TableBuilder) End(addr uint64) error {
	if !b.inRange(addr) {
		return nil
	}
	if len(b.entries) >= maxSymbols {
		return fmt.Errorf("%d symbols: %w", len(b.entries), ErrTooLarge)
	}
	b.entries = append(b.entries, entry{start: uint32(addr - b.Base), name: noName})
	return nil
}

func (b *TableBuilder) nameLimit() int {
	if b.limit > 0 {
		return min(b.limit, maxNameBytes)
	}
	return maxNameBytes
}

func (b *TableBuilder) inRange(addr uint64) bool {
	return addr >= b.Base && addr-b.Base <= math.MaxUint32
}

// Build makes the table, and empties the builder.
func (b *TableBuilder) Build() *Table {
	b.sort()
	b.entries = slices.CompactFunc(b.entries, func(x, y entry) bool { return x.start == y.start })
	kept := b.resolveSizes()
	t := &Table{
		base:   b.Base,
		start:  make([]uint32, len(kept)),
		size:   make([]uint32, len(kept)),
		blocks: make([]uint32, 0, (len(kept)+nameBlock-1)/nameBlock),
	}
	for i, e := range kept {
		t.start[i], t.size[i] = e.start, e.size
	}
	var room int
	for i, e := range kept {
		name := cString(b.names, e.name)
		room += 1 + len(name) - sharedPrefix(b.nameBefore(kept, i), name) + 1
	}
	t.names = make([]byte, 0, room)
	for i, e := range kept {
		if i%nameBlock == 0 {
			t.blocks = append(t.blocks, uint32(len(t.names)))
		}
		t.names = appendName(t.names, b.nameBefore(kept, i), cString(b.names, e.name))
	}
	*b = TableBuilder{Base: b.Base}
	return t
}

// nameBefore is the name before that of entry i in its block, nil if it is the first.
func (b *TableBuilder) nameBefore(kept []entry, i int) []byte {
	if i%nameBlock == 0 {
		return nil
	}
	return cString(b.names, kept[i-1].name)
}

// resolveSizes extends symbols without a size to the next entry, and drops end marks and inner
// labels. It filters in place.
func (b *TableBuilder) resolveSizes() []entry {
	kept := b.entries[:0]
	var covered uint64 // end of what sized symbols cover so far
	for i, e := range b.entries {
		switch {
		case e.name == noName:
			continue
		case e.size > 0:
			covered = max(covered, uint64(e.start)+uint64(e.size))
		case uint64(e.start) < covered:
			continue
		case i+1 < len(b.entries):
			e.size = b.entries[i+1].start - e.start
		default:
			e.size = math.MaxUint32 - e.start
		}
		kept = append(kept, e)
	}
	return kept
}

// sort sorts by compare. Addresses and indexes are sorted in one word each, which takes a third of
// the time; then entries are moved, and those at the same address, which are few, are compared.
func (b *TableBuilder) sort() {
	keys := make([]uint64, len(b.entries))
	for i, e := range b.entries {
		keys[i] = uint64(e.start)<<32 | uint64(i)
	}
	slices.Sort(keys)
	const index = math.MaxUint32
	for i, first := range b.entries {
		at := i
		for from := int(keys[at] & index); from != i; from = int(keys[at] & index) {
			b.entries[at] = b.entries[from]
			keys[at] = uint64(at) // what is here stays
			at = from
		}
		b.entries[at] = first
		keys[at] = uint64(at)
	}
	for same := b.entries; len(same) > 0; {
		n := 1
		for n < len(same) && same[n].start == same[0].start {
			n++
		}
		slices.SortFunc(same[:n], b.compare)
		same = same[n:]
	}
}

// compare sorts by address, the one to keep first; end marks come after symbols at the same
// address.
func (b *TableBuilder) compare(x, y entry) int {
	if c := cmp.Compare(x.start, y.start); c != 0 {
		return c
	}
	if x.name == noName || y.name == noName {
		return cmp.Compare(x.name, y.name)
	}
	if c := cmp.Compare(y.preference, x.preference); c != 0 {
		return c
	}
	xn, yn := cString(b.names, x.name), cString(b.names, y.name)
	return cmp.Or(cmp.Compare(underscores(xn), underscores(yn)), cmp.Compare(len(xn), len(yn)), bytes.Compare(xn, yn))
}

func underscores(name []byte) int { return len(name) - len(bytes.TrimLeft(name, "_")) }
