package elffile

import (
	"math"
	"sort"
	"strings"
)

// A Table maps addresses to the names of the functions there. It is immutable.
//
// It is compact, because agents keep several tables for long: three 32-bit words per symbol, and the names in one string. The libjvm.so of
// JDK 17 takes 66 bytes for each of 43,700 symbols (54 of them the mangled name), 2.9 MB in total, with four pointers for the garbage
// collector.
type Table struct {
	base  uint64   // what starts counts from
	start []uint32 // ascending, distinct
	size  []uint32 // bytes of code
	name  []uint32 // where the name begins in names
	names string   // each ends with a NUL
}

// Len is the number of symbols.
func (t *Table) Len() int { return len(t.start) }

// Bytes is the memory that the table holds.
func (t *Table) Bytes() int64 { return int64(12*len(t.start) + len(t.names)) }

// maxNesting is how many symbols inside a function Find skips to reach one that still covers the address. Labels and outlined parts nest
// two or three deep.
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
	name, _, _ := strings.Cut(t.names[t.name[i]:], "\x00")
	return strings.Clone(name)
}

// Start returns the address of symbol i.
func (t *Table) Start(i int) uint64 { return t.base + uint64(t.start[i]) }
