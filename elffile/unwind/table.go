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

// A Range is code by its offsets from Table.Base, To not included.
type Range struct{ From, To uint32 }

// Bounds of what Framed returns.
const (
	minFramed = 64 << 10 // bytes of a range
	maxFramed = 8        // ranges
)

// maxPrologue is how many bytes there may be from the push of rbp to where rbp is set: compilers
// put other instructions of a prologue in between, but no call.
const maxPrologue = 64

// Framed returns code in which all calls are made by functions that have set a frame pointer: a
// walk from a return address in there needs no rule. They are the longest such ranges, ascending.
//
// Before a function has pushed rbp, and once it has popped it, CFA is rsp + 8. It does not call
// then, as rsp is not aligned as the ABI wants.
func (t *Table) Framed() (framed []Range) {
	begin, before := uint32(0), false // before: all code from begin on is framed
	end := func(offset uint32) {
		if before && offset-begin >= minFramed {
			framed = append(framed, Range{begin, offset})
		}
		before = false
	}
	for i, row := range t.Rows {
		switch {
		case !t.callsFramed(i):
			end(row.Offset)
		case !before:
			begin, before = row.Offset, true
		}
	}
	if n := len(t.Rows); n > 0 {
		end(t.Rows[n-1].Offset)
	}
	for len(framed) > maxFramed {
		shortest := 0
		for i, r := range framed {
			if r.To-r.From < framed[shortest].To-framed[shortest].From {
				shortest = i
			}
		}
		framed = slices.Delete(framed, shortest, shortest+1)
	}
	return framed
}

// The rules of a function with a frame pointer.
var (
	unframed = rule(ByRSP, SameRBP, 1)
	popped   = rule(ByRSP, 2, 1) // CFA - 16 still has rbp, which is what rbp is
	pushed   = rule(ByRSP, 2, 2)
	settled  = rule(ByRBP, 2, 2)
)

// callsFramed reports whether a row is of code that calls with a frame pointer, or does not call.
func (t *Table) callsFramed(i int) bool {
	switch t.Rows[i].Rule {
	case settled, unframed, popped, 0:
		return true
	case pushed:
		return i+1 < len(t.Rows) && t.Rows[i+1].Rule == settled && t.Rows[i+1].Offset-t.Rows[i].Offset <= maxPrologue
	}
	return false
}
