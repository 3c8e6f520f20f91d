package history

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
)

// errRead is the error of a file that could not be read, as opposed to one that ends too soon or is
// damaged. What it has may be all right.
var errRead = errors.New("cannot be read")

// readError is the error of a read: errRead unless the file ended.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errMalformed
	}
	return fmt.Errorf("%w: %w", errRead, err)
}

// errForeign is the error for a file that does not begin as segments do, and has no record near its
// begin.
var errForeign = errors.New("not a segment of a history")

// errVersion is the error for a segment of another version of the agent.
var errVersion = errors.New("written by another version of the agent")

// An entry is where a record is, and its time.
type entry struct {
	span
	format   format
	at       int64 // offset of the body
	bodySize int   // 0 if there is none
	bodySum  uint32
	sums     []byte // sums of the services, in the current format
	next     int64  // where the next record begins
	// damaged says that there is no header: the time and the sums are not known. If there is a
	// body, its names are right.
	damaged bool
}

// A scanner reads the headers of a segment's records. After damage it goes on with the next record
// that is right.
type scanner struct {
	services services
	entries  []entry
	end      int64 // end of the last entry
	indexed  int   // bytes of all headers
	scanned  int64 // the size of the file when it was scanned, if nothing failed
	torn     bool  // what follows the last entry can be a record that is being written, or was when the writer ended
	err      error // for what scan returned it; nil if it may go on
}

// Bounds of a segment.
const (
	maxEntries = 1 << 13 // windows
	maxSegment = 1 << 30 // bytes
	maxIndex   = 8 << 20 // bytes of its headers, which readers keep
)

// scan reads on from where it ended. Its error is errForeign for a file that is no segment,
// errVersion for a segment of another version, and errRead if it cannot tell how the file goes on.
func (s *scanner) scan(f io.ReaderAt, size int64) error {
	size = min(size, maxSegment)
	if size == s.scanned && !s.torn {
		return s.err
	}
	if s.end == 0 {
		if s.torn, s.err = begins(f, size); s.torn || s.err != nil {
			return s.done(size)
		}
		s.end = int64(len(magic))
	}
	for len(s.entries) < maxEntries && s.end < size {
		e, found, err := s.next(f, size)
		if err != nil {
			s.err = err
			return s.done(size)
		}
		if !found {
			s.torn, s.err = torn(f, s.end, size)
			return s.done(size)
		}
		s.entries = append(s.entries, e)
		s.end = e.next
	}
	return s.done(size)
}

// done remembers the result for a file of that size, unless another try may have another one.
func (s *scanner) done(size int64) error {
	err := s.err
	if s.scanned = size; errors.Is(err, errRead) {
		s.scanned, s.err = -1, nil
	}
	return err
}

// unread is how many bytes after the last entry belong to no record. A torn record at the end of
// the segment that is written does not count.
func (s *scanner) unread(writing bool) int64 {
	if s.torn && writing || s.scanned < 0 {
		return 0
	}
	return s.scanned - s.end
}

// damaged is how many bytes belong to records that are not right, in a segment that is written or
// not. Bodies are not checked.
func (s *scanner) damaged(writing bool) (n int64) {
	last := int64(len(magic))
	for i := range s.entries {
		if s.entries[i].damaged {
			n += s.entries[i].next - last
		}
		last = s.entries[i].next
	}
	return n + s.unread(writing)
}

// next is the record at the end of the others, or an entry for a damaged part that a record
// follows.
func (s *scanner) next(f io.ReaderAt, size int64) (e entry, found bool, err error) {
	p, err := prefixAt(f, s.end, size)
	if err != nil {
		return e, false, err
	}
	if p != nil {
		head, format, err := p.header(f, s.end)
		if err != nil {
			return e, false, err
		}
		if s.indexed+len(head) > maxIndex {
			return e, false, nil
		}
		if head != nil && p.end(s.end) <= size {
			e = entry{format: format, at: s.end + prefixSize + int64(p.headSize), bodySize: int(p.bodySize),
				bodySum: p.bodySum, next: p.end(s.end)}
			if e.read(head, &s.services) {
				s.indexed += len(head)
				return e, true, nil
			}
		}
	}
	e = entry{format: current, damaged: true}
	if len(s.entries) > 0 {
		e.format = s.entries[len(s.entries)-1].format
	}
	// If only the header is damaged, its body has the names that later windows refer to.
	if p != nil && p.end(s.end) <= size {
		with := e
		with.at, with.bodySize, with.bodySum, with.next = s.end+prefixSize+int64(p.headSize), int(p.bodySize),
			p.bodySum, p.end(s.end)
		if right, err := with.right(f); err != nil {
			return e, false, err
		} else if right {
			if len(s.entries) == 0 {
				with.format = formatAt(f, with.next, size)
			}
			s.services.lost = true
			return with, true, nil
		}
	}
	from := s.end + 1
	var before *entry
	if n := len(s.entries); n > 0 && s.entries[n-1].bodySize > 0 {
		before = &s.entries[n-1]
		if right, err := before.right(f); err != nil {
			return e, false, err
		} else if !right { // A part of it may be missing, so that the next record begins earlier.
			from = before.at
		}
	}
	next, format, err := find(f, from, size, size)
	if err != nil || next == 0 {
		return e, false, err
	}
	if next < s.end {
		before.next, s.end = next, next
		return s.next(f, size)
	}
	e.next, e.format = next, format
	s.services.lost = true
	return e, true, nil
}

// right reports whether a body is as it was written.
func (e *entry) right(f io.ReaderAt) (bool, error) {
	body := make([]byte, e.bodySize)
	if _, err := f.ReadAt(body, e.at); err != nil {
		return false, unlessEnd(err)
	}
	return crc32.Checksum(body, castagnoli) == e.bodySum, nil
}

// formatAt is the format of the record at a place, or else that of the segment's magic.
func formatAt(f io.ReaderAt, at, size int64) format {
	if p, err := prefixAt(f, at, size); err == nil && p != nil {
		if head, format, err := p.header(f, at); err == nil && head != nil {
			return format
		}
	}
	begin := make([]byte, len(magic))
	if _, err := f.ReadAt(begin, 0); err == nil && string(begin) == sharedMagic {
		return shared
	}
	return current
}

// read reads a header, and reports whether it is right.
func (e *entry) read(head []byte, earlier *services) bool {
	var h header
	c := codec{reads: true, format: e.format, buf: head}
	c.header(&h, earlier)
	if c.err != nil || len(c.buf) > 0 {
		return false
	}
	e.span = h.span
	sums := codec{format: current}
	sums.sums(&h.sums, nil)
	e.sums = sums.buf
	return true
}

// services are the sums of an entry.
func (e *entry) services() (list []Sum) {
	c := codec{reads: true, format: current, buf: e.sums}
	c.sums(&list, nil)
	return list
}

// A prefix is what precedes a record. Nothing of it is known to be right.
type prefix struct {
	bytes              [prefixSize]byte
	headSize, bodySize uint32
	headSum, bodySum   uint32
}

// prefixAt reads the prefix at a place; nil if no record can begin there.
func prefixAt(f io.ReaderAt, at, size int64) (*prefix, error) {
	if at+prefixSize > size {
		return nil, nil
	}
	p := new(prefix)
	if _, err := f.ReadAt(p.bytes[:], at); err != nil {
		return nil, unlessEnd(err)
	}
	if !p.parse() {
		return nil, nil
	}
	return p, nil
}

// parse reports whether the lengths are possible.
func (p *prefix) parse() bool {
	for i, v := range []*uint32{&p.headSize, &p.bodySize, &p.headSum, &p.bodySum} {
		*v = binary.LittleEndian.Uint32(p.bytes[4*i:])
	}
	return p.headSize > 0 && p.headSize <= maxHeader && p.bodySize > 0 && p.bodySize <= maxBody
}

func (p *prefix) end(at int64) int64 { return at + prefixSize + int64(p.headSize) + int64(p.bodySize) }

// header reads the header of the record at a place; nil if it is not right.
func (p *prefix) header(f io.ReaderAt, at int64) ([]byte, format, error) {
	head := make([]byte, p.headSize)
	if _, err := f.ReadAt(head, at+prefixSize); err != nil {
		return nil, 0, unlessEnd(err)
	}
	for _, format := range []format{current, shared} {
		if headerSum(format, p.bytes[:8], head) == p.headSum {
			return head, format, nil
		}
	}
	return nil, 0, nil
}

// Bounds of a search.
const (
	searchStep = 1 << 20 // bytes that are read at once
	// maxChecked is how many bytes of headers are checked: only data that was made for that has
	// more that look like one.
	maxChecked = 64 << 20
	// maxBegin is how far from the begin of a file with a damaged magic its first record may be.
	maxBegin = 1 << 20
)

// find returns the first place between two at which there is a complete record with a header that
// is right, and its format; 0 if there is none.
func find(f io.ReaderAt, from, to, size int64) (int64, format, error) {
	var (
		p       prefix
		buf     = make([]byte, min(searchStep, max(to-from, 0)))
		checked = 0
	)
	for from+prefixSize <= to {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), to-from)], from)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, readError(err)
		}
		if n < prefixSize {
			return 0, 0, nil
		}
		for i := 0; i+prefixSize <= n; i++ {
			if buf[i+3] != 0 || buf[i+7] > maxBody>>24 { // the lengths have fewer bytes
				continue
			}
			at := from + int64(i)
			if copy(p.bytes[:], buf[i:]); !p.parse() || p.end(at) > size {
				continue
			}
			if checked += int(p.headSize); checked > maxChecked {
				return 0, 0, nil
			}
			head, format, err := p.header(f, at)
			if err != nil || head != nil {
				return at, format, err
			}
		}
		from += int64(n - prefixSize + 1)
	}
	return 0, 0, nil
}

// torn reports whether what follows a place can be a part of a record, as a writer leaves it that
// ended or whose disk was full, or zeros that a failed machine leaves. A complete record that is
// not right is not torn.
func torn(f io.ReaderAt, at, size int64) (bool, error) {
	if at+prefixSize > size {
		return true, nil
	}
	if zeros, err := onlyZeros(f, at, size); zeros || err != nil {
		return zeros, err
	}
	p, err := prefixAt(f, at, size)
	if p == nil || err != nil {
		return false, err
	}
	if at+prefixSize+int64(p.headSize) > size {
		return true, nil
	}
	head, _, err := p.header(f, at)
	return head != nil && p.end(at) > size, err
}

func onlyZeros(f io.ReaderAt, at, size int64) (bool, error) {
	buf := make([]byte, 1<<16)
	for at < size {
		n, err := f.ReadAt(buf[:min(int64(len(buf)), size-at)], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return false, readError(err)
		}
		if n == 0 || len(bytes.Trim(buf[:n], "\x00")) > 0 {
			return n == 0, nil
		}
		at += int64(n)
	}
	return true, nil
}

// unlessEnd is the error of a read; nil if the file ended.
func unlessEnd(err error) error {
	if err = readError(err); errors.Is(err, errRead) {
		return err
	}
	return nil
}

// sharedMagic begins segments of the format shared.
const sharedMagic = "vmph2\x00\r\n"

// begins reads how a file begins. It reports whether it has only a part of that, or only zeros as
// the disk never got it. The error is errVersion or errForeign if it is no segment that can be
// read. A magic that is damaged is none if a record is near.
func begins(f io.ReaderAt, size int64) (torn bool, err error) {
	begin := make([]byte, min(size, int64(len(magic))))
	if _, err := f.ReadAt(begin, 0); err != nil {
		return false, readError(err)
	}
	text := string(begin)
	if text == magic || text == sharedMagic {
		return false, nil
	}
	if at, _, err := find(f, int64(len(magic)), min(size, maxBegin), size); at > 0 || err != nil {
		return false, err
	}
	if strings.HasPrefix(magic, text) {
		return true, nil
	}
	if zeros, err := onlyZeros(f, 0, size); zeros || err != nil {
		return zeros, err
	}
	const number = len("vmph")
	if len(text) == len(magic) && text[:number] == magic[:number] && text[number+1:] == magic[number+1:] {
		return false, fmt.Errorf("%w (%.*q)", errVersion, number+1, text[:number+1])
	}
	return false, errForeign
}
