// Package hotspot times invocations of one method, and iterations of its loops, in the compiled
// code of stock JVMs, from outside.
//
//	e, err := hotspot.Open(ctx, hotspot.Options{PIDs: []int{pid}, Method: method, Breakpoints: policy})
//	defer e.Close()
//	for {
//		list, err = e.Take(ctx, list[:0])
//		…
//	}
//
// For some time hardware breakpoints stand on the entry of the method's code and on the two
// commonest return addresses of its callers. A call that will return to one of them begins a
// timing, and the same thread's arrival there, with the stack that a return leaves behind, ends it.
// The time includes callees (Lau, Arnold, Hind and Calder, PACT 2007, section 3), but not the time
// for which the thread waited for a CPU, where the kernel counts that. Between the two traps there
// is one way out of a trap and one way into another: pairs of neighbouring instructions in the same
// threads measure how long these take, and that is subtracted.
//
// What is not timed, and counted: calls from elsewhere; invocations that an exception or a
// deoptimisation of the caller ends, unless the VM passes the return address even so, as JDK 17
// does with exceptions; recursion deeper than eight; what still runs when the window ends. An
// invocation whose code is deoptimised goes on in the interpreter and is timed to its end. What is
// not seen at all: invocations of copies that were inlined, and of OSR versions, which have no
// entry (Notes lists both); interpreted invocations. A trap also empties caches that the method
// then fills again; that makes short invocations look longer, in all versions alike. Virtual
// threads that block in the method while others of the same carrier run it at the same depth can be
// confused.
//
// With Options.Loops there are windows of loops as well: breakpoints on a safepoint in the loop, a
// poll or the return of a call, and on addresses outside of it. A round goes from one arrival in
// the loop to the next in the same frame. How many iterations it has shows a local variable that
// counts them, or follows from what the place is; a loop of which neither is so is not timed (Notes
// says why). Copies of loops that were inlined into the method are timed as well, and so are OSR
// versions.
//
// What the windows cost is bounded by a share of the processes' CPU time. They respect the policy
// and the bounds of packages breakpoint and watch.
package hotspot
