package history

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// errRead is the error of a file that could not be read, as opposed to one that ends too soon or is damaged. What it has may be all right.
var errRead = errors.New("cannot read the history")

// readError is the error of a read: errRead unless the file ended.
func readError(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errMalformed
	}
	return fmt.Errorf("%w: %w", errRead, err)
}

// errForeign is the error for a file that does not begin as segments do.
var errForeign = errors.New("not a segment of a history")

// An entry is where a record is, and its time.
type entry struct {
	span
	at       int64 // of the body
	bodySize int
	bodySum  uint32
	sums     []byte // of the services, as the header has them
	known    int    // services of the segment before this record
}

func (e *entry) next() int64 { return e.at + int64(e.bodySize) }

// A scanner reads the headers of a segment's records.
type scanner struct {
	services serviceNames
	entries  []entry
	end      int64 // of the last complete record
	indexed  int   // bytes of all headers
}

// Bounds of a segment.
const (
	maxEntries = 1 << 13 // windows
	maxSegment = 1 << 30 // bytes
	maxIndex   = 8 << 20 // bytes of its headers, which readers keep
)

// scan reads on from where it ended, up to the first record that is not complete or not right. Its error is errForeign for a file that is no
// segment, and errRead if it cannot tell how the file goes on.
func (s *scanner) scan(f io.ReaderAt, size int64) error {
	size = min(size, maxSegment)
	if s.end == 0 {
		if ok, err := begins(f, size); !ok {
			return err
		}
		s.end = int64(len(magic))
	}
	for len(s.entries) < maxEntries && s.end+prefixSize <= size {
		var prefix [prefixSize]byte
		if _, err := f.ReadAt(prefix[:], s.end); err != nil {
			return unlessEnd(err)
		}
		headSize, bodySize := binary.LittleEndian.Uint32(prefix[:]), binary.LittleEndian.Uint32(prefix[4:])
		at := s.end + prefixSize + int64(headSize)
		if headSize > maxHeader || bodySize > maxBody || at+int64(bodySize) > size || s.indexed+int(headSize) > maxIndex {
			return nil
		}
		head := make([]byte, headSize)
		if _, err := f.ReadAt(head, s.end+prefixSize); err != nil {
			return unlessEnd(err)
		}
		if headerSum(prefix[:8], head) != binary.LittleEndian.Uint32(prefix[8:]) {
			return nil
		}
		e := entry{at: at, bodySize: int(bodySize), bodySum: binary.LittleEndian.Uint32(prefix[12:]), known: len(s.services.names)}
		if !e.read(head, &s.services) {
			return nil
		}
		s.entries = append(s.entries, e)
		s.end = e.next()
		s.indexed += int(headSize)
	}
	return nil
}

// read reads a header, and reports whether it is right. It adds its services only then.
func (e *entry) read(head []byte, services *serviceNames) bool {
	var list []Sum
	c := codec{reads: true, buf: head}
	c.span(&e.span, services, e.known)
	e.sums = c.buf
	c.sums(&list, services)
	if c.err != nil || len(c.buf) > 0 {
		services.names = services.names[:e.known]
		return false
	}
	return true
}

// services are the sums of an entry, of a segment with these services.
func (e *entry) services(names []string) (list []Sum) {
	c := codec{reads: true, buf: e.sums}
	c.sums(&list, &serviceNames{names: names})
	return list
}

// unlessEnd is the error of a read; nil if the file ended.
func unlessEnd(err error) error {
	if err = readError(err); errors.Is(err, errRead) {
		return err
	}
	return nil
}

// begins reports whether a file begins as segments do, and not only with a part of that, or with zeros as the disk never got it.
func begins(f io.ReaderAt, size int64) (bool, error) {
	begin := make([]byte, min(size, int64(len(magic))))
	if _, err := f.ReadAt(begin, 0); err != nil {
		return false, unlessEnd(err)
	}
	switch text := string(begin); {
	case text == magic:
		return true, nil
	case strings.HasPrefix(magic, text), strings.Trim(text, "\x00") == "":
		return false, nil
	}
	return false, errForeign
}

// truncate keeps the first n entries, of more, and the services that they have.
func (s *scanner) truncate(n int) {
	s.end, s.services.names = int64(len(magic)), s.services.names[:s.entries[n].known]
	if n > 0 {
		s.end = s.entries[n-1].next()
	}
	s.entries = s.entries[:n]
}
