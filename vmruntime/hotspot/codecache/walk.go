package codecache

import (
	"bytes"
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// Bounds on one walk.
const (
	maxBlobs  = 1_000_000
	walkChunk = 2048    // blobs that are read together: some 700 kB of headers
	mapChunk  = 1 << 20 // bytes of a segment map that are read together
)

// Walk visits all blobs that are in use, a chunk at a time. Blobs that come or go meanwhile may be
// missed. A blob that is half written is left out, or its header is found to be inconsistent later.
func (c *Cache) Walk(s *BlobSchema, visit func([]Blob) error) error {
	count := 0
	for i := range c.Heaps {
		h := &c.Heaps[i]
		err := c.eachChunk(h, func(blocks []uint64) error {
			if count += len(blocks); count > maxBlobs {
				return fmt.Errorf("more than %d code blobs: %w", maxBlobs, vmruntime.ErrMalformed)
			}
			found, err := c.ReadBlobs(s, blocks)
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
func (c *Cache) eachChunk(h *Heap, visit func(blocks []uint64) error) error {
	blocks := make([]uint64, 0, walkChunk)
	segments := (h.used - h.Low) >> c.Shift
	for first := uint64(0); first < segments; first += mapChunk {
		segmap, err := c.Memory.Bytes(h.Segmap+first, min(mapChunk, segments-first))
		if err != nil {
			return fmt.Errorf("segment map: %w", err)
		}
		for at := 0; ; at++ {
			next := bytes.IndexByte(segmap[at:], segmentStart)
			if next < 0 {
				break
			}
			at += next
			blocks = append(blocks, h.Low+(first+uint64(at))<<c.Shift)
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

// ReadBlobs reads the headers of the blobs in these blocks, as many as a chunk has at most. Those
// that are free or malformed are left out.
func (c *Cache) ReadBlobs(s *BlobSchema, blocks []uint64) ([]Blob, error) {
	var b vmstructs.Batch
	for _, block := range blocks {
		size := c.Schema.BlockSize + s.Header
		if h := c.HeapOf(block); h != nil && h.used > block {
			size = min(size, h.used-block) // a stub is shorter than an nmethod, and may be the last one
		}
		b.Add(block, size)
	}
	if err := b.Read(c.Memory.Mem); err != nil {
		return nil, err
	}
	found := make([]Blob, 0, len(blocks))
	for i, block := range blocks {
		object, ok := b.Bytes(i)
		if !ok || c.Schema.BlockUsed.Read(object) == 0 || uint64(len(object)) < c.Schema.BlockSize+s.BlobHeader {
			continue
		}
		if blob, err := s.Decode(block+c.Schema.BlockSize, object[c.Schema.BlockSize:]); err == nil {
			found = append(found, blob)
		}
	}
	return found, nil
}
