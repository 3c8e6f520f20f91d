package codecache

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Values of a segment map. Any other number says how many segments to go back, at most 254, towards
// the start of the block: long blocks take several hops.
const (
	segmentStart = 0
	segmentFree  = 0xff
)

// A Cache is the code cache of one process. Its heaps are as of the last ReadHeaps.
type Cache struct {
	Memory *vmstructs.Reader
	Schema *Schema
	Heaps  []Heap
	Shift  uint8 // log2 of the bytes of a segment
}

// HeapOf returns the heap that addr is in, or nil.
func (c *Cache) HeapOf(addr uint64) *Heap {
	for i := range c.Heaps {
		if h := &c.Heaps[i]; addr >= h.Low && addr < h.High {
			return h
		}
	}
	return nil
}

// Find returns the address of the CodeBlob that addr is in. It returns ErrUnknown if addr is not in
// the code cache, and ErrStale if it is in a part that has no code now.
func (c *Cache) Find(addr uint64) (uint64, error) {
	blob, _, err := c.FindHeader(addr, 0)
	return blob, err
}

// FindHeader is Find, and returns the first n bytes of the blob.
func (c *Cache) FindHeader(addr, n uint64) (blob uint64, header []byte, err error) {
	h := c.HeapOf(addr)
	if h == nil {
		return 0, nil, vmruntime.ErrUnknown
	}
	start, err := c.blockStart(h, (addr-h.Low)>>c.Shift)
	if err != nil {
		return 0, nil, err
	}
	blob = h.Low + start<<c.Shift + c.Schema.BlockSize
	if header, err = c.Header(blob, addr, n); err != nil {
		return 0, nil, err
	}
	return blob, header, nil
}

// Header returns the first n bytes of the blob that FindHeader found for addr. ErrStale says that
// addr is in no blob that begins there now. It is one read, without the segment map: the header of
// a block that was freed says so until something else is written there.
func (c *Cache) Header(blob, addr, n uint64) ([]byte, error) {
	size := c.Schema.BlockSize
	block := blob - size
	both, err := c.Memory.Bytes(block, size+n)
	if err != nil && n > 0 { // what is there may be shorter
		both, err = c.Memory.Bytes(block, size)
	}
	if err != nil {
		return nil, err
	}
	length := c.Schema.blockLength.Read(both)
	if c.Schema.BlockUsed.Read(both) == 0 || length > maxHeapSize>>c.Shift || addr < block ||
		addr-block >= length<<c.Shift {
		return nil, vmruntime.ErrStale
	}
	if uint64(len(both)) < size+n {
		return c.Memory.Bytes(blob, n)
	}
	return both[size:], nil
}

// blockStart follows the segment map from a segment to the first one of its block.
func (c *Cache) blockStart(h *Heap, segment uint64) (uint64, error) {
	// The map is read in windows that end at the segment: one is enough for blocks of up to 130 kB.
	const window = 1024
	const maxWindows = 64
	for range maxWindows {
		low := segment - min(segment, window-1)
		bytes, err := c.Memory.Bytes(h.Segmap+low, segment-low+1)
		if err != nil {
			return 0, err
		}
		for segment >= low {
			hop := uint64(bytes[segment-low])
			if hop == segmentStart {
				return segment, nil
			}
			if hop == segmentFree {
				return 0, vmruntime.ErrStale
			}
			if hop > segment {
				return 0, fmt.Errorf("segment map: %w", vmruntime.ErrMalformed)
			}
			segment -= hop
		}
	}
	return 0, fmt.Errorf("segment map: block of more than %d segments: %w", window*maxWindows, vmruntime.ErrMalformed)
}
