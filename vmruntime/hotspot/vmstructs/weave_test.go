package vmstructs

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// countedMemory has at each address a word that is 8 more than the address, and counts.
type countedMemory struct {
	batches [][]uint64 // addresses of each
	err     error
}

func (m *countedMemory) Read(addr uint64, p []byte) error {
	r := []vmruntime.Range{{Addr: addr, Buf: p}}
	if err := m.ReadBatch(r); err != nil {
		return err
	}
	if !r[0].OK {
		return vmruntime.ErrMalformed
	}
	return nil
}

func (m *countedMemory) ReadBatch(ranges []vmruntime.Range) error {
	var addrs []uint64
	for i, r := range ranges {
		addrs = append(addrs, r.Addr)
		if ranges[i].OK = r.Addr != 13; ranges[i].OK && len(r.Buf) > 0 {
			r.Buf[0] = byte(r.Addr + 8)
		}
	}
	m.batches = append(m.batches, addrs)
	return m.err
}

// chain follows n words from an address.
func chain(t Reader, addr uint64, n int) (uint64, error) {
	for range n {
		next, err := t.Word(addr)
		if err != nil {
			return 0, err
		}
		addr = next
	}
	return addr, nil
}

// The steps of chains are read together, also where chains part in others.
func TestTogether(t *testing.T) {
	m := &countedMemory{}
	r := Reader{&Weave{Memory: m}}
	var ends [5]uint64
	follow := func(i int, addr uint64, n int) func() {
		return func() {
			end, err := chain(r, addr, n)
			if err != nil {
				t.Error(err)
			}
			ends[i] = end
		}
	}
	r.Together(
		follow(0, 0x10, 3),
		func() {
			follow(1, 0x20, 1)()
			r.Together(follow(2, 0x30, 1), follow(3, 0x40, 2))
		},
		func() {},
		follow(4, 0x50, 2),
	)
	if want := [5]uint64{0x28, 0x28, 0x38, 0x50, 0x60}; ends != want {
		t.Errorf("got %#x, want %#x", ends, want)
	}
	want := [][]uint64{{0x10, 0x20, 0x50}, {0x18, 0x30, 0x40, 0x58}, {0x20, 0x48}}
	if !slices.EqualFunc(m.batches, want, slices.Equal) {
		t.Errorf("read %#x, want %#x", m.batches, want)
	}
}

// What cannot be read fails for whoever wanted it, and all fail if the memory does.
func TestTogetherFails(t *testing.T) {
	m := &countedMemory{}
	r := Reader{&Weave{Memory: m}}
	var good, bad error
	r.Together(func() { _, good = r.Word(0x10) }, func() { _, bad = r.Word(13) })
	if good != nil || bad == nil {
		t.Errorf("got %v and %v", good, bad)
	}
	m.err = errors.New("gone")
	var errs [2]error
	r.Together(func() { _, errs[0] = r.Word(0x10) }, func() { _, errs[1] = r.Word(0x20) })
	if errs != [2]error{m.err, m.err} {
		t.Errorf("got %v", errs)
	}
}

// A panic ends all, and the memory can be used again.
func TestTogetherPanics(t *testing.T) {
	m := &countedMemory{}
	r := Reader{&Weave{Memory: m}}
	var ended error
	func() {
		defer func() {
			if p := fmt.Sprint(recover()); p != "fault" {
				t.Errorf("panicked with %v", p)
			}
		}()
		r.Together(
			func() { _, ended = chain(r, 0x10, 9) },
			func() { r.Together(func() { _, _ = r.Word(0x20); panic("fault") }, func() { _, _ = r.Word(0x30) }) },
		)
	}()
	if ended == nil {
		t.Error("the other function read on")
	}
	if end, err := chain(r, 0x10, 2); err != nil || end != 0x20 {
		t.Errorf("afterwards: %#x, %v", end, err)
	}
}

// What many want together is read in pieces that a memory takes.
func TestTogetherBounds(t *testing.T) {
	m := &countedMemory{}
	r := Reader{&Weave{Memory: m}}
	var functions []func()
	for i := range 5 {
		functions = append(functions, func() {
			if _, err := r.Bytes(uint64(0x100*i), wovenBytes/2); err != nil {
				t.Error(err)
			}
		})
	}
	r.Together(functions...)
	if want := [][]uint64{{0, 0x100}, {0x200, 0x300}, {0x400}}; !slices.EqualFunc(m.batches, want, slices.Equal) {
		t.Errorf("read %#x, want %#x", m.batches, want)
	}
}

// halfMemory has ones at low addresses, and nothing at high ones.
type halfMemory struct{}

func (halfMemory) Read(uint64, []byte) error { return vmruntime.ErrMalformed }

func (halfMemory) ReadBatch(ranges []vmruntime.Range) error {
	for i := range ranges {
		if r := &ranges[i]; r.Addr < 1<<20 {
			r.OK = true
			for j := range r.Buf {
				r.Buf[j] = 0xff
			}
		}
	}
	return nil
}

// TestPassingBatch: a batch that has the memory of an earlier one shows nothing of what that read.
func TestPassingBatch(t *testing.T) {
	for range 100 {
		read := PassingBatch()
		for i := range uint64(64) {
			read.Add(1+i, 1<<10)
		}
		read.Add(1, 1<<20) // larger than memory that is used again
		if err := read.Read(halfMemory{}); err != nil {
			t.Fatal(err)
		}
		if data, ok := read.Bytes(63); !ok || data[0] != 0xff {
			t.Fatalf("%v, %v", data, ok)
		}
		read.Free()
		failed := PassingBatch()
		for i := range uint64(64) {
			failed.Add(i<<21, 1<<10) // 0 is not read at all
		}
		if err := failed.Read(halfMemory{}); err != nil {
			t.Fatal(err)
		}
		for i := range 64 {
			data, ok := failed.Bytes(i)
			if ok || slices.ContainsFunc(data, func(b byte) bool { return b != 0 }) {
				t.Fatalf("range %d: %v, %v", i, data[:8], ok)
			}
		}
		failed.Free()
	}
}
