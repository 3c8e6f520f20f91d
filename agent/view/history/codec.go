package history

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// errMalformed is the error for anything that no writer writes.
var errMalformed = errors.New("malformed record")

// A codec writes or reads a window: the same code does both, so that they agree. After an error it
// does nothing. What would make readers refuse a window is an error for the writer, too.
type codec struct {
	reads  bool
	format format
	buf    []byte // what was written, or what is to be read
	tables *tables
	want   *Selection    // readers: what is wanted; nil for everything
	room   *digest.Arena // readers: for contexts and rows
	items  int           // contexts, rows and edges so far
	err    error
}

// maxItems bounds contexts, rows and edges of a window: of all kinds, with the frames that stand
// for rare ones.
const maxItems = 1 << 20

// more counts items, which take more memory than bytes in a record.
func (c *codec) more(n int) {
	if c.items += n; c.items > maxItems {
		c.fail()
	}
}

func (c *codec) fail() { c.err = errMalformed }

// u is an unsigned number.
func (c *codec) u(p *uint64) {
	if c.err != nil {
		return
	}
	if !c.reads {
		c.buf = binary.AppendUvarint(c.buf, *p)
		return
	}
	if len(c.buf) > 0 && c.buf[0] < 0x80 { // as mostly
		*p, c.buf = uint64(c.buf[0]), c.buf[1:]
		return
	}
	v, n := binary.Uvarint(c.buf)
	if n <= 0 {
		c.fail()
		return
	}
	*p, c.buf = v, c.buf[n:]
}

// number is a number of any type.
func number[T ~int | ~int8 | ~int32 | ~int64](c *codec, p *T) {
	v := uint64(int64(*p)<<1) ^ uint64(int64(*p)>>63)
	c.u(&v)
	if c.reads && c.err == nil {
		n := int64(v>>1) ^ -int64(v&1)
		if int64(T(n)) != n {
			c.fail()
			return
		}
		*p = T(n)
	}
}

// small is a number from 0 to most.
func small[T ~uint8 | ~uint32](c *codec, p *T, most T) {
	v := uint64(*p)
	c.u(&v)
	if c.reads && c.err == nil {
		if v > uint64(most) {
			c.fail()
			return
		}
		*p = T(v)
	}
}

// float is short for whole numbers: the bytes that they leave 0 come last.
func (c *codec) float(p *float64) {
	v := bits.ReverseBytes64(math.Float64bits(*p))
	c.u(&v)
	if c.reads {
		*p = math.Float64frombits(bits.ReverseBytes64(v))
		if math.IsNaN(*p) {
			*p = 0
		}
	}
}

func (c *codec) flag(p *bool) {
	v := uint64(0)
	if *p {
		v = 1
	}
	c.u(&v)
	if c.reads {
		*p = v == 1
	}
}

// length is the length of a list: at most so many elements, of which each takes at least a byte.
func (c *codec) length(n, most int) int {
	v := uint64(min(n, most))
	c.u(&v)
	if c.err != nil {
		return 0
	}
	if c.reads && v > uint64(min(most, len(c.buf))) {
		c.fail()
		return 0
	}
	return int(v)
}

// count is the length of a list of items, of which none may be left out.
func (c *codec) count(n, most int) int {
	if n > most {
		c.fail()
	}
	n = c.length(n, most)
	if c.more(n); c.err != nil {
		return 0
	}
	return n
}

// list is a list of what each writes or reads. Of longer lists the first elements are written.
func list[T any](c *codec, p *[]T, most int, each func(*T)) {
	n := c.length(len(*p), most)
	if c.reads && n > 0 {
		*p = make([]T, n)
	}
	for i := 0; i < n && c.err == nil; i++ {
		each(&(*p)[i])
	}
}

// pointers is a list of pointers.
func pointers[T any](c *codec, p *[]*T, most int, each func(*T)) {
	list(c, p, most, func(one **T) {
		if c.reads {
			*one = new(T)
		}
		each(*one)
	})
}

// text is a string that is not in the tables.
func (c *codec) text(s *string) {
	n := c.length(len(*s), digest.MaxName)
	if !c.reads {
		c.buf = append(c.buf, (*s)[:n]...)
	} else if c.err == nil {
		*s, c.buf = string(c.buf[:n]), c.buf[n:]
	}
}

// name is a reference to a string.
func (c *codec) name(p *digest.StringID) {
	if !c.reads {
		id := uint64(c.tables.placeString(*p))
		c.u(&id)
		return
	}
	var id uint64
	if c.u(&id); c.err != nil {
		return
	}
	if id >= uint64(len(c.tables.strings)) {
		if *p = c.tables.names.String(lostName); !c.tables.lost {
			c.fail()
		}
		return
	}
	*p = c.tables.stringFrom(digest.StringID(id))
}

// str is a reference to a string.
func (c *codec) str(p *string) {
	var id digest.StringID
	if !c.reads {
		id = c.tables.names.String(*p)
	}
	if c.name(&id); c.reads {
		*p = c.tables.names.Strings[id]
	}
}

// frame is a reference to a frame, as the difference from another one, as frames that appeared
// together often occur together.
func (c *codec) frame(p *digest.FrameID, last *int) {
	if !c.reads {
		id := c.tables.placeFrame(*p)
		d := id - *last
		number(c, &d)
		*last = id
		return
	}
	var d int
	if number(c, &d); c.err != nil {
		return
	}
	id := *last + d
	if *last = id; id < 0 || id >= len(c.tables.frames) {
		if *p = lostFrame(c.tables.names); id < 0 || !c.tables.lost {
			c.fail()
		}
		return
	}
	*p = c.tables.frameFrom(id)
}

// block is a part that readers can skip.
func (c *codec) block(wanted bool, part func()) {
	if c.err != nil {
		return
	}
	if !c.reads {
		at := len(c.buf)
		part()
		n := len(c.buf) - at
		var size [binary.MaxVarintLen64]byte
		length := binary.PutUvarint(size[:], uint64(n))
		c.buf = append(c.buf, size[:length]...)
		copy(c.buf[at+length:], c.buf[at:at+n])
		copy(c.buf[at:], size[:length])
		return
	}
	n := c.length(0, math.MaxInt)
	if c.err != nil {
		return
	}
	rest := c.buf[n:]
	if wanted {
		c.buf = c.buf[:n:n]
		part()
	}
	c.buf = rest
}

// definitions are the strings and frames that are new in a segment since there were so many.
// Writers write them after what refers to them; in the record they come first.
func (c *codec) definitions(strings, frames int) {
	t := c.tables
	var (
		added []string
		next  []frame
	)
	if c.format != shared {
		before := [2]uint64{uint64(strings), uint64(frames)}
		if c.u(&before[0]); c.err == nil {
			c.u(&before[1])
		}
		if c.reads && c.err == nil && !t.extend(before[0], before[1]) {
			c.fail()
		}
	}
	if !c.reads {
		for _, f := range t.frames[frames:] {
			// The strings of windows come before those of frames: smaller numbers are shorter.
			next = append(next, f.with(t.placeString))
		}
		added = t.strings[strings:]
	}
	text := t.text
	list(c, &added, maxStrings-len(t.strings)+len(added), func(s *string) {
		if c.text(s); c.reads {
			if text += len(*s); text > maxText {
				c.fail()
			}
		}
	})
	if c.reads && c.err == nil && !t.lost {
		t.add(added, nil)
	}
	if list(c, &next, maxFrames-len(t.frames)+len(next), c.frameFields); c.reads && c.err == nil && !t.lost {
		t.add(nil, next)
	}
}

// frameFields is a frame of the tables.
func (c *codec) frameFields(f *frame) {
	most := digest.StringID(max(len(c.tables.strings), 1) - 1)
	if c.tables.lost {
		most = maxStrings
	}
	small(c, &f.function, most)
	small(c, &f.system, most)
	small(c, &f.file, most)
	number(c, &f.line)
	number(c, &f.start)
	small(c, &f.kind, symbol.KindMarker)
	c.flag(&f.inlined)
	c.flag(&f.approximate)
	small(c, &f.mapped, most)
	small(c, &f.build, most)
	if c.reads && len(c.tables.strings) == 0 && !c.tables.lost {
		c.fail()
	}
}
