// Package watch sets hardware breakpoints on up to three addresses of a process for some
// milliseconds, in its threads, and has a BPF program run at every hit. That works for any code and
// changes nothing in the process but the debug registers of its threads.
//
//	w := watch.New(root) // one for the agent: a thread has four debug registers
//	o, err := w.Attach(watch.Program{Breakpoint: …, Watches: …, Ends: …}, &kernel)
//	observation, err := o.Watch(ctx, watch.Request{Identity: id, Addresses: …, Duration: 4 * time.Millisecond, Hits: 64}, &kernel)
//
// What a hit means is up to the program and to the reader of kernel. One process has one watch at a
// time, over all programs.
//
// What watches cost: HitTime of the process for each hit, until all breakpoints are gone, and
// interruptions to set and to remove them. A watch never outlives its limit of hits by more than
// that of each breakpoint, whatever happens to the agent; when the agent ends, so do its
// breakpoints.
//
// The package also knows what watches are planned by: which threads ran lately and how much
// (Threads, Groups), whose turn it is (Rotation), and when the next watch is due (Pause).
package watch
