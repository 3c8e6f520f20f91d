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
//   - If an exception leaves a method that C1 inlined, for its caller, the code does not report the end of that method. The
//     caller's next calls then appear below the method (Losses.Unwound counts such ends). NoC1Inlining avoids it. C2 inlines
//     nothing while the JVM reports its calls (seen with JDK 17 and 25): calls are those of production, code is not.
//   - Frames of virtual threads that are taken off their carrier end there without a return, and what such a thread calls
//     after it was mounted again stands directly under its carrier's frames (Losses.Unwound and Losses.Stray).
package exact
