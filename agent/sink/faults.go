package sink

import (
	"bufio"
	"fmt"
	"io"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"
)

// Faults writes which methods touched memory for the first time, the most page faults first. Under each method are the
// data addresses by place, class, field and offset in the object, as in the appendix of Inoue and Nakatani (OOPSLA
// 2009). The method is the guest's innermost. Nil options are DefaultViewOptions. It fails if the profile has no faults.
func Faults(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	e, err := readEvents(p, profile.Faults)
	if err != nil {
		return err
	}
	var byMethod eventGroups[string]
	for sample, t := range e.all() {
		method := byMethod.of(e.site(sample))
		method.add(t)
		method.parts.of(partOf(e.kind, sample)).add(t)
	}
	out, all := bufio.NewWriter(w), byMethod.total()
	writeFolded(out, fmt.Sprintf("Page faults%s: %s (%s) first touches of memory, from %s events", elapsed(p), quantity(all.values[0]), e.about(all),
		quantity(all.events)), opts.Width)
	e.writeObserved(out, opts)
	table := eventTable{opts: opts, out: out, order: []int{0}}
	table.columns = []eventColumn{shareColumn(0, all), valueColumn("faults", 0, quantity), eventsColumn}
	out.WriteByte('\n')
	writeEvents(&table, "method / place, class.field +offset", &byMethod)
	return flush(out, "page faults")
}
