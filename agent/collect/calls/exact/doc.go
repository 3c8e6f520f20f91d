// Package exact counts every call of a HotSpot JVM that was started with -XX:+DTraceMethodProbes.
// It builds the call graph, and the complete calling context tree of each thread, as Moret, Binder
// and Villazón define completeness ("CCCP: Complete Calling Context Profiling in Virtual Execution
// Environments", PEPM 2009, section 3). Native methods have nodes, callbacks from native code are
// below their caller, and exceptions end the contexts that they leave. It provides ground truth and
// is not for production: the flag alone makes programs at least ten times slower, counting more
// than a thousand times.
//
// It also counts the objects that are allocated in each context, by class (section 5.1), if the JVM
// was started with -XX:+DTraceAllocProbes, too: Sites.Objects and Options.Heap are set then. C2
// replaces objects that do not escape by scalars; they are not allocated.
//
//	err := exact.Check(vm)                         // the flag, or what to do about it
//	sites, err := exact.FindSites(elf, lib)        // in libjvm
//	r, err := exact.Start(objects, lib, sites, exact.Options{PID: pid})
//	...                                            // name the methods of bpf.NewMethod events as they arrive
//	err = r.Stop()
//	end, err := r.Snapshot()
//	recording := end.Since(nil)
//	err = r.Close()
//
// Limits of exactness:
//   - Intrinsics, which a compiler replaces by instructions of its own, are not calls and have no node.
//   - If an exception passes from a method that C1 inlined to its caller, the code does not report
//     the end of that method. The caller's next calls then appear below the method (Losses.Unwound
//     counts such ends). NoC1Inlining avoids it. C2 inlines nothing while the JVM reports its calls
//     (seen with JDK 17 and 25): calls are those of production, code is not.
//   - Frames of a virtual thread that is unmounted end on its carrier without a return. Its calls
//     after the next mount are directly under the carrier's frames (Losses.Unwound and
//     Losses.Stray).
package exact
