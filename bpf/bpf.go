// Package bpf is what runs in the kernel, and the records it emits.
//
// The C sources stand in rooms, a folder each:
//
//	record     records of the stream, and tables that several objects share: event.h and the headers
//	           that it names define each one once, and the structs here are generated from them. They
//	           include no other room. What one object alone shares with Go is in its own header
//	kernel     what all programs share: the kernel's structs, maps, a CPU's working memory, registers
//	walk       walk.bpf.h is the loop over frames of all kinds. hotspot.bpf.h, interpreter.bpf.h,
//	           stackchunk.bpf.h, cpython.bpf.h and native.bpf.h have one kind each, codeblob.bpf.h what is
//	           known of code
//	sample     ticks: profile.bpf.c, kerneltick.bpf.c (the kernel's own timer), context.bpf.c (both, with
//	           contexts of other modes than ModeWalk), runtime.bpf.c (run time of threads). sample.bpf.h
//	           writes the record, with the whole stack (intern.bpf.h) or less of it (context.bpf.h)
//	event      events at uprobes, all in probe.bpf.c: allocations, pauses, exceptions, write barriers,
//	           values. observe.bpf.h writes the record. fault.bpf.c: those at perf events. codemap.bpf.c:
//	           code that HotSpot announces
//	lock       waits for monitors and java.util.concurrent locks, in probe.bpf.c, too; waits of virtual
//	           threads. monitorenter.bpf.c: acquisitions of free monitors, at hardware breakpoints
//	wait       offcpu.bpf.c: waits of threads, when these go on. waiting.bpf.c: stacks of threads that
//	           still wait
//	call       the call engines: listener.bpf.c (engines listener and hotspot), branch.bpf.c, burst.bpf.c (engine
//	           page), usdt.bpf.c. call/exact: every call of a VM that announces them. call/timing:
//	           timings of invocations and loops; invocation.bpf.c: whole invocations of one method
//
// The programs of NAME.bpf.c are loaded together, as one object. A NAME_test.bpf.c next to it lets
// tests call its parts. Headers that only programs use end in .bpf.h.
//
// The Go files load the objects, and have the exported names that carry the documentation: bpf.go
// the shared maps and the object profile; sample.go, probe.go, offcpu.go, waiting.go and call.go those
// of a room; watch.go those at hardware breakpoints. scratches.go makes room for the working memory
// of CPUs. event.go, frame.go and counter.go read records; frame.go makes unwind tables as well.
// All other files are generated: generate.go lists the objects, and what bpf2go makes of one is in
// NAME_x86_bpfel.{go,o} and NAME_arm64_bpfel.{go,o}.
package bpf

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// Options are what is fixed when the programs are loaded. The zero value samples every process.
type Options struct {
	// FilterByPID makes the kernel side skip ticks of processes that are not in the Pids map.
	FilterByPID bool
	// RingBytes is the size of the event stream's buffer, a power of two; 0 means 4 MiB.
	RingBytes uint32
	// Interrupting gives a ring of the same size to programs of non-maskable interrupts:
	// LoadBranch's, and those of LoadFault for counters of the CPU.
	Interrupting bool
	// Contexts is how much of a user stack samples have.
	Contexts Mode
	// ConfirmLevels is how many frames in a row must be those of the previous sample before
	// ModePartial takes the rest from there; 0 means DefaultConfirmLevels.
	ConfirmLevels uint32
	// LeaveUnknown has ModeChain walk samples of links that are not known only as often as those of
	// others.
	LeaveUnknown bool
	// NoTick leaves out the program Tick, which takes time to verify: the one in its place does
	// nothing.
	NoTick bool
	// SingleProbes has programs of uprobes be for single ones, as they are anyway where the kernel
	// has no uprobe.multi links (before 6.6). A program is for one kind only.
	SingleProbes bool
	// CheckContexts puts the whole stack into each sample, in addition to what the mode of Contexts
	// records.
	CheckContexts bool
}

// DefaultConfirmLevels: frames may be at the same place by chance, and below others
// (docs/measurements/contexts.md, Partial walks).
const DefaultConfirmLevels = 4

// MaxChosen bounds the processes that may be chosen at once, children included: MAX_CHOSEN.
const MaxChosen = 8192

// DefaultRingBytes holds about 20,000 samples: two seconds of two busy CPUs at the highest useful
// rate.
const DefaultRingBytes = 4 << 20

// Objects are the loaded programs and maps. Close gives everything back.
type Objects struct {
	ProfileObjects
	contextMaps
	// CodeMap holds the programs behind the VM's USDT probes.
	CodeMap CodeMapObjects

	opts       Options
	firstSpare uint32     // as the programs have it
	types      *btf.Cache // types of the kernel, which programs are relocated against; nil once ForgetTypes was called
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
	if err := setScratches(spec); err != nil {
		return nil, err
	}
	spec.Maps["tick_counts"].MaxEntries = uint32(cpus)
	spec.Maps["events"].MaxEntries = opts.RingBytes
	if opts.Interrupting {
		spec.Maps["nmi_events"].MaxEntries = opts.RingBytes
	}
	if !opts.Interned() { // maps that the mode does not use take no room
		spec.Maps["known_suffixes"].MaxEntries, spec.Maps["named_threads"].MaxEntries = 1, 1
	}
	err = errors.Join(spec.Variables["filter_by_pid"].Set(opts.FilterByPID), opts.setWakeup(spec))
	if err != nil {
		return nil, fmt.Errorf("set constants: %w", err)
	}
	if opts.NoTick || opts.Contexts != ModeWalk {
		leaveOut(spec, ProfileProgTick)
	}
	o := &Objects{opts: opts, types: btf.NewCache()}
	if err := spec.Variables["first_spare"].Get(&o.firstSpare); err != nil {
		return nil, fmt.Errorf("read constants: %w", err)
	}
	if err := spec.LoadAndAssign(&o.ProfileObjects, o.collection(nil)); err != nil {
		return nil, fmt.Errorf("load profile programs: %w", err)
	}
	err = o.loadCodeMap()
	if err == nil && opts.Contexts != ModeWalk {
		err = o.loadContexts()
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

// ForgetTypes gives back the memory of the kernel's type information, tens of megabytes. Until then
// objects that are loaded beside o share it, afterwards each reads it again.
func (o *Objects) ForgetTypes() {
	o.types = nil
	debug.FreeOSMemory()
}

// collection are the options to load an object with these maps shared.
func (o *Objects) collection(shared map[string]*ebpf.Map) *ebpf.CollectionOptions {
	return &ebpf.CollectionOptions{MapReplacements: shared, Cache: o.types}
}

// leaveOut puts programs that do nothing in place of those.
func leaveOut(spec *ebpf.CollectionSpec, names ...string) {
	for _, name := range names {
		spec.Programs[name].Instructions = asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
	}
}

// setWakeup has programs that sample wake the reader when the ring is half full.
func (o *Options) setWakeup(spec *ebpf.CollectionSpec) error {
	return spec.Variables["wakeup_bytes"].Set(o.RingBytes / 2)
}

// Interned reports whether samples may refer to earlier ones for their outermost frames: see
// Objects.Reseed.
func (o *Options) Interned() bool { return o.Contexts == ModeWalk }

// sampling are the maps that only programs that sample have.
func (o *Objects) sampling() map[string]*ebpf.Map {
	return map[string]*ebpf.Map{
		"tick_counts": o.TickCounts, "scratches": o.Scratches, "context_states": o.ContextStates,
		"kept_stacks": o.KeptStacks, "known_links": o.KnownLinks, "chain_rates": o.ChainRates,
		"known_suffixes": o.KnownSuffixes, "named_threads": o.NamedThreads, "suffix_seed": o.SuffixSeed,
	}
}

func (o *Objects) loadCodeMap() error {
	spec, err := LoadCodeMap()
	if err != nil {
		return fmt.Errorf("read code-map object: %w", err)
	}
	if err := o.LoadBeside(spec, &o.CodeMap); err != nil {
		return fmt.Errorf("load code-map programs: %w", err)
	}
	return nil
}

// LoadBeside loads another object, with the maps that it has in common with o shared, into a struct
// as ebpf.CollectionSpec.LoadAndAssign takes it. The caller closes it before o.
func (o *Objects) LoadBeside(spec *ebpf.CollectionSpec, to any) error {
	return o.loadBeside(spec, to, nil)
}

// loadBeside is LoadBeside with more maps to share, except those that are nil.
func (o *Objects) loadBeside(spec *ebpf.CollectionSpec, to any, more map[string]*ebpf.Map) error {
	shared := map[string]*ebpf.Map{}
	for name, m := range more {
		if s := spec.Maps[name]; s != nil && m != nil {
			s.MaxEntries = m.MaxEntries()
			shared[name] = m
		}
	}
	for name, m := range map[string]*ebpf.Map{
		"events": o.Events, "nmi_events": o.NmiEvents, "counters": o.Counters, "processes": o.Processes,
		"epochs": o.Epochs, "pids": o.Pids,
		"ended_pids": o.EndedPids, "seen_methods": o.SeenMethods, "known_threads": o.KnownThreads,
		"unwound": o.Unwound, "unwind_tables": o.UnwindTables, "unwind_wanted": o.UnwindWanted,
	} {
		if s := spec.Maps[name]; s != nil && m != nil { // tests leave maps out
			s.MaxEntries = m.MaxEntries()
			shared[name] = m
		}
	}
	if shared["scratches"] != nil {
		if err := setFirstSpare(spec, o.firstSpare); err != nil {
			return err
		}
	}
	setPageRings(spec)
	if !o.opts.SingleProbes && features.HaveBPFLinkUprobeMulti() == nil {
		useMulti(spec)
	}
	if v := spec.Variables["filter_by_pid"]; v != nil {
		if err := v.Set(o.opts.FilterByPID); err != nil {
			return fmt.Errorf("set constants: %w", err)
		}
	}
	return spec.LoadAndAssign(to, o.collection(shared))
}

// useMulti has programs of uprobes be for uprobe.multi links.
func useMulti(spec *ebpf.CollectionSpec) {
	for _, p := range spec.Programs {
		if p.Type == ebpf.Kprobe {
			p.AttachType = ebpf.AttachTraceUprobeMulti
		}
	}
}

// Reseed has samples refer to earlier ones, but to none from before: nothing that was sent is taken
// to be known. With a seed of 0 no sample refers to another one, as before the first call. Records
// that programs are about to write may still have the last seed.
func (o *Objects) Reseed(seed uint64) error {
	if err := o.SuffixSeed.Put(uint32(0), seed); err != nil {
		return fmt.Errorf("set seed of suffixes: %w", err)
	}
	return nil
}

// ForgetSuffix has the frames that a sample referred to sent again.
func (o *Objects) ForgetSuffix(tag uint64) error {
	slot := uint32(tag>>ProfileSuffixTagsSUFFIX_SLOT_SHIFT) % o.KnownSuffixes.MaxEntries()
	if err := o.KnownSuffixes.Put(slot, ProfileKnownSet{}); err != nil {
		return fmt.Errorf("forget a suffix: %w", err)
	}
	return nil
}

// ForgetThread has the name of a thread sent again.
func (o *Objects) ForgetThread(tid uint32) error {
	if err := o.NamedThreads.Put(tid%o.NamedThreads.MaxEntries(), uint64(0)); err != nil {
		return fmt.Errorf("forget the name of a thread: %w", err)
	}
	return nil
}

// Close detaches nothing (links do that) and frees programs and maps.
func (o *Objects) Close() error {
	return errors.Join(o.CodeMap.Close(), o.contextMaps.Close(), o.ProfileObjects.Close())
}
