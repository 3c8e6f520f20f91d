package hotspot

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An image is a piece of guest memory in the making: things are put one behind the other.
type image struct {
	base uint64
	data []byte
}

// put adds data at the next multiple of 8 and returns its address.
func (m *image) put(data []byte) uint64 {
	for len(m.data)%8 != 0 {
		m.data = append(m.data, 0)
	}
	m.data = append(m.data, data...)
	return m.base + uint64(len(m.data)-len(data))
}

func (m *image) text(s string) uint64 { return m.put(append([]byte(s), 0)) }

func (m *image) words(values ...uint64) uint64 {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return m.put(b)
}

func (m *image) memory() *pieceMemory { return &pieceMemory{[]memoryPiece{{m.base, m.data}}} }

// A memoryPiece is a piece of memory. Pieces are in order and do not touch.
type memoryPiece struct {
	Addr uint64
	Data []byte
}

// pieceMemory is memory that consists of pieces in order.
type pieceMemory struct{ pieces []memoryPiece }

var errUnmapped = errors.New("bad address")

func (m *pieceMemory) Read(addr uint64, p []byte) error {
	b := m.at(addr, uint64(len(p)))
	if b == nil {
		return errUnmapped
	}
	copy(p, b)
	return nil
}

// at returns the n bytes at addr, nil if they are not all in one piece. Tests write through it.
func (m *pieceMemory) at(addr, n uint64) []byte {
	i, found := slices.BinarySearchFunc(m.pieces, addr, func(p memoryPiece, addr uint64) int { return cmp.Compare(p.Addr, addr) })
	if !found {
		i--
	}
	if i < 0 {
		return nil
	}
	p := m.pieces[i]
	offset := addr - p.Addr
	if offset > uint64(len(p.Data)) || n > uint64(len(p.Data))-offset {
		return nil
	}
	return p.Data[offset:][:n]
}

func (m *pieceMemory) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

type hookedMemory struct {
	vmruntime.Memory
	before func()
}

func (m hookedMemory) Read(addr uint64, p []byte) error { m.before(); return m.Memory.Read(addr, p) }

func (m hookedMemory) ReadBatch(ranges []vmruntime.Range) error {
	m.before()
	return m.Memory.ReadBatch(ranges)
}
