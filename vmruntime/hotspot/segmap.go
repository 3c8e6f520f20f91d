package hotspot

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Values of a segment map. Any other number says how many segments to go back, at most 254, towards the start of the
// block: long blocks take several hops.
const (
	segmentStart = 0
	segmentFree  = 0xff
)

// A codeCache is where the guest keeps code.
type codeCache struct {
	memory *target
	schema *cacheSchema
	heaps  []CodeHeap
	shift  uint8 // log2 of the bytes of a segment
}

// heapOf returns the heap that addr is in, or nil.
func (c *codeCache) heapOf(addr uint64) *CodeHeap {
	for i := range c.heaps {
		if h := &c.heaps[i]; addr >= h.Low && addr < h.High {
			return h
		}
	}
	return nil
}

// find returns the address of the CodeBlob that addr is in. ErrUnknown: addr is not in the code cache. ErrStale: it is
// in a part that holds nothing now.
func (c *codeCache) find(addr uint64) (uint64, error) {
	h := c.heapOf(addr)
	if h == nil {
		return 0, vmruntime.ErrUnknown
	}
	start, err := c.blockStart(h, (addr-h.Low)>>c.shift)
	if err != nil {
		return 0, err
	}
	block := h.Low + start<<c.shift
	header, err := c.memory.bytes(block, c.schema.blockSize)
	if err != nil {
		return 0, err
	}
	length := c.schema.blockLength.of(header)
	if c.schema.blockUsed.of(header) == 0 || length > maxHeapSize>>c.shift || addr-block >= length<<c.shift {
		return 0, vmruntime.ErrStale
	}
	return block + c.schema.blockSize, nil
}

// blockStart follows the segment map from a segment to the first one of its block.
func (c *codeCache) blockStart(h *CodeHeap, segment uint64) (uint64, error) {
	// The map is read in windows that end at the segment: one is enough for blocks of up to 130 kB.
	const window = 1024
	const maxWindows = 64
	for range maxWindows {
		low := segment - min(segment, window-1)
		bytes, err := c.memory.bytes(h.Segmap+low, segment-low+1)
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
