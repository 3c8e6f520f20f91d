package bpf

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
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

// contextMaps are those of the object of modes other than ModeWalk (context.bpf.c): nil in that one.
type contextMaps struct {
	ChainRates    *ebpf.Map `ebpf:"chain_rates"` // by HotspotProcess.Slot, MaxAttached for processes without a VM
	ContextStates *ebpf.Map `ebpf:"context_states"`
	KeptStacks    *ebpf.Map `ebpf:"kept_stacks"`
	KnownLinks    *ebpf.Map `ebpf:"known_links"`
}

// Close frees the maps.
func (m *contextMaps) Close() error {
	return errors.Join(m.ChainRates.Close(), m.ContextStates.Close(), m.KeptStacks.Close(), m.KnownLinks.Close())
}

// loadContexts puts the program of the mode in place of Tick.
func (o *Objects) loadContexts() error {
	spec, err := o.contextSpec()
	if err != nil {
		return err
	}
	if o.opts.NoTick {
		leaveOut(spec, ContextProgTick)
	}
	var mode struct {
		contextMaps
		Tick *ebpf.Program `ebpf:"tick"`
	}
	if err := o.loadBeside(spec, &mode, o.sampling()); err != nil {
		return fmt.Errorf("load program of contexts: %w", err)
	}
	o.contextMaps = mode.contextMaps
	err = o.Tick.Close()
	o.Tick = mode.Tick
	return err
}

// contextSpec is the object of the mode, with its constants.
func (o *Objects) contextSpec() (*ebpf.CollectionSpec, error) {
	spec, err := LoadContext()
	if err != nil {
		return nil, fmt.Errorf("read context object: %w", err)
	}
	spec.Maps["context_states"].MaxEntries = o.Scratches.MaxEntries()
	return spec, o.opts.setContexts(spec)
}

// setContexts sets the mode. Maps that it does not use take no room.
func (o *Options) setContexts(spec *ebpf.CollectionSpec) error {
	if o.Contexts != ModePartial {
		spec.Maps["kept_stacks"].MaxEntries = 1
	}
	if o.Contexts != ModeChain {
		spec.Maps["known_links"].MaxEntries = 1
	}
	err := errors.Join(
		spec.Variables["contexts"].Set(uint8(o.Contexts)),
		spec.Variables["confirm_levels"].Set(cmp.Or(o.ConfirmLevels, DefaultConfirmLevels)),
		spec.Variables["walk_unknown"].Set(!o.LeaveUnknown),
		spec.Variables["check_contexts"].Set(o.CheckContexts),
		o.setWakeup(spec),
	)
	if err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	return nil
}

// SetSteady says of a link, by the tag that a sample had, whether it suffices from now on
// (ModeChain): if not, its samples are walked, each of them.
func (m *contextMaps) SetSteady(tag uint64, steady bool) error {
	tag &^= LinkSteady
	if steady {
		tag |= LinkSteady
	}
	slot := uint32(tag>>ContextLinkTagsLINK_SLOT_SHIFT) % m.KnownLinks.MaxEntries()
	if err := m.KnownLinks.Put(slot, tag); err != nil {
		return fmt.Errorf("set whether a link is steady: %w", err)
	}
	return nil
}

// A ThreadRun is how long a thread has run. Layout and units: runtime.h.
type ThreadRun = RunTimeThreadRun

// A ThreadEnd is the record of a thread that has ended. Layout and units: runtime.h.
type ThreadEnd = RunTimeThreadEnd

// RunTimes read how long threads have run, as the scheduler counts it.
type RunTimes struct {
	objects struct {
		RunTimeMaps
		Each     *ebpf.Program  `ebpf:"each_run_time"`
		Ends     *ebpf.Program  `ebpf:"thread_ends"`
		Switches *ebpf.Program  `ebpf:"thread_switches"`
		Timers   *ebpf.Program  `ebpf:"timer_starts"`
		Ended    *ebpf.Variable `ebpf:"threads_ended"`
		Recorded *ebpf.Variable `ebpf:"threads_recorded"`
	}
	ends  []link.Link
	tasks *link.Iter
}

// LoadRunTimes loads the programs next to o, and attaches them: from then on each thread that ends
// has a record (EventThreadEnd). Close comes before that of o.
func (o *Objects) LoadRunTimes() (*RunTimes, error) {
	spec, err := LoadRunTime()
	if err != nil {
		return nil, fmt.Errorf("read object of run times: %w", err)
	}
	r := &RunTimes{}
	if err := o.LoadBeside(spec, &r.objects); err != nil {
		return nil, fmt.Errorf("load programs of run times: %w", err)
	}
	for _, p := range []*ebpf.Program{r.objects.Timers, r.objects.Switches, r.objects.Ends} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return nil, errors.Join(fmt.Errorf("follow threads: %w", err), r.Close())
		}
		r.ends = append(r.ends, l)
	}
	if r.tasks, err = link.AttachIter(link.IterOptions{Program: r.objects.Each}); err != nil {
		return nil, errors.Join(fmt.Errorf("read run times: %w", err), r.Close())
	}
	return r, nil
}

// All returns how long each thread of the chosen processes has run so far.
func (r *RunTimes) All() (threads []ThreadRun, err error) {
	tasks, err := r.tasks.Open()
	if err != nil {
		return nil, fmt.Errorf("read run times: %w", err)
	}
	defer tasks.Close()
	var one ThreadRun
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&one)), unsafe.Sizeof(one))
	for from := bufio.NewReaderSize(tasks, 1<<16); ; {
		switch _, err := io.ReadFull(from, raw); {
		case errors.Is(err, io.EOF):
			return threads, nil
		case err != nil:
			return nil, fmt.Errorf("read run times: %w", err)
		}
		threads = append(threads, one)
	}
}

// Ended is how many threads of chosen processes have begun to end, and how many of these have a
// record: those that will not run again.
func (r *RunTimes) Ended() (ended, recorded uint64, err error) {
	if err := errors.Join(r.objects.Recorded.Get(&recorded), r.objects.Ended.Get(&ended)); err != nil {
		return 0, 0, fmt.Errorf("read how many threads have ended: %w", err)
	}
	return ended, recorded, nil
}

// Maps returns the generated struct of the maps.
func (r *RunTimes) Maps() any { return r.objects.RunTimeMaps }

// Close detaches and frees the programs.
func (r *RunTimes) Close() error {
	var errs []error
	for _, l := range r.ends {
		errs = append(errs, l.Close())
	}
	if r.tasks != nil {
		errs = append(errs, r.tasks.Close())
	}
	return errors.Join(append(errs, r.objects.Each.Close(), r.objects.Ends.Close(), r.objects.Switches.Close(),
		r.objects.Timers.Close(), r.objects.RunTimeMaps.Close())...)
}
