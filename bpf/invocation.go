package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Types of the object of invocations. Layouts and units: invocation.bpf.h.
type (
	Followed         = InvocationFollowed
	OpenInvocation   = InvocationOpenInvocation
	InvocationCounts = InvocationInvocationCounts
	Invocation       = InvocationInvocation
)

// How an invocation ended.
const (
	InvocationReturned = uint8(InvocationInvocationEndINVOCATION_RETURNED)
	InvocationUnwound  = uint8(InvocationInvocationEndINVOCATION_UNWOUND)
)

// FollowedAddresses bounds the code of a process: FOLLOWED_ADDRESSES.
const FollowedAddresses = 4

// Invocations are the program behind breakpoints that watch whole invocations, and its maps.
// Records go to the event stream.
type Invocations struct {
	Breakpoint *ebpf.Program  `ebpf:"invocation_breakpoint"`
	Code       *ebpf.Map      `ebpf:"followed_code"`    // Followed by pid
	Sums       *ebpf.Map      `ebpf:"invocation_sums"`  // InvocationCounts by pid
	Threads    *ebpf.Map      `ebpf:"open_invocations"` // OpenInvocation by tid
	Least      *ebpf.Variable `ebpf:"least_length"`     // ns: shorter invocations have no record
}

// LoadInvocations loads the program next to o. Close comes before that of o. Waits, if they are not
// nil and have OffCPUOptions.Inside, know which threads are in an invocation.
func (o *Objects) LoadInvocations(waits *OffCPU) (*Invocations, error) {
	spec, err := LoadInvocation()
	if err != nil {
		return nil, fmt.Errorf("read object of invocations: %w", err)
	}
	var shared map[string]*ebpf.Map
	if waits != nil {
		shared = map[string]*ebpf.Map{"open_invocations": waits.objects.OpenInvocations}
	}
	var i Invocations
	if err := o.loadBeside(spec, &i, shared); err != nil {
		return nil, fmt.Errorf("load program of invocations: %w", err)
	}
	return &i, nil
}

// Close frees the program and its maps.
func (i *Invocations) Close() error {
	return errors.Join(i.Breakpoint.Close(), i.Code.Close(), i.Sums.Close(), i.Threads.Close())
}

// DecodeInvocation decodes raw without copying.
func DecodeInvocation(raw []byte) (*Invocation, error) {
	if uintptr(len(raw)) < unsafe.Sizeof(Invocation{}) {
		return nil, fmt.Errorf("invocation of %d bytes: %w", len(raw), ErrMalformed)
	}
	return (*Invocation)(unsafe.Pointer(unsafe.SliceData(aligned(raw)))), nil
}
