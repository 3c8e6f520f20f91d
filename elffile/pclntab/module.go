package pclntab

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// Words of the module data (runtime.moduledata) that have been at the same place since Go 1.18. The
// place of the one that is needed besides, the address that trees of inlined calls count from,
// differs: it is the first one at which all trees are right.
const (
	moduleHeader  = 0 // the address of the table
	moduleNames   = 1 // the address of its names
	moduleText    = 22
	moduleBehind  = 24 // from here on
	moduleWords   = 80
	checkedTrees  = 16
	searchedTrees = 1 << 14 // functions that are looked at to find so many trees
)

// findModule reads the addresses that the table itself does not have. The header has the address of
// the code up to Go 1.25.
func (t *Table) findModule(f *elffile.File, table, text uint64) error {
	module, err := readModule(f, table, table+t.names)
	switch {
	case err == nil:
		t.text = module[moduleText]
	case errors.Is(err, elffile.ErrNotFound) && text != 0:
		t.text = text // functions and lines, but no inlined calls
	default:
		return err
	}
	r := loaded{f, table, t.at}
	end, _, err := t.entry(r, t.count)
	if err != nil {
		return err
	}
	begin, _, err := t.entry(r, 0)
	if err != nil {
		return err
	}
	if begin >= end {
		return malformed("code from %#x to %#x", begin, end)
	}
	t.size = end
	if module == nil {
		return nil
	}
	functions, err := t.withTrees(r)
	if err != nil || len(functions) == 0 {
		return err
	}
	for _, address := range module[moduleBehind:] {
		offset, ok := f.AddressToOffset(address)
		if !ok {
			continue
		}
		t.inlined = int64(offset)
		whole := loaded{f, address, int64(offset)}
		right, zeros := 0, 0
		for _, fn := range functions {
			call, ok := t.rightTree(whole, r, &fn)
			if !ok {
				break
			}
			if right++; call == (inlinedCall{}) {
				zeros++
			}
		}
		if right == len(functions) && zeros < right { // in an area of zeros each tree looks right
			return nil
		}
	}
	t.inlined = 0
	return nil
}

// loaded reads a part of a file by the offsets that a Table uses.
type loaded struct {
	f       *elffile.File
	address uint64
	offset  int64 // offset of the address
}

func (l loaded) ReadAt(p []byte, at int64) (int, error) {
	if err := l.f.ReadLoaded(p, l.address+uint64(at-l.offset)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// withTrees returns some functions that have inlined calls.
func (t *Table) withTrees(r io.ReaderAt) (some []function, err error) {
	for i := uint32(0); i < min(t.count, searchedTrees) && len(some) < checkedTrees; i++ {
		f, err := t.function(r, i)
		if errors.Is(err, elffile.ErrMalformed) {
			continue // such as one of no bytes
		}
		if err != nil {
			return nil, err
		}
		if f.tree != noTree && f.inlined != 0 {
			some = append(some, f)
		}
	}
	return some, nil
}

// rightTree reads the first inlined call of a function by trees, and the rest of the table by
// names. ok reports whether it is one.
func (t *Table) rightTree(trees, names io.ReaderAt, f *function) (c inlinedCall, ok bool) {
	c, err := t.call(trees, f, 0)
	if err != nil || c.begins < 0 || c.begins > maxLine || uint64(c.name) >= t.length-t.names {
		return c, false
	}
	before := []byte{0}
	if c.name > 0 {
		err = t.read(names, before, t.names+uint64(c.name)-1)
	}
	name, nameErr := t.textAt(names, t.names+uint64(c.name), maxName)
	return c, err == nil && nameErr == nil && before[0] == 0 && name != ""
}

// readModule returns the module data: the words that begin with the addresses of the table and of
// its names.
func readModule(f *elffile.File, table, names uint64) ([]uint64, error) {
	want := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, table), names)
	left := uint64(maxData)
	for _, name := range []string{".go.module", ".noptrdata", ".data", ".data.rel.ro"} {
		section, err := f.Section(name)
		if errors.Is(err, elffile.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, err
		}
		section.Size = min(section.Size, left)
		left -= section.Size
		at, err := find(f, section, want)
		if err != nil {
			return nil, err
		}
		if at != 0 {
			return wordsAt(f, at)
		}
	}
	return relocatedModule(f, table, names)
}

// find returns the address of the first place in a section at which there are these two words; 0 if
// there is none.
func find(f *elffile.File, section elffile.Extent, want []byte) (uint64, error) {
	buf := make([]byte, 64<<10)
	for done := uint64(0); section.Size-done >= uint64(len(want)); {
		chunk := buf[:min(uint64(len(buf)), section.Size-done)]
		if err := f.ReadLoaded(chunk, section.Address+done); err != nil {
			return 0, err
		}
		for i := 0; ; {
			next := bytes.Index(chunk[i:], want)
			if next < 0 {
				break
			}
			if i += next; i%8 == 0 {
				return section.Address + done + uint64(i), nil
			}
			i++
		}
		if len(chunk) < len(buf) {
			break
		}
		done += uint64(len(chunk) - len(want))
	}
	return 0, nil
}

// wordsAt returns the words of the module data at an address.
func wordsAt(f *elffile.File, address uint64) ([]uint64, error) {
	b := make([]byte, 8*moduleWords)
	for f.ReadLoaded(b, address) != nil {
		if b = b[:len(b)-8]; len(b) <= 8*moduleBehind {
			return nil, malformed("module data at %#x is cut short", address)
		}
	}
	words := make([]uint64, len(b)/8)
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return words, nil
}

// relocatedModule is readModule for a position-independent program in which the dynamic linker sets
// the addresses.
func relocatedModule(f *elffile.File, table, names uint64) ([]uint64, error) {
	pointers, err := f.Pointers()
	if err != nil {
		return nil, err
	}
	for i, p := range pointers {
		if p.To != table || i+1 == len(pointers) || pointers[i+1] != (elffile.Pointer{At: p.At + 8, To: names}) {
			continue
		}
		words := make([]uint64, moduleWords)
		for _, q := range pointers[i:] {
			if n := (q.At - p.At) / 8; n < moduleWords && (q.At-p.At)%8 == 0 {
				words[n] = q.To
			} else {
				break
			}
		}
		return words, nil
	}
	return nil, elffile.ErrNotFound
}
