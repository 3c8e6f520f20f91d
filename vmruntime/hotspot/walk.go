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

// walk visits all blobs that are in use, a chunk at a time; the slice is reused. Blobs that come or go meanwhile are
// found or not; one that is half written is left out, or has a header that does not hold together later on.
func (c *codeCache) walk(s *blobSchema, visit func([]blob) error) error {
	w := walker{codeCache: c, blobs: s, visit: visit}
	for i := range c.heaps {
		if err := w.heap(&c.heaps[i]); err != nil {
			return fmt.Errorf("code heap at %#x: %w", c.heaps[i].Low, err)
		}
	}
	return nil
}

type walker struct {
	*codeCache
	blobs  *blobSchema
	visit  func([]blob) error
	starts []uint64 // addresses of blocks
	found  []blob
	count  int
}

// heap finds the starts of blocks in the segment map.
func (w *walker) heap(h *CodeHeap) error {
	segments := (h.used - h.Low) >> w.shift
	for first := uint64(0); first < segments; first += mapChunk {
		segmap, err := w.bytes(h.Segmap+first, min(mapChunk, segments-first))
		if err != nil {
			return fmt.Errorf("segment map: %w", err)
		}
		for at := 0; ; at++ {
			next := bytes.IndexByte(segmap[at:], segmentStart)
			if next < 0 {
				break
			}
			at += next
			w.starts = append(w.starts, h.Low+(first+uint64(at))<<w.shift)
			if len(w.starts) == walkChunk {
				if err := w.flush(h); err != nil {
					return err
				}
			}
		}
	}
	return w.flush(h)
}

// flush reads the headers of the collected blocks and hands the blobs on.
func (w *walker) flush(h *CodeHeap) error {
	if w.count += len(w.starts); w.count > maxBlobs {
		return fmt.Errorf("more than %d code blobs: %w", maxBlobs, vmruntime.ErrMalformed)
	}
	var b batch
	size := w.schema.blockSize + w.blobs.header
	for _, start := range w.starts {
		b.add(start, min(size, h.used-start))
	}
	if err := b.read(w.mem); err != nil {
		return err
	}
	w.found = w.found[:0]
	for i, start := range w.starts {
		header, ok := b.bytes(i)
		if !ok || w.schema.blockUsed.of(header) == 0 || uint64(len(header)) < w.schema.blockSize+w.blobs.blobHeader {
			continue
		}
		blob, err := w.blobs.decodeBlob(start+w.schema.blockSize, header[w.schema.blockSize:])
		if err == nil {
			w.found = append(w.found, blob)
		}
	}
	w.starts = w.starts[:0]
	if len(w.found) == 0 {
		return nil
	}
	return w.visit(w.found)
}
