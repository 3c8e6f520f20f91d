// Package monitors estimates how often compiled Java code acquires monitors without contention
// (Inoue and Nakatani, OOPSLA 2009, section 5.2.3). Such an acquisition is a few instructions in
// the method's code and calls no function that could have a probe. For some milliseconds, hardware
// breakpoints are set on up to three of these places, and the kernel side counts hits, with the
// object's class.
//
//	l, err := monitors.Open(objects, heaps, watcher)
//	e := monitors.NewEngine(l, source, monitors.Options{Share: 0.01})
//	...
//	acquisitions, summary := e.Acquisitions(identity, from, to)
//
// A trap takes far longer than an acquisition, so that the time without traps is poorly known if
// there are many hits. But all places of one window are stretched alike: the ratio of their hits is
// that of their acquisitions. Windows overlap in their places, and Rates finds the rates that fit
// all of them best. That holds within one thread, since traps do not delay other threads. So each
// window is of one thread. Threads are compared by their CPU time, by groups of the same name.
//
// The cost of windows is bounded by a share of the processes' CPU time. A window exceeds its limit
// of hits by at most that of each breakpoint. When the agent ends in any way, the kernel closes its
// breakpoints.
package monitors
