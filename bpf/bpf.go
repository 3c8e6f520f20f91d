// Package bpf is what runs in the kernel, and the records it emits. event.h defines every record, once; the structs
// here are generated from it. The exported names in this file carry the documentation.
package bpf

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/cilium/ebpf"
)

// Options are what is fixed when the programs are loaded. The zero value samples every process.
type Options struct {
	// FilterByPID makes the kernel side skip ticks of processes that are not in the Pids map.
	FilterByPID bool
	// RingBytes is the size of the event stream's buffer, a power of two; 0 means 4 MiB.
	RingBytes uint32
	// NoKernelStacks leaves out kernel frames.
	NoKernelStacks bool
}

// DefaultRingBytes holds about 20,000 samples: two seconds of two busy CPUs at the highest useful rate.
const DefaultRingBytes = 4 << 20

// Objects are the loaded programs and maps. Close gives everything back.
type Objects struct {
	ProfileObjects
	// CodeMap holds the programs behind the VM's USDT probes, each twice: *Multi for uprobe.multi links (kernel
	// 6.6 and later), *Single for the others.
	CodeMap CodeMapObjects
}

// Load loads all programs into the kernel. A verifier's refusal is an *ebpf.VerifierError.
func Load(opts Options) (*Objects, error) {
	if opts.RingBytes == 0 {
		opts.RingBytes = DefaultRingBytes
	}
	spec, err := LoadProfile()
	if err != nil {
		return nil, fmt.Errorf("read profile object: %w", err)
	}
	cpus, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("count CPUs: %w", err)
	}
	spec.Maps["scratches"].MaxEntries = uint32(cpus)
	spec.Maps["events"].MaxEntries = opts.RingBytes
	err = errors.Join(
		spec.Variables["filter_by_pid"].Set(opts.FilterByPID),
		spec.Variables["kernel_stacks"].Set(!opts.NoKernelStacks),
		spec.Variables["wakeup_bytes"].Set(opts.RingBytes/2),
	)
	if err != nil {
		return nil, fmt.Errorf("set constants: %w", err)
	}
	o := &Objects{}
	if err := spec.LoadAndAssign(&o.ProfileObjects, nil); err != nil {
		return nil, fmt.Errorf("load profile programs: %w", err)
	}
	if err := o.loadCodeMap(opts); err != nil {
		o.ProfileObjects.Close()
		return nil, err
	}
	debug.FreeOSMemory() // the kernel's type information was needed once, and is tens of megabytes
	return o, nil
}

func (o *Objects) loadCodeMap(opts Options) error {
	spec, err := LoadCodeMap()
	if err != nil {
		return fmt.Errorf("read code-map object: %w", err)
	}
	if err := spec.Variables["filter_by_pid"].Set(opts.FilterByPID); err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	spec.Maps["events"].MaxEntries = opts.RingBytes
	shared := map[string]*ebpf.Map{
		"events": o.Events, "counters": o.Counters, "processes": o.Processes, "epochs": o.Epochs, "pids": o.Pids,
	}
	if err := spec.LoadAndAssign(&o.CodeMap, &ebpf.CollectionOptions{MapReplacements: shared}); err != nil {
		return fmt.Errorf("load code-map programs: %w", err)
	}
	return nil
}

// Close detaches nothing (links do that) and frees programs and maps.
func (o *Objects) Close() error {
	return errors.Join(o.CodeMap.Close(), o.ProfileObjects.Close())
}
