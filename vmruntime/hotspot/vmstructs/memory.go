package vmstructs

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Reader is the memory of one process, with typed reads. All are little-endian and 64-bit.
type Reader struct{ Mem vmruntime.Memory }

// Word reads 64 bits.
func (t Reader) Word(addr uint64) (uint64, error) {
	var b [8]byte
	err := t.Mem.Read(addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}

// Bytes reads n bytes. The caller bounds n.
func (t Reader) Bytes(addr, n uint64) ([]byte, error) {
	b := make([]byte, n)
	if n == 0 {
		return b, nil
	}
	if err := t.Mem.Read(addr, b); err != nil {
		return nil, err
	}
	return b, nil
}

// Nearby reads small objects that often lie close together, such as those of a linked list, a page
// at a time. What it has read does not change any more: it is for one walk.
type Nearby struct {
	Reader
	page uint64 // page that was read last
	data []byte // its bytes
}

// Bytes reads n bytes, which must not be changed.
func (t *Nearby) Bytes(addr, n uint64) ([]byte, error) {
	page, at := addr&^(PageSize-1), addr%PageSize
	if n > PageSize-at {
		return t.Reader.Bytes(addr, n)
	}
	if t.data == nil || page != t.page {
		data, err := t.Reader.Bytes(page, PageSize)
		if err != nil { // a recording has only what was once read
			return t.Reader.Bytes(addr, n)
		}
		t.page, t.data = page, data
	}
	return t.data[at : at+n : at+n], nil
}

// Text reads a NUL-terminated string of at most MaxNameBytes.
func (t Reader) Text(addr uint64) (string, error) {
	s, err := t.Texts([]uint64{addr})
	if err != nil {
		return "", err
	}
	name, ok := s[addr]
	if !ok {
		return "", fmt.Errorf("string at %#x: %w", addr, vmruntime.ErrMalformed)
	}
	return name, nil
}

// WordSize is the size of a pointer, in bytes.
const WordSize = 8

// PageSize is the smallest page size of any architecture: a range within a page is mapped as a
// whole or not at all.
const PageSize = 4096

// Texts reads NUL-terminated strings in a few batches. Those that cannot be read, or are longer
// than MaxNameBytes, are absent.
func (t Reader) Texts(addrs []uint64) (map[uint64]string, error) {
	const (
		first  = 64 // bytes; nearly all names are shorter
		rounds = 8  // enough for MaxNameBytes, cut at a page's end
	)
	found := make(map[uint64]string, len(addrs))
	partial := make(map[uint64][]byte)
	pending := Distinct(addrs)
	for round := 0; round < rounds && len(pending) > 0; round++ {
		var b Batch
		for _, addr := range pending {
			next := addr + uint64(len(partial[addr]))
			b.Add(next, min(first<<round, MaxNameBytes, PageSize-next%PageSize)) // not into a page that may be missing
		}
		if err := b.Read(t.Mem); err != nil {
			return nil, err
		}
		more := pending[:0]
		for i, addr := range pending {
			piece, ok := b.Bytes(i)
			if !ok {
				continue
			}
			if end := bytes.IndexByte(piece, 0); end >= 0 {
				found[addr] = CleanText(append(partial[addr], piece[:end]...))
			} else if so := append(partial[addr], piece...); len(so) <= MaxNameBytes {
				partial[addr] = so
				more = append(more, addr)
			}
		}
		pending = more
	}
	return found, nil
}

// Distinct returns the values without repetition and without 0, in their order.
func Distinct(values []uint64) []uint64 {
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

// A Batch collects ranges and reads them together: one system call for a thousand of them. The zero
// value is empty, and what it has read stays as long as somebody refers to it.
type Batch struct {
	Ranges  []vmruntime.Range
	slab    []byte // what is left of the current allocation
	next    uint64 // its size
	passing bool
	slabs   []*slab // allocations of a passing batch
}

// A slab is memory for what passing batches read.
type slab [16 << 10]byte

var (
	slabs   = sync.Pool{New: func() any { return new(slab) }}
	batches = sync.Pool{New: func() any { return &Batch{passing: true} }}
)

// PassingBatch returns an empty batch for what is looked at once. There are some hundred a second:
// their memory is used again after Free, so that the collector need not deal with it.
func PassingBatch() *Batch { return batches.Get().(*Batch) }

// Free ends a passing batch. Nobody may refer to what it has read any more.
func (b *Batch) Free() {
	for _, s := range b.slabs {
		slabs.Put(s)
	}
	clear(b.slabs)
	clear(b.Ranges)
	b.Ranges, b.slabs, b.slab, b.next = b.Ranges[:0], b.slabs[:0], nil, 0
	const most = 16 << 10 // ranges that are kept
	if cap(b.Ranges) <= most {
		batches.Put(b)
	}
}

// Add puts n bytes at addr on the list. The caller bounds their number and sum.
func (b *Batch) Add(addr, n uint64) {
	if n > uint64(len(b.slab)) {
		b.grow(n)
	}
	b.Ranges = append(b.Ranges, vmruntime.Range{Addr: addr, Buf: b.slab[:n:n]})
	b.slab = b.slab[n:]
}

// grow makes room for a range of n bytes.
func (b *Batch) grow(n uint64) {
	const first, most = 128, uint64(len(slab{})) // bytes of an allocation: most batches are of one method
	b.next = min(max(2*b.next, first), most)
	if size := max(n, b.next); !b.passing || size > most || size < most/8 {
		b.slab = make([]byte, size)
		return
	}
	s := slabs.Get().(*slab)
	b.slabs, b.slab = append(b.slabs, s), s[:]
}

// batchBytes bounds what is asked of a Memory at once: it may refuse more than 4 MiB.
const batchBytes = 2 << 20

// Read fills the ranges. Those at address 0 fail without a try, because every range that fails
// costs a system call. An error means that the process cannot be read at all.
func (b *Batch) Read(mem vmruntime.Memory) error {
	defer b.clearFailed()
	if b.plain() {
		return mem.ReadBatch(b.Ranges)
	}
	var tried []vmruntime.Range
	var back []int // where they are in ranges
	size := 0
	flush := func() error {
		if len(tried) == 0 {
			return nil
		}
		err := mem.ReadBatch(tried)
		for i := range tried {
			b.Ranges[back[i]].OK = tried[i].OK
		}
		tried, back, size = tried[:0], back[:0], 0
		return err
	}
	for i, r := range b.Ranges {
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

// clearFailed clears ranges that were not read: what they hold is of another batch.
func (b *Batch) clearFailed() {
	for _, r := range b.Ranges {
		if !r.OK {
			clear(r.Buf)
		}
	}
}

// plain reports whether the ranges can be read as they are.
func (b *Batch) plain() bool {
	size := 0
	for _, r := range b.Ranges {
		if size += len(r.Buf); r.Addr == 0 || len(r.Buf) == 0 || size > batchBytes {
			return false
		}
	}
	return len(b.Ranges) > 0
}

// A Need is a step of reading: it adds what it needs to a batch, and returns what takes it from there
// once it was read. Steps that do not need each other share a batch.
type Need func(b *Batch) (take func())

// Gather reads what several steps need in one batch. They copy what they keep.
func (t Reader) Gather(needs ...Need) error {
	b := PassingBatch()
	defer b.Free()
	return t.GatherInto(b, needs...)
}

// GatherInto is Gather for steps that refer to what they read in b, which has no ranges yet.
func (t Reader) GatherInto(b *Batch, needs ...Need) error {
	takes := make([]func(), len(needs))
	for i, need := range needs {
		takes[i] = need(b)
	}
	if err := b.Read(t.Mem); err != nil {
		return err
	}
	for _, take := range takes {
		take()
	}
	return nil
}

// Bytes returns what range i holds; ok is false if it could not be read.
func (b *Batch) Bytes(i int) (data []byte, ok bool) {
	return b.Ranges[i].Buf, b.Ranges[i].OK
}

// Word returns range i as an unsigned number of its size; ok is false if it could not be read.
func (b *Batch) Word(i int) (n uint64, ok bool) {
	return Number(b.Ranges[i].Buf), b.Ranges[i].OK
}

// Number decodes a little-endian number of 1 to 8 bytes.
func Number(b []byte) uint64 {
	var word [8]byte
	copy(word[:], b)
	return binary.LittleEndian.Uint64(word[:])
}

// StaticText reads the string that the static variable at addr points to; empty if there is none.
func (t Reader) StaticText(addr uint64) string {
	pointer, err := t.Word(addr)
	if err != nil || pointer == 0 {
		return ""
	}
	s, _ := t.Text(pointer)
	return s
}
