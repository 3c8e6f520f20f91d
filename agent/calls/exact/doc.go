// Package exact counts every call of a HotSpot JVM that was started with -XX:+DTraceMethodProbes: the call graph, and
// the complete calling context tree of each thread, as Moret, Binder and Villazón define completeness ("CCCP: Complete
// Calling Context Profiling in Virtual Execution Environments", PEPM 2009, section 3). Native methods have nodes,
// what native code calls back stands under its caller, and exceptions end the contexts that they leave. It is ground
// truth, not for production: the flag alone makes programs ten times slower or more, counting more than a thousand times.
//
//	err := exact.Check(vm)                         // the flag, or what to do about it
//	sites, err := exact.FindSites(elf, lib)        // in libjvm
//	r, err := exact.Start(objects, lib, sites, exact.Options{PID: pid})
//	...                                            // name the methods of bpf.NewMethod events while they come
//	err = r.Stop()
//	end, err := r.Snapshot()
//	recording := end.Since(nil)
//	err = r.Close()
//
// What is not exact:
//   - What a compiler replaces by instructions of its own (intrinsics) is no call and has no node.
//   - Code of C1 does not tell of the end of a method that it inlined if an exception leaves it for its caller: what that
//     calls next stands under the method (Losses.Unwound tells how often). NoC1Inlining avoids it. C2 inlines nothing
//     while the JVM tells of its calls (seen with JDK 17 and 25): code is not what it is in production, calls are.
//   - Frames of virtual threads that are taken off their carrier end there without a return, and what such a thread calls
//     after it was mounted again stands directly under its carrier's frames (Losses.Unwound and Losses.Stray).
package exact
