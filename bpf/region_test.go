//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A region is memory of this process that plays memory of the guest. Nothing is mapped right before and right
// behind it, and it lies outside Go's heap: addresses stay, and the kernel finds every page present.
type region struct {
	mem  []byte
	base uint64
}

func newRegion(t testing.TB, size int) region {
	t.Helper()
	page := unix.Getpagesize()
	size = (size + page - 1) / page * page
	all, err := unix.Mmap(-1, 0, size+2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		t.Fatalf("map guest memory: %v", err)
	}
	t.Cleanup(func() { _ = unix.Munmap(all) })
	for _, guard := range [][]byte{all[:page], all[page+size:]} {
		if err := unix.Mprotect(guard, unix.PROT_NONE); err != nil {
			t.Fatalf("protect guard page: %v", err)
		}
	}
	mem := all[page : page+size : page+size]
	return region{mem, uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))}
}

func (r region) end() uint64                  { return r.base + uint64(len(r.mem)) }
func (r region) at(addr uint64) []byte        { return r.mem[addr-r.base:] }
func (r region) put(addr uint64, b []byte)    { copy(r.at(addr), b) }
func (r region) put16(addr uint64, v uint16)  { binary.NativeEndian.PutUint16(r.at(addr), v) }
func (r region) put32(addr uint64, v uint32)  { binary.NativeEndian.PutUint32(r.at(addr), v) }
func (r region) put64(addr uint64, v uint64)  { binary.NativeEndian.PutUint64(r.at(addr), v) }
func (r region) word(addr uint64) uint64      { return binary.NativeEndian.Uint64(r.at(addr)) }
func (r region) contains(addr, n uint64) bool { return addr >= r.base && addr+n <= r.end() }
