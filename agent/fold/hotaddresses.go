package fold

import (
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// HotAddresses counts samples of one process by the address that it was at. Those that are not in its code, by the map,
// are counted in all only.
type HotAddresses struct {
	Samples map[uint64]float64
	All     float64
}

// maxHotAddresses bounds those that are counted of one process.
const maxHotAddresses = 1 << 14

// Add counts a sample with this stack.
func (h *HotAddresses) Add(stack []target.RawFrame, c *target.JITCode) {
	if c == nil {
		return
	}
	h.All++
	for len(stack) > 0 && stack[0].Kind == target.RawKernel {
		stack = stack[1:]
	}
	if len(stack) == 0 || stack[0].Kind != target.RawExact || !c.Holds(stack[0].Frame) {
		return
	}
	if h.Samples == nil {
		h.Samples = map[uint64]float64{}
	}
	pc := stack[0].Frame.PC()
	if _, known := h.Samples[pc]; known || len(h.Samples) < maxHotAddresses {
		h.Samples[pc]++
	}
}

// Fade takes a part of all counts away, and forgets what is hardly there any more.
func (h *HotAddresses) Fade(by float64) {
	const least = 0.1 // of a sample
	h.All *= 1 - by
	for pc := range h.Samples {
		if h.Samples[pc] *= 1 - by; h.Samples[pc] < least {
			delete(h.Samples, pc)
		}
	}
}
