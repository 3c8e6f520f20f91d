package bpf

import (
	"errors"
	"fmt"
	"math"

	"github.com/cilium/ebpf"
)

// A TickHook is where a program follows the kernel's own tick.
type TickHook int

// Hooks. Kernels that forbid the first, or cannot trace functions on this architecture, may still
// have the second.
const (
	ChargeTick TickHook = iota // the function update_process_times, which charges a tick to the current task
	ExpireTick                 // the tracepoint hrtimer_expire_entry, of the tick's timer
)

func (h TickHook) String() string {
	return [...]string{ChargeTick: "update_process_times", ExpireTick: "hrtimer_expire_entry"}[h]
}

// KernelTickOptions are what is fixed when the program of the kernel's own tick is loaded.
type KernelTickOptions struct {
	Hook TickHook
	// Function is the address of the kernel's function for the tick's timer, which ExpireTick
	// needs.
	Function uint64
	// Share is the share of ticks that become samples: above 0, at most 1. They are drawn at
	// random, and n ticks of a CPU have n*Share samples, ±1.
	Share float64
	// Entries are where the CPU enters the kernel at a timer interrupt, at most MaxTickEntries.
	// Kernel frames up to there are the interrupt's and are left out.
	Entries []CodeRange
	// OtherClock are CPUs that do not sample by this tick.
	OtherClock []int
}

// A CodeRange is where a function of the kernel is.
type CodeRange struct{ Start, End uint64 }

// MaxTickEntries is MAX_ENTRIES of kerneltick.bpf.h.
const MaxTickEntries = 8

// A KernelTick samples when the kernel's own timer ticks, without a timer interrupt of its own.
// Samples are like those of Objects.Tick.
type KernelTick struct {
	Program                 *ebpf.Program // program to be attached as a tracing program
	sampling, ticked, share *ebpf.Variable
}

// LoadKernelTick loads the program, with the maps that it shares with o. It samples once it is
// attached and Sample(true) was called.
func (o *Objects) LoadKernelTick(opts KernelTickOptions) (*KernelTick, error) {
	spec, err := o.kernelTickSpec()
	if err != nil {
		return nil, err
	}
	var entries [2 * MaxTickEntries]uint64
	if len(opts.Entries) > MaxTickEntries {
		return nil, fmt.Errorf("%d entries of timer interrupts, at most %d", len(opts.Entries), MaxTickEntries)
	}
	for i, e := range opts.Entries {
		entries[2*i], entries[2*i+1] = e.Start, e.End
	}
	var other [128]uint64 // MAX_CPUS of kerneltick.bpf.h, in bits
	for _, cpu := range opts.OtherClock {
		if cpu < 0 || cpu/64 >= len(other) {
			return nil, fmt.Errorf("cpu %d: at most %d are supported", cpu, 64*len(other))
		}
		other[cpu/64] |= 1 << (cpu % 64)
	}
	err = errors.Join(
		spec.Variables["sampled_share"].Set(shareOf(opts.Share)),
		spec.Variables["interrupt_entries"].Set(entries),
		spec.Variables["other_clock"].Set(other),
		spec.Variables["tick_function"].Set(opts.Function),
	)
	if err != nil {
		return nil, fmt.Errorf("set constants: %w", err)
	}
	// What is not assigned is not loaded.
	var charge struct {
		Program  *ebpf.Program  `ebpf:"charge_tick"`
		Sampling *ebpf.Variable `ebpf:"sampling"`
		Ticked   *ebpf.Variable `ebpf:"ticked"`
		Share    *ebpf.Variable `ebpf:"sampled_share"`
	}
	var expire struct {
		Program  *ebpf.Program  `ebpf:"expire_tick"`
		Sampling *ebpf.Variable `ebpf:"sampling"`
		Ticked   *ebpf.Variable `ebpf:"ticked"`
		Share    *ebpf.Variable `ebpf:"sampled_share"`
	}
	k := new(KernelTick)
	if opts.Hook == ChargeTick {
		err = o.loadBeside(spec, &charge, o.sampling())
		k.Program, k.sampling, k.ticked, k.share = charge.Program, charge.Sampling, charge.Ticked, charge.Share
	} else {
		err = o.loadBeside(spec, &expire, o.sampling())
		k.Program, k.sampling, k.ticked, k.share = expire.Program, expire.Sampling, expire.Ticked, expire.Share
	}
	if err != nil {
		return nil, fmt.Errorf("load program of %v: %w", opts.Hook, err)
	}
	return k, nil
}

// kernelTickSpec is the object that has the program for the mode of contexts.
func (o *Objects) kernelTickSpec() (*ebpf.CollectionSpec, error) {
	if o.opts.Contexts != ModeWalk {
		return o.contextSpec()
	}
	spec, err := LoadKernelTick()
	if err != nil {
		return nil, fmt.Errorf("read kernel-tick object: %w", err)
	}
	return spec, o.opts.setWakeup(spec)
}

// Sample turns sampling on or off.
func (k *KernelTick) Sample(on bool) error { return k.sampling.Set(on) }

// SetShare changes the share of ticks that become samples: see KernelTickOptions.Share.
func (k *KernelTick) SetShare(share float64) error { return k.share.Set(shareOf(share)) }

// shareOf is a share as the program has it, in 1/2^32.
func shareOf(share float64) uint64 { return uint64(math.Round(min(max(share, 0), 1) * (1 << 32))) }

// Ticked reports whether a tick came since the program was attached.
func (k *KernelTick) Ticked() (ticked bool, err error) {
	err = k.ticked.Get(&ticked)
	return ticked, err
}

// Close frees the program. Links to it must be closed.
func (k *KernelTick) Close() error { return k.Program.Close() }
