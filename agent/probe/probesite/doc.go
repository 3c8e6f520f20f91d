// Package probesite finds places where a probe costs little: in libraries of profiled processes
// (ELF files), and in code that a VM's compiler made (bytes read from memory).
//
//	finder := probesite.New(file, bytes)
//	sites, err := finder.Notes("hotspot", "gc__begin")                 // USDT probes
//	sites, err = finder.Entries("AllocTracer::send_allocation_in_new_tlab")
//	returns, err := finder.AfterCalls(probesite.Calls{Callee: "ObjectMonitor::enter"})
//	enters, err := probesite.MonitorEnters(code, address, 17)          // of one compiled Java method
//
// A uprobe replaces an instruction by a trap. The cost of the trap depends on the instruction. The
// kernel emulates a few (half a microsecond), single-steps all others in another place (ten
// microseconds and more), and refuses some. So everything here is about instructions: where they
// begin, of which kind each is, and what the ones before it do.
//
// Two decoders of x86-64 work together. The package's own (Decode, in encoding.go) finds lengths,
// branch targets and kinds. It knows all instructions up to AVX-512, because one wrong length makes
// everything after it wrong, and it fails rather than guess. But it does not decode operands,
// except those in memory addressed by the stack or frame pointer. Operands come from
// golang.org/x/arch/x86/x86asm (in operands.go), for the few instructions whose registers matter.
// That decoder cannot disassemble code: it lacks VEX and EVEX, and returns the prefixes of unknown
// instructions as instructions of one byte. So its result counts only if both agree on the length,
// and an instruction that only the first one knows may do anything. FuzzDecode compares the two.
//
// Code is x86-64 only; for other machines only USDT notes are read. Files and memory may be
// hostile: the limits in finder.go bound what is read, and each decoder has a fuzz target. Nothing
// here attaches a probe.
package probesite
