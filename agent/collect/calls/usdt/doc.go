// Package usdt samples calls of interpreters that have a USDT probe at the entry of every function:
// PHP's php:function__entry, Python's python:function__entry, Ruby's ruby:method__entry. The table
// in languages.go gives the meaning of each probe's arguments.
//
//	e, err := usdt.Try(usdt.Options{Objects: objects, ...})
//	defer e.Close()
//	found, err := e.Look(ctx, pid)            // for every process that might run one of them
//	ok := e.Fold(call, add)                   // for every named call in the event stream
//
// A program passes such a probe while its semaphore, a 16-bit counter in the program's memory, is
// not 0. The agent never writes it. The kernel increments it while a uprobe is attached with the
// counter's offset (ref_ctr_offset), and decrements it when the uprobe is removed, also if the
// agent is killed. So the engine attaches for short windows:
//
//   - A tick that finds a profiled process running begins a burst, and requests a window.
//   - The window attaches the probe to that process alone, which takes milliseconds, in which the process runs on.
//   - SAMPLES calls, STRIDE apart, are sampled in the kernel. The last one requests the window's
//     end. A window with too few calls is closed after windowLimit of wall-clock time.
//   - The kernel removes the uprobe at once when requested, and then waits for its own readers.
//     Calls that the process makes until then are hits, too: they are counted and charged to the
//     budget, but not sampled.
//
// The number of windows follows from the budget, and from the CPU time that the agent itself may
// spend on them.
//
// Other tracers or agents may be attached to the same probe: the kernel counts for all of them. It
// refuses an attachment without the semaphore, and one with the semaphore after one without.
//
// The probes see functions of the language however they are entered: by calls, constructors,
// callbacks, included files ("main"), and each resumption of a generator after the call that made
// it. Functions of the interpreter itself (strlen) have none. For PHP the caller is known, from its
// own frames. The other probes do not report it, and the agent does not guess: the caller of such a
// call is "[unknown caller]".
package usdt
