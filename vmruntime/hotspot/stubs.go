package hotspot

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// stubSchema leads to the names of code that the VM generated for itself.
type stubSchema struct {
	interpreter              uint64 // static: a StubQueue*
	buffer, begin, end       field  // of StubQueue
	description, codeletSize field  // of InterpreterCodelet
	codelet                  uint64 // bytes of an InterpreterCodelet, which its code follows
	callStubReturn           uint64 // static
}

func newStubSchema(r *resolver) stubSchema {
	return stubSchema{
		interpreter:    r.static("AbstractInterpreter._code"),
		buffer:         r.field("StubQueue._stub_buffer"),
		begin:          r.field("StubQueue._queue_begin"),
		end:            r.field("StubQueue._queue_end"),
		description:    r.field("InterpreterCodelet._description"),
		codeletSize:    r.field("InterpreterCodelet._size"),
		codelet:        r.size("InterpreterCodelet"),
		callStubReturn: r.static("StubRoutines._call_stub_return_address"),
	}
}

// A piece is a named part of generated code.
type piece struct {
	begin, end uint64
	name       string
}

// pieces are in order and do not overlap.
type pieces []piece

// find returns the piece that pc is in.
func (p pieces) find(pc uint64) (found piece, ok bool) {
	i := sort.Search(len(p), func(i int) bool { return p[i].end > pc })
	if i == len(p) || pc < p[i].begin {
		return piece{}, false
	}
	return p[i], true
}

// newPieces sorts list and drops what is empty, nameless or overlaps.
func newPieces(list []piece) pieces {
	slices.SortStableFunc(list, func(a, b piece) int { return cmp.Compare(a.begin, b.begin) })
	kept := list[:0]
	for _, p := range list {
		if p.name != "" && p.begin < p.end && (len(kept) == 0 || kept[len(kept)-1].end <= p.begin) {
			kept = append(kept, p)
		}
	}
	return kept
}

// Bounds on the interpreter. JDK 25 has 290 codelets in 190 kB.
const (
	maxInterpreter = 4 << 20
	maxCodelets    = 4096
)

// interpreterCode returns the bounds of the interpreter's code; ErrStarting if it is not generated yet.
func interpreterCode(t target, s *stubSchema) (low, high uint64, err error) {
	queue, err := t.word(s.interpreter)
	if err != nil {
		return 0, 0, err
	}
	if queue == 0 {
		return 0, 0, vmruntime.ErrStarting
	}
	object, err := t.bytes(queue, lastEnd(s.buffer, s.begin, s.end))
	if err != nil {
		return 0, 0, err
	}
	begin, end := s.begin.of(object), s.end.of(object)
	if begin > end || end-begin > maxInterpreter {
		return 0, 0, fmt.Errorf("interpreter code from %#x to %#x: %w", begin, end, vmruntime.ErrMalformed)
	}
	buffer := s.buffer.of(object)
	return buffer + begin, buffer + end, nil
}

// readCodelets lists the parts of the interpreter: one for each bytecode, each kind of method entry, and so on. They
// lie one behind the other in a StubQueue (src/hotspot/share/code/stubs.hpp), each behind a header.
func readCodelets(t target, s *stubSchema) (pieces, error) {
	low, high, err := interpreterCode(t, s)
	if err != nil {
		return nil, err
	}
	code, err := t.bytes(low, high-low)
	if err != nil {
		return nil, err
	}
	var list []piece
	var descriptions []uint64
	for at := low; len(code) >= int(s.codelet) && len(list) < maxCodelets; {
		size := s.codeletSize.of(code)
		if size < s.codelet || size > uint64(len(code)) {
			return nil, fmt.Errorf("interpreter codelet of %d bytes: %w", size, vmruntime.ErrMalformed)
		}
		list = append(list, piece{begin: at + s.codelet, end: at + size})
		descriptions = append(descriptions, s.description.of(code))
		code, at = code[size:], at+size
	}
	names, err := t.strings(descriptions)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].name = names[descriptions[i]]
	}
	return newPieces(list), nil
}

// maxRoutines bounds the list of stub routines. JDK 25 has 160.
const maxRoutines = 4096

// readRoutines lists the stub routines (array copies, intrinsics, …) from the VM's own list of them, whose head is the
// variable at list, a hidden symbol. A StubCodeDesc (src/hotspot/share/runtime/stubCodeGenerator.hpp) begins with five
// words: next, group, name, begin, end. It is in no table; what does not look like one is left out.
//
// Entry points that the VM exports (StubRoutines._…, up to about JDK 24) are no substitute: they are fewer, so that the
// next one below an address is often that of another routine.
func readRoutines(t target, list uint64) (pieces, error) {
	const words = 5
	desc, err := t.word(list)
	if err != nil {
		return nil, err
	}
	var found []piece
	var pointers []uint64
	for range maxRoutines {
		if desc == 0 {
			break
		}
		object, err := t.bytes(desc, 8*words)
		if err != nil {
			return nil, err
		}
		found = append(found, piece{begin: number(object[24:32]), end: number(object[32:40])})
		pointers = append(pointers, number(object[16:24]))
		desc = number(object[0:8])
	}
	names, err := t.strings(pointers)
	if err != nil {
		return nil, err
	}
	for i := range found {
		found[i].name = names[pointers[i]]
	}
	return newPieces(found), nil
}
