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
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// magic begins a segment. Its last bytes are damaged by whatever takes the file for text.
const magic = "vmph1\x00\r\n"

// prefixSize is the length of what precedes a record: the lengths of header and body, and checksums of both and the lengths.
const prefixSize = 16

// Bounds of a record.
const (
	maxHeader = 1 << 20
	maxBody   = 16 << 20 // compressed
	maxRaw    = 32 << 20 // of the body before it is compressed
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// A header is what an index has of a window, so that a timeline needs no bodies.
type header struct {
	start, end time.Time
	covered    time.Duration // of the time between them
	sums       []Sum
}

// serviceNames are the services that headers of a segment refer to.
type serviceNames struct {
	names []string
	ids   map[string]int // of writers
}

func (n *serviceNames) id(name string) int {
	id, known := n.ids[name]
	if !known {
		if n.ids == nil {
			n.ids = make(map[string]int)
		}
		id = len(n.names)
		n.ids[name], n.names = id, append(n.names, name)
	}
	return id
}

func (n *serviceNames) forget(since int) {
	for _, name := range n.names[since:] {
		delete(n.ids, name)
	}
	n.names = n.names[:since]
}

const (
	maxServices = 1 << 14 // in a segment
	maxKinds    = 64      // of code, and of events
)

// header writes or reads a header. Names of services that are new in the segment come first. It says how many kinds there are: a later
// agent has more, and what it cannot read of a history it would cut off.
func (c *codec) header(h *header, services *serviceNames) {
	var added []string
	ids := make([]int, len(h.sums))
	if !c.reads {
		known := len(services.names)
		for i := range h.sums {
			ids[i] = services.id(h.sums[i].Service)
		}
		added = services.names[known:]
	}
	list(c, &added, maxServices-len(services.names)+len(added), func(s *string) {
		n := c.length(len(*s), maxName)
		if !c.reads {
			c.buf = append(c.buf, (*s)[:n]...)
		} else if c.err == nil {
			*s, c.buf = string(c.buf[:n]), c.buf[n:]
		}
	})
	if c.reads && c.err == nil {
		services.names = append(services.names, added...)
	}
	start, span := h.start.UnixNano(), h.end.Sub(h.start)
	number(c, &start)
	number(c, &span)
	number(c, &h.covered)
	cpu, events := int(profile.CodeKinds), int(profile.EventKinds)
	number(c, &cpu)
	number(c, &events)
	if cpu < 0 || cpu > maxKinds || events < 0 || events > maxKinds {
		c.fail()
	}
	i := 0
	list(c, &h.sums, maxSums+1, func(s *Sum) {
		if c.reads {
			ids = append(ids, 0)
		}
		number(c, &ids[i])
		if c.reads && c.err == nil {
			if ids[i] < 0 || ids[i] >= len(services.names) {
				c.fail()
				return
			}
			s.Service = services.names[ids[i]]
		}
		i++
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
	if !c.reads || c.err != nil {
		return
	}
	if span < 0 || h.covered < 0 || start > math.MaxInt64-int64(span) {
		c.fail()
		return
	}
	h.start = time.Unix(0, start)
	h.end = h.start.Add(span)
}

// An encoder makes the records of one segment, in order.
type encoder struct {
	tables   *tables
	services serviceNames
	z        *flate.Writer
	// To take back what the last record added:
	strings, frames, known int
}

func newEncoder() *encoder {
	z, err := flate.NewWriter(nil, compression)
	if err != nil {
		panic(err) // the level is not one
	}
	return &encoder{tables: newTables(), z: z}
}

// compression is the level: 1 halves the CPU time of 6, for files that are a tenth larger.
const compression = flate.BestSpeed

// errTooLarge is the error for a window that does not fit into a record, although it is bounded.
var errTooLarge = errors.New("the window is too large")

// record returns the record of a window. If it is not stored after all, forget must be called.
func (e *encoder) record(h *header, p *profile.Profile) ([]byte, error) {
	e.strings, e.frames, e.known = len(e.tables.strings), len(e.tables.frames), len(e.services.names)
	head := codec{tables: e.tables}
	head.header(h, &e.services)
	body := codec{tables: e.tables}
	body.window(p)
	body.names(e.strings, e.frames)
	if t := e.tables; len(head.buf) > maxHeader || len(body.buf) > maxRaw || len(t.strings) > maxStrings || len(t.frames) > maxFrames || t.text > maxText ||
		len(e.services.names) > maxServices {
		return nil, errTooLarge
	}
	var out bytes.Buffer
	out.Write(make([]byte, prefixSize))
	out.Write(head.buf)
	e.z.Reset(&out)
	if _, err := e.z.Write(body.buf); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := e.z.Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	record := out.Bytes()
	bodySize := len(record) - prefixSize - len(head.buf)
	if bodySize > maxBody {
		return nil, errTooLarge
	}
	binary.LittleEndian.PutUint32(record, uint32(len(head.buf)))
	binary.LittleEndian.PutUint32(record[4:], uint32(bodySize))
	binary.LittleEndian.PutUint32(record[8:], headerSum(record[:8], head.buf))
	binary.LittleEndian.PutUint32(record[12:], crc32.Checksum(record[prefixSize+len(head.buf):], castagnoli))
	return record, nil
}

// forget takes back what the last record added to the names.
func (e *encoder) forget() {
	e.tables.forget(e.strings, e.frames)
	e.services.forget(e.known)
}

// full reports whether the segment has enough names.
func (e *encoder) full() bool { return e.tables.full() || len(e.services.names) > maxServices/4 }

func headerSum(lengths, header []byte) uint32 {
	return crc32.Update(crc32.Checksum(lengths, castagnoli), castagnoli, header)
}

// An entry is where a record is, and its header.
type entry struct {
	header
	at       int64 // of the body
	bodySize int
	bodySum  uint32
	known    int // services of the segment before this record
}

func (e *entry) next() int64 { return e.at + int64(e.bodySize) }

// A scanner reads the headers of a segment's records.
type scanner struct {
	services serviceNames
	entries  []entry
	end      int64 // of the last complete record
}

// Bounds of a segment.
const (
	maxEntries = 1 << 13 // windows
	maxSegment = 1 << 30 // bytes
)

// scan reads on from where it ended, up to the first record that is not complete or not right.
func (s *scanner) scan(f io.ReaderAt, size int64) {
	size = min(size, maxSegment)
	if s.end == 0 {
		var begin [len(magic)]byte
		if _, err := f.ReadAt(begin[:], 0); err != nil || string(begin[:]) != magic {
			return
		}
		s.end = int64(len(magic))
	}
	for len(s.entries) < maxEntries {
		var prefix [prefixSize]byte
		if _, err := f.ReadAt(prefix[:], s.end); err != nil {
			return
		}
		headSize, bodySize := binary.LittleEndian.Uint32(prefix[:]), binary.LittleEndian.Uint32(prefix[4:])
		at := s.end + prefixSize + int64(headSize)
		if headSize > maxHeader || bodySize > maxBody || at+int64(bodySize) > size {
			return
		}
		head := make([]byte, headSize)
		if _, err := f.ReadAt(head, s.end+prefixSize); err != nil || headerSum(prefix[:8], head) != binary.LittleEndian.Uint32(prefix[8:]) {
			return
		}
		e := entry{at: at, bodySize: int(bodySize), bodySum: binary.LittleEndian.Uint32(prefix[12:]), known: len(s.services.names)}
		c := codec{reads: true, buf: head}
		c.header(&e.header, &s.services)
		if c.err != nil || len(c.buf) > 0 {
			s.services.names = s.services.names[:e.known]
			return
		}
		s.entries = append(s.entries, e)
		s.end = e.next()
	}
}

// A decoder reads the bodies of a segment's records, all of them in order, as names are stored once.
type decoder struct {
	f      io.ReaderAt
	tables tables
	z      io.ReadCloser
}

// body returns the body of a record that was compressed.
func (d *decoder) body(e *entry) ([]byte, error) {
	compressed := make([]byte, e.bodySize)
	if _, err := d.f.ReadAt(compressed, e.at); err != nil {
		return nil, fmt.Errorf("read record: %w", err)
	}
	if crc32.Checksum(compressed, castagnoli) != e.bodySum {
		return nil, errMalformed
	}
	return d.inflate(compressed)
}

func (d *decoder) inflate(compressed []byte) ([]byte, error) {
	if d.z == nil {
		d.z = flate.NewReader(bytes.NewReader(compressed))
	} else if err := d.z.(flate.Resetter).Reset(bytes.NewReader(compressed), nil); err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	raw, err := io.ReadAll(io.LimitReader(d.z, maxRaw+1))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	if len(raw) > maxRaw {
		return nil, errMalformed
	}
	return raw, nil
}

// decode reads a body. The names always, the window only if want is not nil.
func (d *decoder) decode(raw []byte, want *Selection) (*profile.Profile, error) {
	c := codec{reads: true, buf: raw, tables: &d.tables, want: want}
	c.names(0, 0)
	if c.err != nil || want == nil {
		return nil, c.err
	}
	p := new(profile.Profile)
	c.window(p)
	if c.err != nil {
		return nil, c.err
	}
	if len(c.buf) > 0 {
		return nil, errMalformed
	}
	return p, nil
}

// window reads the window of an entry, or only its names if want is nil.
func (d *decoder) window(e *entry, want *Selection) (*profile.Profile, error) {
	raw, err := d.body(e)
	if err != nil {
		return nil, err
	}
	p, err := d.decode(raw, want)
	if err != nil || p == nil {
		return nil, err
	}
	p.Start, p.Duration = e.start, e.covered
	return p, nil
}
