package counters

import (
	"fmt"
	"time"
)

// Notes describe how exact the calls of a Difference are, one sentence each.
func (b *Book) Notes(d *Difference) []string {
	var all, open uint64
	for c, n := range d.Calls {
		all += n
		if b.targets[c].method == 0 {
			open += n
		}
	}
	share := func(part uint64) float64 { return 100 * float64(part) / float64(max(all, 1)) }
	notes := []string{fmt.Sprintf("exact: %d calls counted by the JVM's own code; the two readings of its counters took %v, which is %.1f %% of the "+
		"recording: calls made during a reading may be counted or not", all, d.Uncertain.Round(time.Millisecond/10),
		100*d.Uncertain.Seconds()/max(d.Length.Seconds(), time.Millisecond.Seconds()))}
	add := func(n uint64, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	l := &d.Losses
	add(open, "%d calls (%.2g %%) have no known callee: their receivers exceed the classes of a call site, or the call is not resolved", open, share(open))
	add(l.Uncounted, "methods ran %d times before the JVM counted their calls: these calls are missing", l.Uncounted)
	add(b.Elsewhere(d), "methods were entered %d times by calls that are not counted: from native methods, reflection and the VM, from methods "+
		"whose calls were not counted yet, and calls lost because threads count without locks", b.Elsewhere(d))
	add(uint64(l.Epochs), "classes were unloaded or changed %d times: their calls are missing (%d methods that had counters are gone)", l.Epochs, l.Unloaded)
	add(uint64(l.Unreadable), "the counters of %d methods could not be read: their calls are missing", l.Unreadable)
	add(uint64(l.Reset), "%d counters decreased: a part of their counts is missing", l.Reset)
	return notes
}
