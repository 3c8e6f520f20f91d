//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is memory of this process that plays memory of the guest. It lies outside Go's heap, so
// addresses stay, and the kernel finds every page present. Nothing is mapped within guard bytes of
// it: no region seems part of a stack.
type region struct {
	mem  []byte
	base uint64
}

const guard = 2 << 20

func newRegion(t testing.TB, size int) region {
	t.Helper()
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*guard, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatalf("map guest memory: %v", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	mem := all[guard : guard+size : guard+size]
	if err := unix.Mprotect(mem, unix.PROT_READ|unix.PROT_WRITE); err != nil {
		t.Fatalf("map guest memory: %v", err)
	}
	for i := 0; i < size; i += page {
		mem[i] = 0 // a page that nobody wrote is not there for the kernel
	}
	return region{mem, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))}
}

func (r region) end() uint64                 { return r.base + uint64(len(r.mem)) }
func (r region) at(addr uint64) []byte       { return r.mem[addr-r.base:] }
func (r region) put(addr uint64, b []byte)   { copy(r.at(addr), b) }
func (r region) put16(addr uint64, v uint16) { binary.NativeEndian.PutUint16(r.at(addr), v) }
func (r region) put32(addr uint64, v uint32) { binary.NativeEndian.PutUint32(r.at(addr), v) }
func (r region) put64(addr uint64, v uint64) { binary.NativeEndian.PutUint64(r.at(addr), v) }
func (r region) word(addr uint64) uint64     { return binary.NativeEndian.Uint64(r.at(addr)) }
func (r region) int(addr uint64) uint32      { return binary.NativeEndian.Uint32(r.at(addr)) }
