// Package vmtest has fakes of a VM's memory, for tests of several packages.
//
//	m := &vmtest.Image{Base: 0x1000}
//	addr := m.Words(1, 2, m.Text("a name"))
//	reader := vmstructs.Reader{Mem: m.Memory()}
package vmtest

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An Image is a piece of memory in the making. What is put into it follows what was put before.
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

// Text adds a string with its NUL and returns its address.
func (m *Image) Text(s string) uint64 { return m.Put(append([]byte(s), 0)) }

// Words adds 64-bit words and returns the address of the first.
func (m *Image) Words(values ...uint64) uint64 {
	var b []byte
	for _, v := range values {
		b = binary.LittleEndian.AppendUint64(b, v)
	}
	return m.Put(b)
}

// Memory is the memory of a process that has this image only.
func (m *Image) Memory() *Memory { return &Memory{[]Piece{{m.Base, m.Data}}} }

// A Piece is a piece of memory. Pieces are in order and do not touch.
type Piece struct {
	Addr uint64
	Data []byte
}

// Memory is memory in pieces. It implements vmruntime.Memory.
type Memory struct{ Pieces []Piece }

var errUnmapped = errors.New("bad address")

// Read copies what is at addr. It fails unless one piece has all of it.
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
	i, found := slices.BinarySearchFunc(m.Pieces, addr, func(p Piece,
		addr uint64) int {
		return cmp.Compare(p.Addr, addr)
	})
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

// ReadBatch reads each range.
func (m *Memory) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		ranges[i].OK = m.Read(ranges[i].Addr, ranges[i].Buf) == nil
	}
	return nil
}

// Hooked is memory that calls Before ahead of every read.
type Hooked struct {
	vmruntime.Memory
	Before func()
}

// Read calls Before and reads.
func (m Hooked) Read(addr uint64, p []byte) error { m.Before(); return m.Memory.Read(addr, p) }

// ReadBatch calls Before once and reads.
func (m Hooked) ReadBatch(ranges []vmruntime.Range) error {
	m.Before()
	return m.Memory.ReadBatch(ranges)
}
