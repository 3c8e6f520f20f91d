package unwind

import (
	"bytes"
	"fmt"
)

// A cie is what frame descriptions have in common (a common information entry).
type cie struct {
	codeAlign uint64
	dataAlign int64
	encoding  byte // of pointers in frame descriptions
	augmented bool // frame descriptions have augmentation data
	signal    bool // the code is entered by a return from a signal handler
	initial   state
}

const maxAugmentation = 16 // bytes; "zPLR" and "zRS" are usual

// cie returns the entry at a position, which is read once.
func (b *builder) cie(data []byte, base uint64, pos int) (*cie, error) {
	if c, ok := b.cies[pos]; ok {
		if c == nil {
			return nil, errMalformed
		}
		return c, nil
	}
	if len(b.cies) >= maxCIEs {
		return nil, fmt.Errorf("common information entries: %w", ErrTooLarge)
	}
	b.cies[pos] = nil
	c, err := b.readCIE(data, base, pos)
	if err == nil {
		b.cies[pos] = c
	}
	return c, err
}

func (b *builder) readCIE(data []byte, base uint64, pos int) (*cie, error) {
	if pos < 0 || pos > len(data) {
		return nil, errMalformed
	}
	r := reader{data: data, pos: pos, base: base}
	length := r.uint(4)
	if r.bad || length > uint64(len(data)-r.pos) {
		return nil, errMalformed
	}
	r.data = data[:r.pos+int(length)]
	id, version := r.uint(4), r.uint(1)
	if r.bad || id != 0 {
		return nil, errMalformed
	}
	if version != 1 && version != 3 {
		return nil, errUnsupported
	}
	rest := r.data[r.pos:]
	end := bytes.IndexByte(rest[:min(len(rest), maxAugmentation)], 0)
	if end < 0 {
		return nil, errMalformed
	}
	augmentation := rest[:end]
	r.pos += end + 1
	c := &cie{codeAlign: r.uleb(), dataAlign: r.sleb()}
	if version == 1 {
		c.initial.returns = uint8(r.uint(1))
	} else {
		c.initial.returns = uint8(min(r.uleb(), 0xff))
	}
	if c.initial.returns != regRA {
		return nil, errUnsupported
	}
	if len(augmentation) > 0 {
		if err := c.augment(&r, augmentation); err != nil {
			return nil, err
		}
	}
	m := machine{cie: c, builder: b}
	m.state.returns = regRA
	if err := m.run(&r, maxOffset); err != nil {
		return nil, err
	}
	c.initial = m.state
	return c, nil
}

// augment reads the augmentation data.
func (c *cie) augment(r *reader, augmentation []byte) error {
	if augmentation[0] != 'z' {
		return errUnsupported
	}
	size := r.uleb()
	if r.bad || size > uint64(len(r.data)-r.pos) {
		return errMalformed
	}
	c.augmented = true
	end := r.pos + int(size)
	for _, a := range augmentation[1:] {
		switch a {
		case 'R':
			c.encoding = byte(r.uint(1))
		case 'P':
			encoding := byte(r.uint(1))
			if _, err := r.pointer(encoding &^ encodedIndirect); err != nil {
				return err
			}
		case 'L':
			r.uint(1)
		case 'S':
			c.signal = true
		default:
			return errUnsupported
		}
	}
	if r.bad || r.pos > end {
		return errMalformed
	}
	r.pos = end
	return nil
}
