package cpython

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on what is read of one object.
const (
	maxCharacters = 512       // of a string; longer ones are cut
	maxLineTable  = 256 << 10 // bytes; what is longer is not read
	headBytes     = 256       // read at first of a string or of bytes: most have no more
	pageSize      = 4096      // a range within a page is mapped as a whole or not at all
)

// A batch reads ranges together. Those that cannot be read are empty.
type batch struct{ ranges []vmruntime.Range }

// add has n bytes at an address read, and returns the number of the range.
func (b *batch) add(addr uint64, n int) int {
	b.ranges = append(b.ranges, vmruntime.Range{Addr: addr, Buf: make([]byte, n)})
	return len(b.ranges) - 1
}

// addHead is add of the beginning of an object, as far as its page reaches, but at least least bytes.
func (b *batch) addHead(addr, least uint64) int {
	return b.add(addr, int(max(least, min(headBytes, pageSize-addr%pageSize))))
}

// read reads all ranges.
func (b *batch) read(mem vmruntime.Memory) error {
	if len(b.ranges) == 0 {
		return nil
	}
	return mem.ReadBatch(b.ranges)
}

// leastHead is what says how long the content of an object is, in bytes. All objects have so many.
func (o *Offsets) leastHead() uint64 { return o.ObjectHeader + 24 }

// bytes returns a range, nil if it could not be read.
func (b *batch) bytes(i int) []byte {
	if i < 0 || !b.ranges[i].OK {
		return nil
	}
	return b.ranges[i].Buf
}

// word is the word at an offset of a structure; 0 if it is not in what was read.
func word(b []byte, at uint64) uint64 {
	if at > uint64(len(b)) || uint64(len(b))-at < 8 {
		return 0
	}
	return binary.LittleEndian.Uint64(b[at:])
}

// A content is what an object holds: characters of a string, or bytes.
type content struct {
	at     uint64 // address
	length int    // bytes
	width  int    // bytes of a character: 1, 2 or 4; 0 if it is no string
}

// stringContent says where the characters of a string are. ok is false if it is none in the form
// that all names have: one block of memory.
func (o *Offsets) stringContent(addr uint64, head []byte) (c content, ok bool) {
	if uint64(len(head)) < o.ObjectHeader+16+4 {
		return content{}, false
	}
	length, state := word(head, o.ObjectHeader), binary.LittleEndian.Uint32(head[o.ObjectHeader+16:])
	// What comes first in the state says whether the string is interned: 2 bits up to 3.13, 8 or 16
	// in later versions. The other forms have a width of 0 there.
	for _, interned := range []uint{2, 8, 16} {
		width, compact, ascii := state>>interned&7, state>>(interned+3)&1, state>>(interned+4)&1
		if compact == 0 || width != 1 && width != 2 && width != 4 || ascii == 1 && width != 1 {
			continue
		}
		c.at, c.width = addr+o.CompactHeader, int(width)
		if ascii == 1 {
			c.at = addr + o.ASCIIHeader
		}
		c.length = int(min(length, maxCharacters)) * c.width
		return c, true
	}
	return content{}, false
}

// bytesContent says where the bytes of a bytes object are. ok is false if there are too many.
func (o *Offsets) bytesContent(addr uint64, head []byte) (c content, ok bool) {
	size := word(head, o.ObjectHeader)
	if uint64(len(head)) < o.ObjectHeader+8 || size > maxLineTable {
		return content{}, false
	}
	return content{at: addr + o.ObjectHeader + 16, length: int(size)}, true // behind the size and a hash
}

// within returns the content if what was read of its object has all of it, nil otherwise.
func (c content) within(addr uint64, head []byte) []byte {
	from := c.at - addr
	if from > uint64(len(head)) || uint64(len(head))-from < uint64(c.length) {
		return nil
	}
	return head[from:][:c.length]
}

// text makes a name of the characters of a string: without control characters, and of a bounded
// length.
func (c content) text(data []byte) string {
	var b strings.Builder
	for ; c.width > 0 && len(data) >= c.width && b.Len() <= maxCharacters-utf8.UTFMax; data = data[c.width:] {
		var r rune
		switch c.width {
		case 1:
			r = rune(data[0])
		case 2:
			r = rune(binary.LittleEndian.Uint16(data))
		default:
			r = rune(binary.LittleEndian.Uint32(data) & 0x7fffffff)
		}
		if unicode.IsControl(r) || !utf8.ValidRune(r) {
			r = utf8.RuneError
		}
		b.WriteRune(r)
	}
	return b.String()
}
