package hotspot

import (
	"bytes"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds on one walk.
const (
	maxBlobs  = 1_000_000
	walkChunk = 2048    // blobs that are read together: some 700 kB of headers
	mapChunk  = 1 << 20 // bytes of a segment map that are read together
)

// walk visits all blobs that are in use, a chunk at a time; Blobs that come or go meanwhile are
// found or not; one that is half written is left out, or has a header that does not hold together later on.
func (c *codeCache) walk(s *blobSchema, visit func([]blob) error) error {
	count := 0
	for i := range c.heaps {
		h := &c.heaps[i]
		err := c.eachChunk(h, func(blocks []uint64) error {
			if count += len(blocks); count > maxBlobs {
				return fmt.Errorf("more than %d code blobs: %w", maxBlobs, vmruntime.ErrMalformed)
			}
			found, err := c.readBlobs(s, blocks)
			if err != nil || len(found) == 0 {
				return err
			}
			return visit(found)
		})
		if err != nil {
			return fmt.Errorf("code heap at %#x: %w", h.Low, err)
		}
	}
	return nil
}

// eachChunk finds the blocks of a heap in its segment map. The slice is reused.
func (c *codeCache) eachChunk(h *CodeHeap, visit func(blocks []uint64) error) error {
	blocks := make([]uint64, 0, walkChunk)
	segments := (h.used - h.Low) >> c.shift
	for first := uint64(0); first < segments; first += mapChunk {
		segmap, err := c.memory.bytes(h.Segmap+first, min(mapChunk, segments-first))
		if err != nil {
			return fmt.Errorf("segment map: %w", err)
		}
		for at := 0; ; at++ {
			next := bytes.IndexByte(segmap[at:], segmentStart)
			if next < 0 {
				break
			}
			at += next
			blocks = append(blocks, h.Low+(first+uint64(at))<<c.shift)
			if len(blocks) == walkChunk {
				if err := visit(blocks); err != nil {
					return err
				}
				blocks = blocks[:0]
			}
		}
	}
	return visit(blocks)
}

// readBlobs reads the headers of the blobs in these blocks, as many as a chunk has at most. Those that are free or
// malformed are left out.
func (c *codeCache) readBlobs(s *blobSchema, blocks []uint64) ([]blob, error) {
	var b batch
	for _, block := range blocks {
		size := c.schema.blockSize + s.header
		if h := c.heapOf(block); h != nil && h.used > block {
			size = min(size, h.used-block) // a stub is shorter than an nmethod, and may be the last one
		}
		b.add(block, size)
	}
	if err := b.read(c.memory.mem); err != nil {
		return nil, err
	}
	found := make([]blob, 0, len(blocks))
	for i, block := range blocks {
		object, ok := b.bytes(i)
		if !ok || c.schema.blockUsed.of(object) == 0 || uint64(len(object)) < c.schema.blockSize+s.blobHeader {
			continue
		}
		if blob, err := s.decodeBlob(block+c.schema.blockSize, object[c.schema.blockSize:]); err == nil {
			found = append(found, blob)
		}
	}
	return found, nil
}
