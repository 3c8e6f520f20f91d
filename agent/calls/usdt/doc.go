// Package usdt samples calls of interpreters that have a USDT probe on the way into every function: PHP's
// php:function__entry, Python's python:function__entry, Ruby's ruby:method__entry. The table in languages.go says which
// argument of which probe is what.
//
//	e, err := usdt.Try(usdt.Options{Objects: objects, ...})
//	defer e.Close()
//	found, err := e.Look(ctx, pid)            // for every process that might run one of them
//	ok := e.Fold(call, add)                   // for every named call in the event stream
//
// A program passes such a probe while its semaphore, a 16-bit counter in the program's memory, is not 0. The agent never
// writes it: the kernel counts it up while a uprobe is attached with the counter's offset (ref_ctr_offset), and down when
// the uprobe goes, also if the agent is killed. So the engine attaches for short windows:
//
//   - A tick that finds a guest running begins a burst, and asks for a window.
//   - The window attaches the probe to that process alone, which takes milliseconds, in which the guest runs on.
//   - SAMPLES calls, STRIDE apart, are sampled in the kernel. The last one asks for the window's end. A window in which
//     too few calls are made is closed after windowLimit of wall-clock time.
//   - The kernel takes the uprobe away at once when it is asked to, and then waits for its own readers. The calls that
//     the guest makes until then are hits, too: they are counted, paid for by the budget, and not sampled.
//
// How many windows there are follows from the budget, and from the CPU time that the agent itself may spend on them.
//
// Other tracers may be attached to the same probe, and other agents: the kernel counts for all of them. It refuses
// an attachment without the semaphore, and one with it after one without.
//
// The probes see functions of the language by all their ways in: calls, constructors, callbacks, included files ("main"),
// and each resumption of a generator after the call that made it. Functions of the interpreter itself (strlen) have none.
// Who called is known of PHP, from its own frames. The other probes do not say, and nothing is guessed: the caller of
// such a call is "[unknown caller]".
package usdt
