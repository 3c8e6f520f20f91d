package input

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
)

var errNotProfile = errors.New("this is not a pprof profile (.pb.gz)")

// What the parser allocates for the parts of a profile, in bytes: structures, pointers to them, and
// what growing slices leave behind. A test compares.
const (
	perRecord  = 224 // a sample, location, function, mapping, or anything else at the top level
	perPacked  = 20  // a location of a sample, or a value
	perNumber  = 48  // the same, if it is a field of its own
	perLine    = 224 // a line of a location
	perString  = 96  // beside its bytes
	perComment = 112
	perLabels  = 1300 // the first label of a sample, for which there are three maps
	perLabel   = 112
	fewLabels  = 8 // labels of a sample, up to which maps have their least size
	perFurther = 544
)

// maxStack bounds the stack of a sample: views take several times as much as the parser for each of
// its frames, one sample after the other. The agent records 5,120 frames at most.
const maxStack = 1 << 16

// Fields of profile.proto.
const (
	fieldSample      = 2
	fieldLocation    = 4
	fieldStringTable = 6
	fieldComment     = 13

	sampleLocation = 1
	sampleValue    = 2
	sampleLabel    = 3

	locationLine = 4
)

// A measurer steps over a message in the wire format of protocol buffers.
type measurer struct {
	r    *bufio.Reader
	at   int64 // bytes that were read
	most int64 // bytes that may be read
	need int64 // bytes that parsing takes, so far

	numbered int // locations, values and comments, so far
}

// measure returns how much memory parsing the profile in r takes, in addition to its size, without
// holding any of it. Both are bytes. It fails beyond limit bytes.
func measure(r io.Reader, limit int64) (need, size int64, err error) {
	m := measurer{r: bufio.NewReaderSize(r, 64<<10), most: limit}
	err = m.fields(math.MaxInt64, m.profileField)
	switch {
	case err == io.EOF: // as it is between two fields
		err = nil
	case err == io.ErrUnexpectedEOF: // A decompressor returns another error.
		err = fmt.Errorf("%w: %w", errNotProfile, err)
	}
	return m.need, m.at, err
}

// fields calls visit for each field of a message that ends at a position. visit steps over fields
// with a length; it is called for others once they are read. At the end of the file the error is
// io.EOF between two fields, else io.ErrUnexpectedEOF.
func (m *measurer) fields(end int64, visit func(field uint64, length int64) error) error {
	for m.at < end {
		began := m.at
		tag, err := m.varint()
		if err != nil {
			if err == io.EOF && m.at > began {
				err = io.ErrUnexpectedEOF
			}
			return err
		}
		length := int64(-1)
		switch tag & 7 {
		case 0:
			_, err = m.varint()
		case 1:
			err = m.skip(8)
		case 2:
			var n uint64
			if n, err = m.varint(); err == nil && n > uint64(m.most) {
				err = m.tooLarge()
			}
			length = int64(n)
		case 5:
			err = m.skip(4)
		default:
			err = fmt.Errorf("%w: a field of type %d", errNotProfile, tag&7)
		}
		next := m.at + max(length, 0)
		if err == nil && next > end {
			err = fmt.Errorf("%w: a field is longer than its message", errNotProfile)
		}
		if err == nil {
			err = visit(tag>>3, length)
		}
		if err == nil && next > m.at {
			err = m.skip(next - m.at)
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *measurer) profileField(field uint64, length int64) error {
	switch {
	case field == fieldStringTable:
		m.need += perString + max(length, 0)
	case field == fieldComment:
		return m.numbers(length, perComment, perComment)
	case length < 0:
	case field == fieldSample:
		m.need += perRecord
		labels, began := 0, m.numbered
		return m.fields(m.at+length, func(field uint64, length int64) error {
			switch field {
			case sampleLocation, sampleValue:
				if err := m.numbers(length, perNumber, perPacked); err != nil {
					return err
				}
				if m.numbered-began > maxStack {
					return fmt.Errorf("a stack of the profile has more than %d frames", maxStack)
				}
			case sampleLabel:
				switch labels++; {
				case labels > fewLabels:
					m.need += perFurther
				case labels == 1:
					m.need += perLabels
				}
				m.need += perLabel
			}
			return nil
		})
	case field == fieldLocation:
		m.need += perRecord
		return m.fields(m.at+length, func(field uint64, _ int64) error {
			if field == locationLine {
				m.need += perLine
			}
			return nil
		})
	default:
		m.need += perRecord
	}
	return nil
}

// numbers steps over one number, or so many bytes of packed ones.
func (m *measurer) numbers(length, single, packed int64) error {
	if length < 0 {
		m.need += single
		m.numbered++
	}
	for ; length > 0; length-- {
		b, err := m.byte()
		if err != nil {
			return err
		}
		if b < 0x80 { // the last byte of a number
			m.need += packed
			m.numbered++
		}
	}
	return nil
}

func (m *measurer) varint() (n uint64, err error) {
	for shift := 0; shift < 70; shift += 7 {
		b, err := m.byte()
		if err != nil {
			return 0, err
		}
		if n |= uint64(b&0x7f) << shift; b < 0x80 {
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: a number is too long", errNotProfile)
}

func (m *measurer) byte() (byte, error) {
	b, err := m.r.ReadByte()
	if err == nil {
		if m.at++; m.at > m.most {
			err = m.tooLarge()
		}
	}
	return b, err
}

func (m *measurer) skip(n int64) error {
	if m.at+n > m.most {
		return m.tooLarge()
	}
	skipped, err := m.r.Discard(int(n))
	m.at += int64(skipped)
	return err
}

func (m *measurer) tooLarge() error { return tooLarge(m.most) }
