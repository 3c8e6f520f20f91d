package counters

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
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
	notes := []string{fmt.Sprintf("exact: %s counted by the JVM's own code; the two readings of its counters took "+
		"%v, which is %.1f %% of the "+
		"recording: calls made during a reading may be counted or not", plural(all, "call"),
		d.Uncertain.Round(time.Millisecond/10),
		100*d.Uncertain.Seconds()/max(d.Length.Seconds(), time.Millisecond.Seconds()))}
	add := func(n uint64, format string, args ...any) {
		if n > 0 {
			notes = append(notes, fmt.Sprintf(format, args...))
		}
	}
	l := &d.Losses
	add(open, "%s (%.2g %%) without a known callee: the receivers exceed the classes of a call site, or the call is "+
		"not resolved", plural(open, "call"), share(open))
	add(l.Uncounted, "methods ran %s before the JVM counted their calls: these calls are missing",
		plural(l.Uncounted, "time"))
	add(b.Elsewhere(d), "methods were entered %s by calls that are not counted: from native methods, reflection and "+
		"the VM, from methods "+
		"whose calls were not counted yet, and calls lost because threads count without locks",
		plural(b.Elsewhere(d), "time"))
	add(uint64(l.Epochs), "classes were unloaded or changed %s: their calls are missing (%s with counters gone)",
		plural(l.Epochs, "time"), plural(l.Unloaded, "method"))
	add(uint64(l.Unreadable), "the counters of %s could not be read: their calls are missing",
		plural(l.Unreadable, "method"))
	add(uint64(l.Reset), "%s decreased: a part of the count is missing", plural(l.Reset, "counter"))
	return notes
}

func plural[N int | uint64](n N, thing string) string { return stored.Plural(int(n), thing) }
