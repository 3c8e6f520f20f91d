package pclntab

import (
	"encoding/binary"
	"io"
)

// Frames returns the functions at an address of the file, innermost first: all but the last are
// inlined. r reads the file that the table is of. There are none where no function of Go is. The
// caller must not change them.
func (t *Table) Frames(r io.ReaderAt, address uint64) ([]Frame, error) {
	if frames, ok := t.Known(address); ok {
		return frames, nil
	}
	l := newLookup(r)
	defer l.end()
	frames, err := t.framesAt(l, address)
	if err == nil {
		t.known.add(address, frames)
	}
	return frames, err
}

// Known returns what Frames returned for an address, if that is still remembered.
func (t *Table) Known(address uint64) (frames []Frame, ok bool) { return t.known.get(address) }

// framesAt reads the frames at an address.
func (t *Table) framesAt(r io.ReaderAt, address uint64) ([]Frame, error) {
	f, ok, err := t.find(r, address)
	if err != nil || !ok {
		return nil, err
	}
	pc := uint32(address - t.text)
	var frames []Frame
	for len(frames) <= maxInlined {
		at := Frame{StartLine: int(f.begins)}
		name, index := f.name, int32(-1)
		if t.inlined != 0 && f.tree != noTree {
			if index, err = t.value(r, &f, f.inlined, pc); err != nil {
				return nil, err
			}
		}
		var call inlinedCall
		if index >= 0 {
			if call, err = t.call(r, &f, index); err != nil {
				return nil, err
			}
			name, at.StartLine = call.name, int(call.begins)
		}
		if at.Function, err = t.textAt(r, t.names+uint64(name), maxName); err != nil {
			return nil, err
		}
		if at.File, at.Line, err = t.place(r, &f, pc); err != nil {
			return nil, err
		}
		if at.StartLine < 0 || at.StartLine > maxLine {
			return nil, malformed("function begins on line %d", at.StartLine)
		}
		frames = append(frames, at)
		if index < 0 {
			return frames, nil
		}
		pc = f.entry + call.caller
	}
	return nil, malformed("more than %d inlined calls at %#x", maxInlined, address)
}

// StackBytes returns how far the stack pointer is below the return address of the function around
// an address of the file, before that instruction: 0 where the return address is on top of the
// stack. ok is false if that is not known.
func (t *Table) StackBytes(r io.ReaderAt, address uint64) (n int, ok bool, err error) {
	l := newLookup(r)
	defer l.end()
	f, ok, err := t.find(l, address)
	if err != nil || !ok {
		return 0, false, err
	}
	v, err := t.value(l, &f, f.stack, uint32(address-t.text))
	return int(v), err == nil && v >= 0, err
}

// place returns the file and the line of a pc.
func (t *Table) place(r io.ReaderAt, f *function, pc uint32) (file string, line int, err error) {
	number, err := t.value(r, f, f.lines, pc)
	if err != nil {
		return "", 0, err
	}
	index, err := t.value(r, f, f.files, pc)
	if err != nil || index < 0 || number < 0 {
		return "", 0, err
	}
	var b [4]byte
	if err := t.read(r, b[:], t.units+4*(uint64(f.unit)+uint64(index))); err != nil {
		return "", 0, err
	}
	offset := binary.LittleEndian.Uint32(b[:])
	if offset == ^uint32(0) {
		return "", int(number), nil
	}
	file, err = t.textAt(r, t.files+uint64(offset), maxPath)
	return file, int(number), err
}

// An inlinedCall is one entry of a function's tree.
type inlinedCall struct {
	name   uint32
	begins int32  // the line on which the called function begins
	caller uint32 // a pc of the calling function, from the entry on
}

// call returns the index-th inlined call of a function.
func (t *Table) call(r io.ReaderAt, f *function, index int32) (c inlinedCall, err error) {
	b := make([]byte, t.treeSize)
	at := t.inlined + int64(f.tree) + int64(index)*t.treeSize
	if err := readFull(r, b, at); err != nil {
		return c, err
	}
	word := func(i int) uint32 { return binary.LittleEndian.Uint32(b[4*i:]) }
	if t.begun {
		c = inlinedCall{name: word(1), caller: word(2), begins: int32(word(3))}
	} else {
		c = inlinedCall{name: word(3), caller: word(4)}
	}
	if c.caller >= f.end-f.entry {
		return c, malformed("inlined call %d is called from %#x of %#x", index, c.caller, f.end-f.entry)
	}
	return c, nil
}
