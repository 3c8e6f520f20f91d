// Package semaphore samples calls of PHP. PHP has a USDT probe on the way into every user function,
// php:function__entry; a process that was started with USE_ZEND_DTRACE=1 passes it while its semaphore, a 16-bit
// counter in the process's own memory, is not 0. At a tick that finds such a process running its semaphore is set,
// and after SAMPLES calls, STRIDE apart, it is cleared again: nothing is left but the two bytes, and those are 0.
//
//	e, err := semaphore.Try(semaphore.Options{Objects: objects, AllowGuestWrites: true, ...})
//	defer e.Close()
//	found, err := e.Look(ctx, pid)            // for every process that might run PHP
//	edge, ok := e.Edge(event)                 // for every named call in the event stream
//
// This is the only package that writes into other processes, so it keeps rules of its own:
//
//   - It does nothing unless it is allowed to.
//   - Only a cell writes, and only those two bytes, where the note in PHP's own file says they are. It goes by a
//     descriptor of /proc/PID/mem, which belongs to one address space for ever: neither a pid that is used again nor
//     a process that executes another program can be hit, which is why identity is verified once, when it is opened.
//   - A value that is not 0 or the cell's own 1 belongs to somebody else and is not touched.
//   - What sets semaphores is not the agent but a guard, a small process of the same program that holds the
//     descriptors and nothing else. When the agent ends, in order, by a crash or by kill -9, the guard's socket is
//     closed; it clears all semaphores and ends itself. When the guard is killed, the agent clears them.
//   - Should both be killed at once, the next agent finds a set semaphore and clears it: see recover.
//
// Other tracers count the semaphore up and down, in the kernel if they attach with its offset (perf, bpftrace), or
// through ptrace (gdb). The kernel lets two tracers share a site only if both name the same semaphore or none does.
// This package attaches without, so while it is attached nobody in the kernel holds the counter, and where somebody
// does it cannot attach, and says so.
//
// The probes see user functions, by all their ways in: calls, constructors, callbacks, included files ("main"), and
// each resumption of a generator after the call that made it. Internal functions (strlen) have no function__entry; a callback that one calls has
// the user function below as its caller.
package semaphore
