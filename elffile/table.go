package elffile

import (
	"bytes"
	"iter"
	"math"
	"sort"
)

// A Table maps addresses to the names of the functions there. It is immutable.
//
// It is compact, because agents keep several tables for long: two 32-bit words per symbol, and the
// names in one array, without what each has in common with the one before. The libjvm.so of JDK 17
// takes 44 bytes for each of 43,700 symbols, whose mangled names have 49 bytes on average: 1.9 MB
// in total, with four pointers for the garbage collector.
type Table struct {
	base   uint64   // what starts counts from
	start  []uint32 // ascending, distinct
	size   []uint32 // bytes of code
	blocks []uint32 // where in names that of each nameBlock-th symbol begins
	names  []byte   // see appendName
}

// nameBlock is how many symbols a block has. A name is read from the begin of its block.
const nameBlock = 16

// maxShared is how many bytes of a name may be those of the name before.
const maxShared = 255

// Len is the number of symbols.
func (t *Table) Len() int { return len(t.start) }

// Bytes is the memory that the table holds.
func (t *Table) Bytes() int64 { return int64(8*len(t.start) + 4*len(t.blocks) + len(t.names)) }

// maxNesting is how many symbols inside a function Find skips to reach one that still covers the
// address. Labels and outlined parts nest two or three deep.
const maxNesting = 16

// Find returns the index of the innermost symbol that covers addr.
func (t *Table) Find(addr uint64) (i int, ok bool) {
	if addr < t.base || addr-t.base > math.MaxUint32 {
		return 0, false
	}
	offset := uint32(addr - t.base)
	after := sort.Search(len(t.start), func(i int) bool { return t.start[i] > offset })
	for i := after - 1; i >= 0 && i >= after-maxNesting; i-- {
		if offset-t.start[i] < t.size[i] {
			return i, true
		}
	}
	return 0, false
}

// Name returns the name of symbol i. It is a copy, so that keeping it does not keep the table.
func (t *Table) Name(i int) string {
	var name []byte
	rest := t.names[t.blocks[i/nameBlock]:]
	for range i%nameBlock + 1 {
		name, rest = nextName(name, rest)
	}
	return string(name)
}

// Names returns all symbols in the order of their addresses, with their names.
func (t *Table) Names() iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		var name []byte
		rest := t.names
		for i := range t.start {
			if name, rest = nextName(name, rest); !yield(i, string(name)) {
				return
			}
		}
	}
}

// nextName returns the first of the names in a table, and the others. before, which it overwrites,
// is the one before.
func nextName(before, names []byte) (name, rest []byte) {
	own, rest, _ := bytes.Cut(names[1:], []byte{0})
	return append(before[:names[0]], own...), rest
}

// appendName appends a name to those of a table: how many bytes it shares with the one before,
// which is empty at the begin of a block, in one byte, then the others and a NUL.
func appendName(names, before, name []byte) []byte {
	shared := sharedPrefix(before, name)
	return append(append(append(names, byte(shared)), name[shared:]...), 0)
}

// sharedPrefix is how many bytes both begin with, maxShared at most.
func sharedPrefix(a, b []byte) int {
	n := min(len(a), len(b), maxShared)
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// Start returns the address of symbol i.
func (t *Table) Start(i int) uint64 { return t.base + uint64(t.start[i]) }
