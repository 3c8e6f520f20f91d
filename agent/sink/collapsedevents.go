package sink

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

// allEvents adds up the events of one kind.
func (c *collapser) allEvents(p *profile.Profile, kind profile.EventKind) error {
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			if e.Kind == kind {
				c.stacks.Limit += 2 // the process, and [unknown] for events without frames
			}
			if e.Kind == kind && e.Tree != nil {
				c.stacks.Limit += e.Tree.Len()
			}
		}
	}
	for _, proc := range p.Processes {
		for _, e := range proc.Events {
			if e.Kind != kind {
				continue
			}
			if err := c.events(proc, e); err != nil {
				return fmt.Errorf("collapse %v events of process %d: %w", kind, proc.PID, err)
			}
		}
	}
	return nil
}

// events adds up those of a process. Values are rounded as in PprofOf, so that both files agree.
func (c *collapser) events(proc *profile.Process, e *profile.Events) error {
	values := make([]float64, len(e.Rows))
	for i, row := range e.Rows {
		values[i] = row.Values[e.Kind.Main()]
	}
	whole, err := apportion(values)
	if err != nil {
		return err
	}
	comm := field(proc.Comm)
	var stack []string
	for i, row := range e.Rows {
		if whole[i] == 0 || e.Kind == profile.Locks && row.What == profile.WaitForWork {
			continue
		}
		stack = stack[:0]
		if e.Tree != nil && row.Context != cct.Root {
			for _, symbol := range e.Tree.Stack(row.Context) {
				stack = append(stack, c.name(symbol))
			}
		}
		if len(stack) == 0 {
			stack = append(stack, unnamed)
		}
		c.stacks.Add(append(stack, comm), uint64(whole[i]))
	}
	return nil
}
