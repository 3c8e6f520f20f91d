package sink

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Collapsed writes one line for each distinct stack, in the form that Brendan Gregg's FlameGraph
// scripts and most flame graph viewers read:
//
//	java;java.lang.Thread.run;com.acme.Shop.checkout;java.util.HashMap.get 42
//
// The command name of the process comes first and the innermost method last; the number is a count
// of samples. If calls were recorded, it is a count of calls instead, as the form has room for one
// number: between two methods, or in whole contexts if these were counted. Of events it is the
// kind's main value, such as bytes, or nanoseconds of delay without the waits for work. Threads,
// and processes of the same name, are added up. Lines are ordered by their frames, so that equal
// profiles give equal files.
//
// It writes a part of a window: events or calls, if content has them, and time otherwise.
func Collapsed(w io.Writer, p *profile.Profile, content Content) error {
	if err := content.check(); err != nil {
		return err
	}
	c := collapser{names: make(map[symbol.Symbol]string)}
	if kind, ok := content.Events(); ok {
		if err := c.allEvents(p, kind); err != nil {
			return err
		}
		return c.write(w)
	}
	part := func(proc *profile.Process) (threads []*profile.Thread, graphs []*profile.Calls) {
		withCalls := content&CallCounts != 0
		if withCalls == (p.Unit == profile.CallCounts) {
			threads = proc.Threads
		}
		if withCalls {
			graphs = proc.Calls
		}
		return threads, graphs
	}
	// One tree by name, because names are fewer than addresses. Nothing here may lose detail: it is
	// as large as what was recorded, which was bounded then.
	for _, proc := range p.Processes {
		threads, graphs := part(proc)
		for _, thread := range threads {
			if thread.Tree != nil {
				c.stacks.Limit += thread.Tree.Len() + 2 // the process, and [unknown] for samples without frames
			}
		}
		for _, calls := range graphs {
			c.stacks.Limit += 2*calls.Graph.Len() + 1 // the process
		}
	}
	for _, proc := range p.Processes {
		threads, graphs := part(proc)
		for _, thread := range threads {
			if thread.Tree != nil {
				c.thread(proc, thread)
			}
		}
		for _, calls := range graphs {
			if err := c.calls(proc, calls); err != nil {
				return fmt.Errorf("collapse calls of process %d: %w", proc.PID, err)
			}
		}
	}
	return c.write(w)
}

// A collapser adds up stacks by name.
type collapser struct {
	stacks cct.Tree[string]
	names  map[symbol.Symbol]string // as fields
}

func (c *collapser) thread(proc *profile.Process, thread *profile.Thread) {
	comm := field(proc.Comm)
	var stack []string
	for id, n := range thread.Tree.Nodes() {
		if n.Self == 0 {
			continue
		}
		stack = stack[:0]
		for _, symbol := range thread.Tree.Stack(id) {
			stack = append(stack, c.name(symbol))
		}
		if len(stack) == 0 {
			stack = append(stack, stored.Unnamed)
		}
		c.stacks.Add(append(stack, comm), n.Self)
	}
}

func (c *collapser) calls(proc *profile.Process, calls *profile.Calls) error {
	edges, err := wholeEdges(calls.Graph)
	if err != nil {
		return err
	}
	comm := field(proc.Comm)
	for _, e := range edges {
		if e.calls > 0 {
			c.stacks.Add([]string{c.name(e.Callee), c.name(e.Caller), comm}, uint64(e.calls))
		}
	}
	return nil
}

func (c *collapser) name(symbol symbol.Symbol) string {
	name, ok := c.names[symbol]
	if !ok {
		name = field(symbol.Value().Function)
		c.names[symbol] = name
	}
	return name
}

func (c *collapser) write(w io.Writer) error {
	buffered := bufio.NewWriter(w)
	var path []string // path of the node that is visited, outermost frame first
	c.stacks.Walk(c.stacks.ByKey(strings.Compare), func(_ cct.NodeID, n cct.Node[string]) bool {
		path = append(path[:n.Depth-1], n.Key)
		if n.Self > 0 {
			fmt.Fprintf(buffered, "%s %d\n", strings.Join(path, ";"), n.Self)
		}
		return true
	})
	if err := buffered.Flush(); err != nil {
		return fmt.Errorf("write collapsed stacks: %w", err)
	}
	return nil
}

// field makes a name fit for a frame of a collapsed stack, whose separator it must not hold.
func field(name string) string {
	if name == "" {
		return stored.Unnamed
	}
	return strings.ReplaceAll(stored.Printable(name), ";", `\x3b`)
}

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

// events adds up those of a process. Values are rounded as in Pprof, so that both files agree.
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
			stack = append(stack, stored.Unnamed)
		}
		c.stacks.Add(append(stack, comm), uint64(whole[i]))
	}
	return nil
}
