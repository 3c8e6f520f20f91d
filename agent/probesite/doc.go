// Package probesite finds places where a probe costs little: in libraries of guests (ELF files), and in code that a
// guest's compiler made (bytes that were read from memory).
//
//	finder := probesite.New(file, bytes)
//	sites, err := finder.Notes("hotspot", "gc__begin")                 // USDT probes
//	sites, err = finder.Entries("AllocTracer::send_allocation_in_new_tlab")
//	returns, err := finder.AfterCalls(probesite.Calls{Callee: "ObjectMonitor::enter"})
//	enters, err := probesite.MonitorEnters(code, address, 17)          // of one compiled Java method
//
// A uprobe replaces an instruction by a trap. What the trap costs depends on the instruction: a few the kernel emulates
// (half a microsecond), all others it executes alone in another place (ten microseconds and more), and some it refuses.
// So everything here is about instructions: where they begin, which kind each is, and what the ones before it do.
//
// Two decoders of x86-64 work together. The package's own (Decode, in encoding.go) finds lengths, branch targets and
// kinds. It knows all instructions up to AVX-512, because one wrong length makes everything behind it wrong, and it fails
// rather than guess. But it does not decode operands, except those in memory that the stack or frame pointer addresses.
// Operands come from golang.org/x/arch/x86/x86asm (in operands.go), for the few instructions of which the registers
// matter. That decoder cannot cut code into instructions: it lacks VEX and EVEX, and returns the prefixes of what it does
// not know as instructions of one byte. So its result counts only where both agree on the length, and an instruction that
// only the first one knows may do anything. FuzzDecode compares the two.
//
// Code is x86-64 only; of other machines USDT notes are read, and nothing else. Files and memory may be hostile: what is
// read is bounded by the limits in finder.go, and each decoder has a fuzz target. Nothing here attaches a probe.
package probesite
