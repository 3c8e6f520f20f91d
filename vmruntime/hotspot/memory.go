package hotspot

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A target is the memory of one guest, with typed reads. All guests are little-endian and 64-bit.
type target struct{ mem vmruntime.Memory }

func (t target) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := t.mem.Read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// bytes reads n bytes, which the caller has bounded.
func (t target) bytes(addr, n uint64) ([]byte, error) {
	b := make([]byte, n)
	if n == 0 {
		return b, nil
	}
	if err := t.mem.Read(addr, b); err != nil {
		return nil, err
	}
	return b, nil
}

// string reads a NUL-terminated string of at most maxNameBytes.
func (t target) string(addr uint64) (string, error) {
	s, err := t.strings([]uint64{addr})
	if err != nil {
		return "", err
	}
	name, ok := s[addr]
	if !ok {
		return "", fmt.Errorf("string at %#x: %w", addr, vmruntime.ErrMalformed)
	}
	return name, nil
}

// wordSize is that of every guest, in bytes.
const wordSize = 8

// pageSize is the smallest page of any architecture: a range inside of one is there as a whole or not at all.
const pageSize = 4096

// strings reads NUL-terminated strings in a few batches. Those that cannot be read, or are longer than maxNameBytes,
// are absent.
func (t target) strings(addrs []uint64) (map[uint64]string, error) {
	const (
		first  = 64 // bytes; nearly all names are shorter
		rounds = 8  // enough for maxNameBytes, cut at a page's end
	)
	found := make(map[uint64]string, len(addrs))
	partial := make(map[uint64][]byte)
	pending := distinct(addrs)
	for round := 0; round < rounds && len(pending) > 0; round++ {
		var b batch
		for _, addr := range pending {
			next := addr + uint64(len(partial[addr]))
			b.add(next, min(first<<round, maxNameBytes, pageSize-next%pageSize)) // not into a page that may be missing
		}
		if err := b.read(t.mem); err != nil {
			return nil, err
		}
		more := pending[:0]
		for i, addr := range pending {
			piece, ok := b.bytes(i)
			if !ok {
				continue
			}
			if end := bytes.IndexByte(piece, 0); end >= 0 {
				found[addr] = cleanName(append(partial[addr], piece[:end]...))
			} else if so := append(partial[addr], piece...); len(so) <= maxNameBytes {
				partial[addr] = so
				more = append(more, addr)
			}
		}
		pending = more
	}
	return found, nil
}

// distinct returns the values without repetition and without 0, in their order.
func distinct(values []uint64) []uint64 {
	seen := make(map[uint64]bool, len(values))
	var out []uint64
	for _, v := range values {
		if v != 0 && !seen[v] {
			seen[v] = true
			out = append(out, v)
		}
	}
	return out
}

// A batch collects ranges to be read together: one system call per thousand of them instead of one each.
type batch struct {
	ranges []vmruntime.Range
	slab   []byte // what is left of the current allocation
	next   uint64 // its size
}

// add puts n bytes at addr on the list. The caller bounds their number and sum.
func (b *batch) add(addr, n uint64) {
	const first, most = 128, 32 << 10 // bytes of an allocation: most batches are of one method
	if n > uint64(len(b.slab)) {
		b.next = min(max(2*b.next, first), most)
		b.slab = make([]byte, max(n, b.next))
	}
	b.ranges = append(b.ranges, vmruntime.Range{Addr: addr, Buf: b.slab[:n:n]})
	b.slab = b.slab[n:]
}

// batchBytes bounds what is asked of a Memory at once: it may refuse more than 4 MiB.
const batchBytes = 2 << 20

// read fills the ranges. Those at 0 fail without being tried: every range that fails costs a system call. An error
// means that the guest cannot be read at all.
func (b *batch) read(mem vmruntime.Memory) error {
	var tried []vmruntime.Range
	var back []int // where they are in ranges
	size := 0
	flush := func() error {
		if len(tried) == 0 {
			return nil
		}
		err := mem.ReadBatch(tried)
		for i := range tried {
			b.ranges[back[i]].OK = tried[i].OK
		}
		tried, back, size = tried[:0], back[:0], 0
		return err
	}
	for i, r := range b.ranges {
		if r.Addr == 0 || len(r.Buf) == 0 {
			continue
		}
		if size += len(r.Buf); size > batchBytes {
			if err := flush(); err != nil {
				return err
			}
			size = len(r.Buf)
		}
		tried, back = append(tried, r), append(back, i)
	}
	return flush()
}

// bytes returns what range i holds; ok is false if it could not be read.
func (b *batch) bytes(i int) (data []byte, ok bool) {
	return b.ranges[i].Buf, b.ranges[i].OK
}

// word returns range i as an unsigned number of its size; ok is false if it could not be read.
func (b *batch) word(i int) (n uint64, ok bool) {
	return number(b.ranges[i].Buf), b.ranges[i].OK
}

// number decodes a little-endian number of 1 to 8 bytes.
func number(b []byte) uint64 {
	var word [8]byte
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:])
}

// staticString reads the string that the static variable at addr points to; empty if there is none.
func (t target) staticString(addr uint64) string {
	pointer, err := t.word(addr)
	if err != nil || pointer == 0 {
		return ""
	}
	s, _ := t.string(pointer)
	return s
}
