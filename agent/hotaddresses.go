package agent

import (
	"github.com/vmprof-agent/vmprof-agent/agent/target"
)

// hotAddresses counts samples of one process by the address that it was at. Those that are not in its code, by the map,
// are counted in all only.
type hotAddresses struct {
	samples map[uint64]float64
	all     float64
}

// maxHotAddresses bounds those that are counted of one process.
const maxHotAddresses = 1 << 14

// add counts a sample with this stack.
func (h *hotAddresses) add(stack []target.RawFrame, c *target.JITCode) {
	if c == nil {
		return
	}
	h.all++
	for len(stack) > 0 && stack[0].Kind == target.RawKernel {
		stack = stack[1:]
	}
	if len(stack) == 0 || stack[0].Kind != target.RawExact || !c.Holds(stack[0].Frame) {
		return
	}
	if h.samples == nil {
		h.samples = map[uint64]float64{}
	}
	pc := stack[0].Frame.PC()
	if _, known := h.samples[pc]; known || len(h.samples) < maxHotAddresses {
		h.samples[pc]++
	}
}

// fade takes a part of all counts away, and forgets what is hardly there any more.
func (h *hotAddresses) fade(by float64) {
	const least = 0.1 // of a sample
	h.all *= 1 - by
	for pc := range h.samples {
		if h.samples[pc] *= 1 - by; h.samples[pc] < least {
			delete(h.samples, pc)
		}
	}
}
