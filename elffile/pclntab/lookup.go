package pclntab

import (
	"encoding/binary"
	"io"
	"sync"
)

// A lookup reads a file for one address. What lies next to something that was read needs no read of
// its own: the parts of a table that are about one function are neighbours.
type lookup struct {
	file   io.ReaderAt
	left   int // bytes that may still be asked for
	blocks [4]block
	next   int // the block that is replaced next
}

// A block is a piece of the file.
type block struct {
	at   int64
	size int // bytes of data that were read
	data [2048]byte
}

// blockStart is what blocks begin at multiples of.
const blockStart = 512

var lookups = sync.Pool{New: func() any { return new(lookup) }}

// newLookup begins a lookup in a file. end must be called.
func newLookup(file io.ReaderAt) *lookup {
	l := lookups.Get().(*lookup)
	l.file, l.left = file, maxLookup
	return l
}

func (l *lookup) end() {
	l.file = nil
	for i := range l.blocks {
		l.blocks[i].size = 0
	}
	lookups.Put(l)
}

// ReadAt implements io.ReaderAt.
func (l *lookup) ReadAt(p []byte, at int64) (int, error) {
	if l.left -= len(p); l.left < 0 {
		return 0, malformed("more than %d bytes for one address", maxLookup)
	}
	for i := range l.blocks {
		if b := &l.blocks[i]; b.has(p, at) {
			return copy(p, b.data[at-b.at:]), nil
		}
	}
	b := &l.blocks[l.next]
	start := at &^ (blockStart - 1)
	if at < 0 || at-start+int64(len(p)) > int64(len(b.data)) {
		return l.file.ReadAt(p, at)
	}
	l.next = (l.next + 1) % len(l.blocks)
	n, err := l.file.ReadAt(b.data[:], start)
	if b.at, b.size = start, n; !b.has(p, at) {
		return 0, err
	}
	return copy(p, b.data[at-start:]), nil
}

// has reports whether the bytes of p at that offset are in b.
func (b *block) has(p []byte, at int64) bool {
	return at >= b.at && at+int64(len(p)) <= b.at+int64(b.size)
}

// maxKnown bounds the addresses of a program whose frames are kept, each of two generations of
// them. An address takes some 300 bytes.
const maxKnown = 1024

// known is what was found in a table: programs are run again and again, and their processes ask for
// the same addresses.
type known struct {
	mu     sync.Mutex
	frames [2]map[uint64][]Frame // by address of the file: the younger generation, and the older one
	begins map[uint32]uint32     // where functions begin, of those that every search begins with
}

// get returns the frames at an address.
func (k *known) get(address uint64) (frames []Frame, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if frames, ok = k.frames[0][address]; ok {
		return frames, true
	}
	if frames, ok = k.frames[1][address]; ok {
		k.keep(address, frames)
	}
	return frames, ok
}

// add keeps the frames at an address.
func (k *known) add(address uint64, frames []Frame) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.keep(address, frames)
}

// keep adds to the younger generation; the lock is held.
func (k *known) keep(address uint64, frames []Frame) {
	if len(k.frames[0]) >= maxKnown || k.frames[0] == nil {
		k.frames[0], k.frames[1] = map[uint64][]Frame{}, k.frames[0]
	}
	k.frames[0][address] = frames
}

// searchedBlock is how many functions are searched in one block of the file. Which function begins
// where is remembered for those that a search asks for before.
const searchedBlock = 128

// begin returns where the i-th function begins, which is remembered.
func (t *Table) begin(r io.ReaderAt, i uint32) (uint32, error) {
	t.known.mu.Lock()
	at, ok := t.known.begins[i]
	t.known.mu.Unlock()
	if ok {
		return at, nil
	}
	at, _, err := t.entry(r, i)
	if err != nil {
		return 0, err
	}
	t.known.mu.Lock()
	defer t.known.mu.Unlock()
	if t.known.begins == nil {
		t.known.begins = map[uint32]uint32{}
	}
	t.known.begins[i] = at
	return at, nil
}

// find returns the function around an address of the file.
func (t *Table) find(r io.ReaderAt, address uint64) (f function, ok bool, err error) {
	if address < t.text || address-t.text >= uint64(t.size) {
		return f, false, nil
	}
	pc := uint32(address - t.text)
	low, high := uint32(0), t.count // functions below low begin at pc or before it, those from high on behind it
	for high-low > searchedBlock {
		middle := low + (high-low)/2
		begin, err := t.begin(r, middle)
		if err != nil {
			return f, false, err
		}
		if begin <= pc {
			low = middle + 1
		} else {
			high = middle
		}
	}
	var block [8 * searchedBlock]byte
	rest := block[:8*(high-low)]
	if err := t.read(r, rest, t.functions+8*uint64(low)); err != nil {
		return f, false, err
	}
	for ; len(rest) > 0 && binary.LittleEndian.Uint32(rest) <= pc; rest = rest[8:] {
		low++
	}
	if low == 0 {
		return f, false, nil
	}
	f, err = t.function(r, low-1)
	return f, err == nil && pc < f.end, err
}
