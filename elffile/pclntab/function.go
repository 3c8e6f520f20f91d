package pclntab

import (
	"encoding/binary"
	"io"
)

// A function is one of the table's records.
type function struct {
	entry, end   uint32 // offsets from the text on
	name, unit   uint32
	begins       int32  // line
	stack, files uint32 // tables of values
	lines        uint32
	inlined      uint32 // table of indexes into the tree; 0 if there is none
	tree         uint32 // tree of inlined calls; noTree if there is none
}

const noTree = ^uint32(0)

// Places of tables in a function's record: PCDATA_InlTreeIndex, FUNCDATA_InlTree.
const (
	inlinedIndex = 2
	treeIndex    = 3
)

// entry returns where the i-th function begins, and where its record is.
func (t *Table) entry(r io.ReaderAt, i uint32) (begin, record uint32, err error) {
	var b [8]byte
	p := b[:]
	if i == t.count {
		p = p[:4] // the end of the last one
	}
	err = t.read(r, p, t.functions+8*uint64(i))
	return binary.LittleEndian.Uint32(b[:]), binary.LittleEndian.Uint32(b[4:]), err
}

// function returns the i-th function.
func (t *Table) function(r io.ReaderAt, i uint32) (f function, err error) {
	begin, record, err := t.entry(r, i)
	if err != nil {
		return f, err
	}
	end, _, err := t.entry(r, i+1)
	if err != nil {
		return f, err
	}
	size := 40
	if t.begun {
		size = 44
	}
	const most = 32 // tables of either kind; there are 5 and 8
	b := make([]byte, min(uint64(size+8*most), t.length-min(t.length, t.functions+uint64(record))))
	if len(b) < size {
		return f, malformed("function at %#x", record)
	}
	if err := t.read(r, b, t.functions+uint64(record)); err != nil {
		return f, err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	f = function{entry: word(0), end: end, name: word(1), stack: word(4), files: word(5), lines: word(6), unit: word(8),
		tree: noTree}
	if f.entry != begin || f.end <= f.entry {
		return f, malformed("function from %#x to %#x is at %#x", f.entry, f.end, begin)
	}
	if t.begun {
		f.begins = int32(word(9))
	}
	values, data := int(min(word(7), most)), int(b[size-1])
	if len(b) < size+4*(values+min(data, treeIndex+1)) {
		return f, malformed("%d tables of a function", values+data)
	}
	if values > inlinedIndex {
		f.inlined = word(size/4 + inlinedIndex)
	}
	if data > treeIndex {
		f.tree = word(size/4 + values + treeIndex)
	}
	return f, nil
}

// value returns what a table of a function has for pc; -1 if it has nothing. Such a table is a list
// of differences, of a value and of the pc up to which it holds, in varints of seven bits a byte.
func (t *Table) value(r io.ReaderAt, f *function, table uint32, pc uint32) (int32, error) {
	if table == 0 {
		return -1, nil
	}
	in := varints{table: t, r: r, at: t.values + uint64(table)}
	value, up := int32(-1), f.entry
	for first := true; ; first = false {
		difference, err := in.next()
		if err != nil {
			return -1, err
		}
		if difference == 0 && !first {
			return -1, nil
		}
		value += int32(difference>>1) ^ -int32(difference&1)
		distance, err := in.next()
		if err != nil {
			return -1, err
		}
		if up += distance * t.quantum; pc < up {
			return value, nil
		}
	}
}

// varints reads numbers from the table.
type varints struct {
	table *Table
	r     io.ReaderAt
	at    uint64 // position of the next byte to read
	left  []byte
	block [256]byte
}

func (v *varints) next() (n uint32, err error) {
	for shift := 0; shift < 35; shift += 7 {
		if len(v.left) == 0 {
			if v.at >= v.table.length {
				return 0, malformed("a table of values has no end")
			}
			v.left = v.block[:min(uint64(len(v.block)), v.table.length-v.at)]
			if err := v.table.read(v.r, v.left, v.at); err != nil {
				return 0, err
			}
			v.at += uint64(len(v.left))
		}
		b := v.left[0]
		v.left = v.left[1:]
		n |= uint32(b&0x7f) << shift
		if b < 0x80 {
			return n, nil
		}
	}
	return 0, malformed("a number of more than 32 bits")
}
