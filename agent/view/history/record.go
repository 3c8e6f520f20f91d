package history

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// magic begins a segment. Its last bytes are damaged by whatever takes the file for text. Whoever
// changes what is written gives it another number: TestFormat fails until then.
const magic = "vmph3\x00\r\n"

// A format is a version of the encoding. The checksum of a header says which one it is of, so that
// a record is known wherever it is found.
type format uint8

const (
	// shared is the format of "vmph2": headers refer to the services of a segment by numbers, and
	// no body says how many names there were before it. It is read, and not written.
	shared format = iota
	// current is the format of magic.
	current
)

// prefixSize is the length of what precedes a record: the lengths of header and body, and checksums
// of both and the lengths.
const prefixSize = 16

// Bounds of a record.
const (
	maxHeader = 1 << 20
	maxBody   = 16 << 20 // compressed
	maxRaw    = 32 << 20 // bytes of the body before it is compressed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header is what an index has of a window, so that a timeline needs no bodies.
type header struct {
	span
	sums []Sum
}

// A span is the time of a window.
type span struct {
	start, end time.Time
	covered    time.Duration // covered part of the time between them
}

// services are those that headers of the format shared refer to.
type services struct {
	names []string
	lost  bool // A header was damaged: what it and the following ones added has other numbers.
}

const (
	maxServices = 1 << 14 // services in a segment
	maxKinds    = 64      // kinds of code, and of events
)

// lostName stands for a name that was in a damaged part of a segment.
const lostName = "[damaged name]"

// header writes or reads a header.
func (c *codec) header(h *header, earlier *services) {
	known := len(earlier.names)
	if c.format == shared {
		var added []string
		list(c, &added, maxServices-known, c.text)
		if !earlier.lost {
			earlier.names = append(earlier.names, added...)
		}
	}
	c.span(&h.span)
	c.sums(&h.sums, earlier)
	if c.err != nil {
		earlier.names = earlier.names[:known]
	}
}

// span is the time of a window.
func (c *codec) span(p *span) {
	start, length := p.start.UnixNano(), p.end.Sub(p.start)
	number(c, &start)
	number(c, &length)
	number(c, &p.covered)
	if !c.reads || c.err != nil {
		return
	}
	if length < 0 || p.covered < 0 || start > math.MaxInt64-int64(length) {
		c.fail()
		return
	}
	p.start = time.Unix(0, start)
	p.end = p.start.Add(length)
}

// sums are those of services. They say how many kinds there are, as a later agent has more.
func (c *codec) sums(p *[]Sum, earlier *services) {
	cpu, events := int(profile.CodeKinds), int(profile.EventKinds)
	number(c, &cpu)
	number(c, &events)
	if cpu < 0 || cpu > maxKinds || events < 0 || events > maxKinds {
		c.fail()
	}
	list(c, p, maxSums+1, func(s *Sum) {
		if c.format == shared {
			c.service(&s.Service, earlier)
		} else {
			c.text(&s.Service)
		}
		for k := range cpu {
			var unknown time.Duration
			at := &unknown
			if k < len(s.CPU) {
				at = &s.CPU[k]
			}
			number(c, at)
		}
		for k := range events {
			var unknown float64
			at := &unknown
			if k < len(s.Events) {
				at = &s.Events[k]
			}
			c.float(at)
		}
	})
}

// service reads the number of a service.
func (c *codec) service(name *string, earlier *services) {
	var id int
	number(c, &id)
	switch {
	case c.err != nil:
	case id >= 0 && id < len(earlier.names):
		*name = earlier.names[id]
	case id >= 0 && earlier.lost:
		*name = lostName
	default:
		c.fail()
	}
}

// An encoder makes the records of one segment, in order.
type encoder struct {
	tables  *tables
	indexed int // bytes of all headers
	z       *flate.Writer
	// Used again for each record:
	body, definitions []byte
	out               bytes.Buffer
	// To take back what the last record added:
	strings, frames, added int
}

// newEncoder makes an encoder of windows with these names.
func newEncoder(t *tables) *encoder {
	z, err := flate.NewWriter(nil, compression)
	if err != nil {
		panic(err) // the level is not one
	}
	return &encoder{tables: t, z: z}
}

// compression is the level of flate. On windows of real programs, 5 makes files 8 % smaller than 1
// and takes a quarter more CPU time, merging included; 6 takes another tenth for less than 1 %.
const compression = 5

// errTooLarge is the error for a window that does not fit into a record, although it is bounded.
var errTooLarge = errors.New("the window is too large")

// record returns the record of a window, until the next call. If it is not stored after all, forget
// must be called.
func (e *encoder) record(h *header, w *digest.Window) ([]byte, error) {
	e.strings, e.frames, e.added = len(e.tables.strings), len(e.tables.frames), 0
	head := codec{format: current}
	head.header(h, new(services))
	body := codec{format: current, tables: e.tables, buf: e.body[:0]}
	body.window(w)
	definitions := codec{format: current, tables: e.tables, buf: e.definitions[:0]}
	definitions.definitions(e.strings, e.frames)
	e.body, e.definitions = body.buf, definitions.buf
	if body.err != nil || len(head.buf) > maxHeader || len(body.buf)+len(definitions.buf) > maxRaw ||
		e.tables.tooMany() {
		return nil, errTooLarge
	}
	e.added = len(head.buf)
	e.indexed += e.added
	e.out.Reset()
	e.out.Write(make([]byte, prefixSize))
	e.out.Write(head.buf)
	e.z.Reset(&e.out)
	for _, part := range [][]byte{definitions.buf, body.buf} {
		if _, err := e.z.Write(part); err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
	}
	if err := e.z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	record := e.out.Bytes()
	bodySize := len(record) - prefixSize - len(head.buf)
	if bodySize > maxBody {
		return nil, errTooLarge
	}
	binary.LittleEndian.PutUint32(record, uint32(len(head.buf)))
	binary.LittleEndian.PutUint32(record[4:], uint32(bodySize))
	binary.LittleEndian.PutUint32(record[8:], headerSum(current, record[:8], head.buf))
	binary.LittleEndian.PutUint32(record[12:], crc32.Checksum(record[prefixSize+len(head.buf):], castagnoli))
	return record, nil
}

// forget takes back what the last record added to the names.
func (e *encoder) forget() {
	e.tables.forget(e.strings, e.frames)
	e.indexed -= e.added
	e.added = 0
}

// full reports whether the segment has enough names, or readers would have to remember too much of
// it.
func (e *encoder) full() bool {
	return e.tables.full() || e.indexed > maxIndex-maxHeader
}

// headerSum is the checksum of a header, with its lengths and its format.
func headerSum(f format, lengths, header []byte) uint32 {
	var sum uint32
	if f == current {
		sum = crc32.Checksum([]byte(magic), castagnoli)
	}
	return crc32.Update(crc32.Update(sum, castagnoli, lengths), castagnoli, header)
}

// A decoder reads the bodies of a segment's records, all of them in order, as names are stored
// once. It must be given those that are damaged, too.
type decoder struct {
	f      io.ReaderAt
	tables *tables
	z      io.ReadCloser
	// Used again for each record:
	compressed []byte
	raw        bytes.Buffer
	room       digest.Arena
}

// newDecoder makes a decoder of windows with these names.
func newDecoder(f io.ReaderAt, n *digest.Names) *decoder { return &decoder{f: f, tables: newTables(n)} }

// body returns the body of a record that was compressed, until the next call.
func (d *decoder) body(e *entry) ([]byte, error) {
	d.compressed = slices.Grow(d.compressed[:0], e.bodySize)[:e.bodySize]
	if _, err := d.f.ReadAt(d.compressed, e.at); err != nil {
		return nil, readError(err)
	}
	if crc32.Checksum(d.compressed, castagnoli) != e.bodySum {
		return nil, errMalformed
	}
	return d.inflate(d.compressed)
}

func (d *decoder) inflate(compressed []byte) ([]byte, error) {
	if d.z == nil {
		d.z = flate.NewReader(bytes.NewReader(compressed))
	} else if err := d.z.(flate.Resetter).Reset(bytes.NewReader(compressed), nil); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	d.raw.Reset()
	n, err := d.raw.ReadFrom(io.LimitReader(d.z, maxRaw+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if n > maxRaw {
		return nil, errMalformed
	}
	return d.raw.Bytes(), nil
}

// decode reads a body. The names always, the window only if want is not nil; it is there until the
// next call.
func (d *decoder) decode(f format, raw []byte, want *Selection) (*digest.Window, error) {
	d.room.Reset()
	c := codec{reads: true, format: f, buf: raw, tables: d.tables, want: want, room: &d.room}
	strings, frames := len(d.tables.strings), len(d.tables.frames)
	if c.definitions(0, 0); c.err != nil {
		d.tables.truncate(strings, frames)
	}
	if c.err != nil || want == nil {
		return nil, c.err
	}
	w := new(digest.Window)
	c.window(w)
	if c.err != nil {
		return nil, c.err
	}
	if len(c.buf) > 0 {
		return nil, errMalformed
	}
	return w, nil
}

// window reads the window of an entry, or only its names if want is nil. It is there until the next
// call. After an error, and of what is damaged, it has no names: those in later windows are
// lostName.
func (d *decoder) window(e *entry, want *Selection) (*digest.Window, error) {
	w, err := d.read(e, want)
	if err != nil && e.format == shared {
		d.tables.lost = true
	}
	if err != nil || w == nil {
		return nil, err
	}
	w.Start, w.Duration = e.start, e.covered
	return w, nil
}

func (d *decoder) read(e *entry, want *Selection) (*digest.Window, error) {
	if e.bodySize == 0 {
		return nil, errMalformed
	}
	raw, err := d.body(e)
	if err != nil {
		return nil, err
	}
	return d.decode(e.format, raw, want)
}
