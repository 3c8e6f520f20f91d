package hitcost

import (
	"fmt"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
)

// loopStepped and the others run n times over one instruction of a kind; n is at least 1. The Go
// scheduler cannot preempt them.
func loopStepped(n uint64)
func loopNop(n uint64)
func loopNop5(n uint64)
func loopLongNop(n uint64)
func loopPush(n uint64)
func loopJump(n uint64)
func loopCondJump(n uint64)
func loopCall(n uint64)

// addresses stores the code addresses of the loops, in the order of loops.
func addresses(to *[8]unsafe.Pointer)

//lint:ignore U1000 loopCall calls it, in assembly
func callee()

var loops = [8]struct {
	kind probesite.Kind
	run  func(n uint64)
}{
	{probesite.Stepped, loopStepped},
	{probesite.Nop, loopNop},
	{probesite.Nop5, loopNop5},
	{probesite.LongNop, loopLongNop},
	{probesite.Push, loopPush},
	{probesite.Jump, loopJump},
	{probesite.CondJump, loopCondJump},
	{probesite.Call, loopCall},
}

// loopOf returns the loop of a kind, and the address of its instruction in this process.
func loopOf(k probesite.Kind) (run func(n uint64), addr uint64, err error) {
	var at [8]unsafe.Pointer
	addresses(&at)
	for i, l := range loops {
		if l.kind != k {
			continue
		}
		const longest = 32 // bytes: the load of the count, the instruction, the end of the loop
		code := unsafe.Slice((*byte)(at[i]), longest)
		load, err := probesite.Decode(code)
		if err != nil {
			return nil, 0, fmt.Errorf("loop of %v: %w", k, err)
		}
		probed, err := probesite.Decode(code[load.Len:])
		if err != nil || probed.Kind != k {
			return nil, 0, fmt.Errorf("loop of %v has a %v instead", k, probed.Kind)
		}
		return l.run, uint64(uintptr(at[i])) + uint64(load.Len), nil
	}
	return nil, 0, fmt.Errorf("%v: %w", k, ErrKind)
}
