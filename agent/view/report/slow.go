package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Slow writes the slowest invocations of a method: when each was, how long it took and because of
// what, and the stack in which it spent most of that. Nil options are layout.DefaultOptions. It
// fails if the profile has none.
func Slow(w io.Writer, p *pprof.Profile, opts *layout.Options) error {
	opts = opts.OrDefault()
	if stacks.TypeIndex(p, stored.TypeSlow) < 0 {
		return errors.New("the profile has no slow calls: record some with vmprof-agent record -e wall --slow=METHOD " +
			"-p PID")
	}
	s, err := stacks.NewSamples(p, stored.TypeSlow)
	if err != nil {
		return err
	}
	calls := stacks.SlowCalls(s)
	method, counted := stacks.FollowedMethod(p)
	out := bufio.NewWriter(w)
	head := fmt.Sprintf("Slow calls%s: the %d slowest", stacks.Elapsed(p), len(calls))
	switch {
	case method == "":
	case counted > 0:
		head += fmt.Sprintf(" of %s of %s", layout.ManyOf(layout.Quantity(counted), "calls"), method)
	default: // all of them began before
		head += " calls of " + method
	}
	layout.Fold(out, head, opts.Width)
	if len(calls) == 0 {
		fmt.Fprintln(out, "No call has ended, or is under way.")
		return layout.Flush(out, "slow calls")
	}
	out.WriteByte('\n')
	place := func(c *stacks.SlowCall) []string { return []string{fmt.Sprint(c.Number)} }
	columns := []string{"call"}
	if slices.ContainsFunc(calls, func(c *stacks.SlowCall) bool { return c.Window > 0 }) {
		place = func(c *stacks.SlowCall) []string { return []string{fmt.Sprint(c.Window), fmt.Sprint(c.Number)} }
		columns = []string{"window", "call"}
	}
	g := layout.Grid{Head: []layout.Row{{Cells: append(columns, "took", "start"),
		Name: layout.Heading("thread: causes / heaviest stack")}}}
	unwound := false
	shown, rest := layout.First(opts.N, calls)
	for _, c := range shown {
		took := layout.Time.Format(c.Took)
		switch c.End {
		case profile.CallUnwound.String():
			took, unwound = "≤"+took, true
		case profile.CallRunning.String():
			took = ">" + took
		}
		about := cmp.Or(c.Thread, stored.Unnamed) + ": " + causes(c)
		g.Rows = append(g.Rows, layout.Row{Cells: append(place(c), took, when(c)),
			Name: func(width int) string { return layout.KeepStart(about, width) }})
		stack := pathFrom(s, c.Heaviest, method)
		g.Rows = append(g.Rows, layout.Row{Cells: make([]string, len(g.Head[0].Cells)), Name: func(width int) string {
			text := "  " + layout.Time.Format(c.HeaviestTime) + " "
			return text + stack(max(width-len(text), 0))
		}})
	}
	g.Write(out, opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more call"))
	}
	if slices.ContainsFunc(calls, func(c *stacks.SlowCall) bool { return c.End == profile.CallRunning.String() }) {
		layout.Fold(out, ">: had not ended when the recording did", opts.Width)
	}
	if unwound {
		layout.Fold(out, "≤: took no longer than that; its return was not seen, as after an exception", opts.Width)
	}
	return layout.Flush(out, "slow calls")
}

// when is the time of day at which it began, as the reader's clock has it.
func when(c *stacks.SlowCall) string {
	at, err := time.Parse(time.RFC3339Nano, c.Start)
	if err != nil {
		return "-"
	}
	return at.Local().Format("15:04:05.000")
}

// causes are what took it so long, the largest first, without what is less than a hundredth.
func causes(c *stacks.SlowCall) string {
	const least = 0.01
	var list []string
	for _, name := range c.Largest() {
		if time := c.ByCause[name]; time >= least*c.Took {
			list = append(list, name+" "+layout.Time.Format(time))
		}
	}
	return strings.Join(list, ", ")
}

// hasSlow reports whether a profile has the time of an invocation that was followed.
func hasSlow(p *pprof.Profile) bool {
	at := stacks.TypeIndex(p, stored.TypeSlow)
	return at >= 0 && slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[at] != 0 })
}

// pathFrom writes the stack of a sample from a method on, outermost first, up to the program's
// innermost method.
func pathFrom(s *stacks.Samples, sample *pprof.Sample, from string) func(width int) string {
	var tree cct.Tree[string]
	names := s.NamesFrom(sample, from, true)
	slices.Reverse(names)
	id := tree.Add(names, 1)
	return func(width int) string { return layout.Path(&tree, id, width, func(name string) string { return name }) }
}
