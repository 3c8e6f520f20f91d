// Package listener samples calls where they arrive. For some milliseconds, hardware breakpoints are
// set on the entry points of up to three methods of a process, in its threads. The kernel side
// records every call there, with the call site from the return address. That works for any code
// that a VM generates, whether the VM cooperates or not. Package watch sets the breakpoints.
//
//	l, err := listener.Open(objects, watch.New(root))
//	result, err := l.Listen(ctx, guest, []listener.Entry{caller, callee}, listener.Window{Duration: 4 * time.Millisecond, MaxHits: 64})
//	for _, hit := range result.Hits { … } // hit.Entry: 0 is caller, 1 callee
//
// What windows show: a trap takes far longer (HitTime) than most calls, so that hits stretch the
// window of a hot method. Numbers of hits are therefore not rates, except for rarely called
// methods. But the methods of one window are stretched alike: the ratio of their hits is that of
// their calls. So is the ratio of the call sites of one method. A window that reaches MaxHits may
// have seen only a burst of one method. Over many windows, such windows undercount methods that are
// called in bursts, which is why they are marked.
//
// What windows cost: HitTime of the process for each hit, until all breakpoints are removed, and
// interruptions to set and remove them (Cost). A window exceeds its limit of hits by at most that
// of each breakpoint, even if the agent hangs. When the agent ends, its breakpoints are removed.
package listener
