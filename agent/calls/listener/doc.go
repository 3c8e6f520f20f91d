// Package listener samples calls where they arrive: for some milliseconds hardware breakpoints stand on the entry points
// of up to three methods of a process, in its threads, and the kernel side records every call there, with the call
// site that the return address shows. That works for any code that a VM generates, whether it cooperates or not. Package watch
// sets the breakpoints.
//
//	l, err := listener.Open(objects, watch.New(root))
//	result, err := l.Listen(ctx, guest, []listener.Entry{caller, callee}, listener.Window{Duration: 4 * time.Millisecond, MaxHits: 64})
//	for _, hit := range result.Hits { … } // hit.Entry: 0 is caller, 1 callee
//
// What windows show: a trap takes far longer (HitTime) than most calls, so that a window of a hot method stretches
// the time in which it is taken. Numbers of hits are therefore no rates, except of methods that are called rarely. But
// the methods of one window are stretched alike: the ratio of their hits is that of their calls, and so is the ratio
// of the call sites of one of them. A window that reaches MaxHits may have seen only a burst of one of them; over many
// windows such ones undercount methods that come in bursts, which is why they are marked.
//
// What windows cost: HitTime of the process for each hit, until all breakpoints are gone, and interruptions to set and
// to remove them (Cost). A window never outlives its limit of hits by more than that of each breakpoint, whatever
// happens to the agent; when the agent ends, so do its breakpoints.
package listener
