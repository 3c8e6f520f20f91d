package vmtest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An Image is a piece of guest memory in the making: things are put one behind the other.
type Image struct {
	Base uint64
	Data []byte
}

// Put adds data at the next multiple of 8 and returns its address.
func (m *Image) Put(data []byte) uint64 {
	for len(m.Data)%8 != 0 {
		m.Data = append(m.Data, 0)
	}
	m.Data = append(m.Data, data...)
	return m.Base + uint64(len(m.Data)-len(data))
}

func (m *Image) Text(s string) uint64 { return m.Put(append([]byte(s), 0)) }

func (m *Image) Words(values ...uint64) uint64 {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return m.Put(b)
}

func (m *Image) Memory() *Memory { return &Memory{[]Piece{{m.Base, m.Data}}} }

// A Piece is a piece of memory. Pieces are in order and do not touch.
type Piece struct {
	Addr uint64
	Data []byte
}

// Memory is memory that consists of pieces in order.
type Memory struct{ Pieces []Piece }

var errUnmapped = errors.New("bad address")

func (m *Memory) Read(addr uint64, p []byte) error {
	b := m.At(addr, uint64(len(p)))
	if b == nil {
		return errUnmapped
	}
	copy(p, b)
	return nil
}

// At returns the n bytes at addr, nil if they are not all in one piece. Tests write through it.
func (m *Memory) At(addr, n uint64) []byte {
	i, found := slices.BinarySearchFunc(m.Pieces, addr, func(p Piece, addr uint64) int { return cmp.Compare(p.Addr, addr) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	p := m.Pieces[i]
	offset := addr - p.Addr
	if offset > uint64(len(p.Data)) || n > uint64(len(p.Data))-offset {
		return nil
	}
	return p.Data[offset:][:n]
}

func (m *Memory) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

type Hooked struct {
	vmruntime.Memory
	Before func()
}

func (m Hooked) Read(addr uint64, p []byte) error { m.Before(); return m.Memory.Read(addr, p) }

func (m Hooked) ReadBatch(ranges []vmruntime.Range) error {
	m.Before()
	return m.Memory.ReadBatch(ranges)
}
