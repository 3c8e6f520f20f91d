package codecache

import (
	"cmp"
	"fmt"
	"slices"
	"sort"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// StubSchema leads to the names of code that the VM generated for itself.
type StubSchema struct {
	Interpreter              uint64          // static: a StubQueue*
	buffer, begin, end       vmstructs.Field // fields of StubQueue
	description, codeletSize vmstructs.Field // fields of InterpreterCodelet
	codelet                  uint64          // bytes of an InterpreterCodelet, which its code follows
	CallStubReturn           uint64          // static
}

// NewStubSchema looks up the fields that lead to generated code. What is missing is in r.Err.
func NewStubSchema(r *vmstructs.Resolver) StubSchema {
	return StubSchema{
		Interpreter:    r.Static("AbstractInterpreter._code"),
		buffer:         r.Field("StubQueue._stub_buffer"),
		begin:          r.Field("StubQueue._queue_begin"),
		end:            r.Field("StubQueue._queue_end"),
		description:    r.Field("InterpreterCodelet._description"),
		codeletSize:    r.Field("InterpreterCodelet._size"),
		codelet:        r.Size("InterpreterCodelet"),
		CallStubReturn: r.Static("StubRoutines._call_stub_return_address"),
	}
}

// A Piece is a named part of generated code.
type Piece struct {
	Begin, End uint64
	Name       string
}

// Pieces are in order and do not overlap.
type Pieces []Piece

// Find returns the piece that pc is in.
func (p Pieces) Find(pc uint64) (found Piece, ok bool) {
	i := sort.Search(len(p), func(i int) bool { return p[i].End > pc })
	if i == len(p) || pc < p[i].Begin {
		return Piece{}, false
	}
	return p[i], true
}

// newPieces sorts list and drops what is empty, nameless or overlaps.
func newPieces(list []Piece) Pieces {
	slices.SortStableFunc(list, func(a, b Piece) int { return cmp.Compare(a.Begin, b.Begin) })
	kept := list[:0]
	for _, p := range list {
		if p.Name != "" && p.Begin < p.End && (len(kept) == 0 || kept[len(kept)-1].End <= p.Begin) {
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

// InterpreterCode returns the bounds of the interpreter's code; ErrStarting if it is not generated
// yet.
func InterpreterCode(t vmstructs.Reader, s *StubSchema) (low, high uint64, err error) {
	queue, err := t.Word(s.Interpreter)
	if err != nil {
		return 0, 0, err
	}
	if queue == 0 {
		return 0, 0, vmruntime.ErrStarting
	}
	object, err := t.Bytes(queue, vmstructs.LastEnd(s.buffer, s.begin, s.end))
	if err != nil {
		return 0, 0, err
	}
	begin, end := s.begin.Read(object), s.end.Read(object)
	if begin > end || end-begin > maxInterpreter {
		return 0, 0, fmt.Errorf("interpreter code from %#x to %#x: %w", begin, end, vmruntime.ErrMalformed)
	}
	buffer := s.buffer.Read(object)
	return buffer + begin, buffer + end, nil
}

// ReadCodelets lists the parts of the interpreter: one for each bytecode, each kind of method
// entry, and so on. They lie one behind the other in a StubQueue
// (src/hotspot/share/code/stubs.hpp), each behind a header.
func ReadCodelets(t vmstructs.Reader, s *StubSchema) (Pieces, error) {
	low, high, err := InterpreterCode(t, s)
	if err != nil {
		return nil, err
	}
	code, err := t.Bytes(low, high-low)
	if err != nil {
		return nil, err
	}
	var list []Piece
	var descriptions []uint64
	for at := low; len(code) >= int(s.codelet) && len(list) < maxCodelets; {
		size := s.codeletSize.Read(code)
		if size < s.codelet || size > uint64(len(code)) {
			return nil, fmt.Errorf("interpreter codelet of %d bytes: %w", size, vmruntime.ErrMalformed)
		}
		list = append(list, Piece{Begin: at + s.codelet, End: at + size})
		descriptions = append(descriptions, s.description.Read(code))
		code, at = code[size:], at+size
	}
	names, err := t.Texts(descriptions)
	if err != nil {
		return nil, err
	}
	for i := range list {
		list[i].Name = names[descriptions[i]]
	}
	return newPieces(list), nil
}

// maxRoutines bounds the list of stub routines. JDK 25 has 160.
const maxRoutines = 4096

// Routines are the stub routines of a VM, as they were when its list of them was last read.
type Routines struct {
	Pieces
	head uint64 // head of the list: new routines are put before it
}

// Read lists the stub routines (array copies, intrinsics, …) from the VM's own list of them, whose
// head is the variable at list, a hidden symbol. A StubCodeDesc
// (src/hotspot/share/runtime/stubCodeGenerator.hpp) begins with five words: next, group, name,
// begin, end. It is in no table; what does not look like one is left out.
//
// Entry points that the VM exports (StubRoutines._…, up to about JDK 24) are no substitute: they
// are fewer, so that the next one below an address is often that of another routine.
func (r *Routines) Read(t vmstructs.Reader, list uint64) error {
	const words = 5
	head, err := t.Word(list)
	if err != nil || head == r.head {
		return err
	}
	var found []Piece
	var pointers []uint64
	near := vmstructs.Nearby{Reader: t}
	for desc := head; desc != 0 && len(found) < maxRoutines; {
		object, err := near.Bytes(desc, 8*words)
		if err != nil {
			return err
		}
		found = append(found, Piece{Begin: vmstructs.Number(object[24:32]), End: vmstructs.Number(object[32:40])})
		pointers = append(pointers, vmstructs.Number(object[16:24]))
		desc = vmstructs.Number(object[0:8])
	}
	names, err := t.Texts(pointers)
	if err != nil {
		return err
	}
	for i := range found {
		found[i].Name = names[pointers[i]]
	}
	r.head, r.Pieces = head, newPieces(found)
	return nil
}
