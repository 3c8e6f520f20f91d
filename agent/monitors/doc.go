// Package monitors estimates how often compiled Java code enters monitors that nobody else holds (Inoue and Nakatani,
// OOPSLA 2009, section 5.2.3). Such an enter calls nothing that a probe could be set on: it is a few instructions in the
// method's code. For some milliseconds hardware breakpoints stand on up to three of these places, and the kernel side
// counts hits, with the object's class.
//
//	l, err := monitors.Open(objects, heaps, root)
//	e := monitors.NewEngine(l, source, monitors.Options{Share: 0.01})
//	...
//	for _, a := range e.Acquisitions(guest, from, to) { … }
//
// A trap takes far longer than an enter, so the time in which hits are counted is known badly where there are many; but
// all places of one window are stretched alike, and the ratio of their hits is that of their enters. Windows overlap in
// their places, and Rates finds the rates that fit all of them best. That holds within one thread, since traps do not hold
// up others: a window is of one thread, and threads are compared by their CPU time, by groups of the same name.
//
// What windows cost is bounded by a share of the guests' CPU time. A window never outlives its limit of hits by more than
// that of each breakpoint; when the agent ends, however it ends, the kernel closes its breakpoints.
package monitors
