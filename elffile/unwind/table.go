package unwind

import (
	"cmp"
	"slices"
	"sort"
)

// A Row says by which rule frames are left from an address on, up to the next row's.
type Row struct {
	Offset uint32 // from Table.Base
	Rule   Rule
}

// A Table has the rules of a file.
type Table struct {
	Base uint64 // address of the file, from which rows count
	Rows []Row  // ascending, no two rules in a row the same
	// Functions is how many frame descriptions the file has, and Dropped how many of these are not
	// in the table: they are malformed, or of no code of the file.
	Functions, Dropped int
	// Unsupported is how many rows have no rule that can be stated.
	Unsupported int
}

// Find returns the rule for an address of the file.
func (t *Table) Find(addr uint64) Rule {
	if addr < t.Base || addr-t.Base > maxOffset {
		return 0
	}
	after := sort.Search(len(t.Rows), func(i int) bool { return uint64(t.Rows[i].Offset) > addr-t.Base })
	if after == 0 {
		return 0
	}
	return t.Rows[after-1].Rule
}

// Bytes is the memory of the rows.
func (t *Table) Bytes() int { return 8 * len(t.Rows) }

// maxOffset bounds the rows' offsets. BPF programs fill the unused part of a table with the next
// number.
const maxOffset = 0xfffffffe

// A span is the code of one frame description, and its rows.
type span struct {
	start, end  uint64 // from the table's base
	first, rows uint32 // in builder.rows
}

// minGap is how many bytes between two functions are no padding.
const minGap = 16

// merge sorts the rows by address. Where frame descriptions overlap, as in files that were made by
// hand, the one that begins last counts. Code that none covers gets rows without a rule.
func merge(spans []span, rows []Row) []Row {
	slices.SortStableFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	merged := make([]Row, 0, len(rows)+len(spans))
	add := func(offset uint64, r Rule) {
		if n := len(merged); n > 0 && uint64(merged[n-1].Offset) == offset {
			merged = merged[:n-1]
		}
		if n := len(merged); n == 0 && r == 0 || n > 0 && merged[n-1].Rule == r {
			return
		}
		merged = append(merged, Row{uint32(offset), r})
	}
	for i, s := range spans {
		next := uint64(maxOffset + 1)
		if i+1 < len(spans) {
			next = spans[i+1].start
		}
		for _, r := range rows[s.first : s.first+s.rows] {
			if uint64(r.Offset) < min(s.end, next) {
				add(uint64(r.Offset), r.Rule)
			}
		}
		if s.end < next && (next-s.end >= minGap || i+1 == len(spans)) {
			add(s.end, 0)
		}
	}
	return slices.Clip(merged)
}
