package hotspot

import (
	"encoding/binary"
	"hash/maphash"
)

// A nameTable keeps each string once, in one piece of memory: 2 bytes and about 6 of index more than its text, where a
// Go map would take 60 and give the garbage collector pointers to follow. A guest with 7,000 compilations has about as
// many distinct classes, names and signatures. The zero value is empty.
type nameTable struct {
	text  []byte   // strings, each behind its length in 16 bits
	index []uint32 // open hash table of offsets into text; 0 is free, as text[0] is a dummy
	count int
	seed  maphash.Seed
}

// A nameRef stands for a string in a nameTable.
type nameRef uint32

// add returns the reference of s, which must not be longer than maxNameBytes.
func (t *nameTable) add(s string) nameRef {
	if t.index == nil {
		t.seed, t.index, t.text = maphash.MakeSeed(), make([]uint32, 64), []byte{0}
	}
	if 4*t.count >= 3*len(t.index) {
		t.grow()
	}
	slot := t.find(s)
	if t.index[slot] == 0 {
		t.index[slot] = uint32(len(t.text))
		t.text = binary.LittleEndian.AppendUint16(t.text, uint16(len(s)))
		t.text = append(t.text, s...)
		t.count++
	}
	return nameRef(t.index[slot])
}

// get returns a copy of a string.
func (t *nameTable) get(r nameRef) string { return string(t.at(uint32(r))) }

func (t *nameTable) at(offset uint32) []byte {
	b := t.text[offset:]
	return b[2:][:binary.LittleEndian.Uint16(b)]
}

// find returns the slot of s, or the free one where it belongs.
func (t *nameTable) find(s string) uint64 {
	mask := uint64(len(t.index) - 1)
	slot := maphash.String(t.seed, s) & mask
	for t.index[slot] != 0 && string(t.at(t.index[slot])) != s { // the conversion does not allocate
		slot = (slot + 1) & mask
	}
	return slot
}

func (t *nameTable) grow() {
	old := t.index
	t.index = make([]uint32, 2*len(old))
	for _, offset := range old {
		if offset != 0 {
			t.index[t.find(string(t.at(offset)))] = offset
		}
	}
}
