package javaheap

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// HeaderSize is how many bytes of an object say what it is.
func (l *ObjectLayout) HeaderSize() uint64 {
	size := l.Klass + vmstructs.WordSize
	if l.KlassIsNarrow {
		size = l.Klass + 4
	}
	return uint64(max(size, l.ArrayLength+4))
}

// ClassOf is the class that a header says. It may be any number.
func (l *ObjectLayout) ClassOf(header []byte) uint64 {
	word := vmstructs.Number(header[l.Klass : l.Klass+4])
	if !l.KlassIsNarrow {
		word = vmstructs.Number(header[l.Klass : l.Klass+vmstructs.WordSize])
	}
	switch {
	case l.KlassInMark:
		word >>= l.KlassBit
	case !l.KlassIsNarrow:
		return word
	}
	if word == 0 {
		return 0
	}
	return l.KlassBase + word<<l.KlassShift
}

// userEnd is where addresses of processes end: 47 bits on amd64, 48 on arm64, as long as nobody
// asks for more.
const userEnd = 1 << 48

// AppendCandidate appends an object that may be at start, unless what its header says cannot be the
// address of a class, or what is before that cannot be a mark word.
func (l *ObjectLayout) AppendCandidate(list []Candidate, start uint64, header []byte) []Candidate {
	klass := l.ClassOf(header)
	if klass < vmstructs.PageSize || klass >= userEnd || klass%vmstructs.WordSize != 0 ||
		!l.isMark(vmstructs.Number(header[:vmstructs.WordSize])) {
		return list
	}
	return append(list, Candidate{start, klass, uint32(vmstructs.Number(header[l.ArrayLength : l.ArrayLength+4]))})
}

// isMark reports whether a word may be a mark word (src/hotspot/share/oops/markWord.hpp): of an
// object that is not locked, with its hash and its age; or an address with some bits below.
func (l *ObjectLayout) isMark(mark uint64) bool {
	const kindBits, unlocked = 7, 1
	switch {
	case l.KlassInMark:
		return true
	case mark&kindBits == unlocked:
		return mark>>l.MarkBits == 0
	}
	return mark < userEnd
}

// A Candidate is a place that may be an object.
type Candidate struct {
	Start, Klass uint64
	Length       uint32 // elements, if it is an array
}
