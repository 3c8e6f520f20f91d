package report

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A slowCall is a slow invocation as it is stored.
type slowCall struct {
	window       int64 // 0 if the profile has none
	number       int64 // in the window
	start        string
	thread, end  string
	took         float64 // ns
	byCause      map[string]float64
	samples      []*pprof.Sample
	heaviest     *pprof.Sample
	heaviestTime float64
}

// Slow writes the slowest invocations of a method: when each was, how long it took and because of what, and the stack in which it spent most
// of that. Nil options are DefaultViewOptions. It fails if the profile has none.
func Slow(w io.Writer, p *pprof.Profile, opts *ViewOptions) error {
	if opts == nil {
		opts = DefaultViewOptions()
	}
	if stacks.TypeIndex(p, stored.TypeSlow) < 0 {
		return errors.New("the profile has no slow calls: record some with vmprof-agent record -e wall --slow=METHOD -p PID")
	}
	s, err := stacks.Of(p, stored.TypeSlow)
	if err != nil {
		return err
	}
	calls := slowCalls(s)
	method, counted := followedMethod(p)
	out := bufio.NewWriter(w)
	head := fmt.Sprintf("Slow calls%s: the %d slowest", elapsed(p), len(calls))
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
	place := func(c *slowCall) []string { return []string{fmt.Sprint(c.number)} }
	columns := []string{"call"}
	if slices.ContainsFunc(calls, func(c *slowCall) bool { return c.window > 0 }) {
		place = func(c *slowCall) []string { return []string{fmt.Sprint(c.window), fmt.Sprint(c.number)} }
		columns = []string{"window", "call"}
	}
	g := layout.Grid{Head: []layout.Row{{Cells: append(columns, "took", "start"), Name: layout.Heading("thread: causes / heaviest stack")}}}
	unwound := false
	shown, rest := layout.First(opts.N, calls)
	for _, c := range shown {
		took := layout.Time.Of(c.took)
		switch c.end {
		case profile.CallUnwound.String():
			took, unwound = "≤"+took, true
		case profile.CallRunning.String():
			took = ">" + took
		}
		about := cmp.Or(c.thread, stored.Unnamed) + ": " + c.causes()
		g.Rows = append(g.Rows, layout.Row{Cells: append(place(c), took, c.when()), Name: func(width int) string { return layout.KeepStart(about, width) }})
		stack := pathFrom(s, c.heaviest, method)
		g.Rows = append(g.Rows, layout.Row{Cells: make([]string, len(g.Head[0].Cells)), Name: func(width int) string {
			text := "  " + layout.Time.Of(c.heaviestTime) + " "
			return text + stack(max(width-len(text), 0))
		}})
	}
	g.Write(out, opts.Width)
	if len(rest) > 0 {
		fmt.Fprintf(out, "%s\n", stored.Plural(len(rest), "more call"))
	}
	if slices.ContainsFunc(calls, func(c *slowCall) bool { return c.end == profile.CallRunning.String() }) {
		layout.Fold(out, ">: had not ended when the recording did", opts.Width)
	}
	if unwound {
		layout.Fold(out, "≤: took no longer than that; its return was not seen, as after an exception", opts.Width)
	}
	return layout.Flush(out, "slow calls")
}

// slowCalls puts the parts of each invocation together, and returns the slowest, the slowest first.
func slowCalls(s *stacks.Samples) []*slowCall {
	type key struct {
		window, number, tid int64
		start               string
	}
	byNumber := map[key]*slowCall{} // several files may each have a first one
	for sample, value := range s.All() {
		n := stacks.Number(sample, stored.LabelCall)
		window := stacks.Number(sample, stored.LabelWindow)
		of := key{window, n, stacks.Number(sample, stored.LabelTID), stacks.Label(sample, stored.LabelStart)}
		c := byNumber[of]
		if c == nil {
			c = &slowCall{
				window: window, number: n, start: stacks.Label(sample, stored.LabelStart), thread: stacks.Label(sample, stored.LabelThread), end: stacks.Label(sample, stored.LabelEnd),
				byCause: map[string]float64{},
			}
			byNumber[of] = c
		}
		time := float64(value)
		c.took += time
		c.samples = append(c.samples, sample)
		c.byCause[cmp.Or(stacks.Label(sample, stored.LabelCause), stored.Unnamed)] += time
		if c.heaviest == nil || time > c.heaviestTime {
			c.heaviest, c.heaviestTime = sample, time
		}
	}
	calls := slices.SortedFunc(maps.Values(byNumber), func(a, b *slowCall) int {
		return cmp.Or(cmp.Compare(b.took, a.took), cmp.Compare(a.window, b.window), cmp.Compare(a.number, b.number))
	})
	return calls[:min(len(calls), profile.MaxSlowCalls)]
}

// when is the time of day at which it began, as the reader's clock has it.
func (c *slowCall) when() string {
	at, err := time.Parse(time.RFC3339Nano, c.start)
	if err != nil {
		return "-"
	}
	return at.Local().Format("15:04:05.000")
}

// causes are what took it so long, the largest first, without what is less than a hundredth.
func (c *slowCall) causes() string {
	const least = 0.01
	var list []string
	for _, name := range c.largest() {
		if time := c.byCause[name]; time >= least*c.took {
			list = append(list, name+" "+layout.Time.Of(time))
		}
	}
	return strings.Join(list, ", ")
}

// largest are its causes, the largest first.
func (c *slowCall) largest() []string {
	return slices.SortedFunc(maps.Keys(c.byCause), func(a, b string) int {
		return cmp.Or(cmp.Compare(c.byCause[b], c.byCause[a]), strings.Compare(a, b))
	})
}

// hasSlow reports whether a profile has the time of an invocation that was followed.
func hasSlow(p *pprof.Profile) bool {
	at := stacks.TypeIndex(p, stored.TypeSlow)
	return at >= 0 && slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[at] != 0 })
}

// followedMethod is the method whose invocations were followed, and how many there were; "" if the profile does not say.
func followedMethod(p *pprof.Profile) (method string, calls float64) {
	if m, err := stored.MetadataOf(p); err == nil {
		method = m.Followed
	}
	if !stacks.HasCalls(p) {
		return method, 0
	}
	s, err := stacks.Of(p, stored.TypeCalls)
	if err != nil {
		return method, 0
	}
	for sample, value := range s.All() {
		if stacks.Label(sample, stored.LabelEngine) == stored.EngineCount {
			method = cmp.Or(method, s.Edge(sample).Callee.Name)
			calls += float64(value)
		}
	}
	return method, calls
}

// pathFrom writes the stack of a sample from a method on, outermost first, up to the program's innermost method.
func pathFrom(s *stacks.Samples, sample *pprof.Sample, from string) func(width int) string {
	var tree cct.Tree[string]
	names := callNames(s, sample, from, true)
	slices.Reverse(names)
	id := tree.Add(names, 1)
	return func(width int) string { return layout.Path(&tree, id, width, func(name string) string { return name }) }
}

// callNames are the frames of a stack from a method on, outermost first; from its root if the method is not in it. With own they end at the
// program's innermost method, unless it has none.
func callNames(s *stacks.Samples, sample *pprof.Sample, from string, own bool) (names []string) {
	all := s.AppendFrames(nil, sample)
	for _, f := range all {
		if len(names) > 0 || !own || !f.Native && f.Name[0] != '[' && !cause.Waits(f.Name) {
			names = append(names, f.Name)
		}
	}
	if len(names) == 0 {
		for _, f := range all {
			names = append(names, f.Name)
		}
	}
	slices.Reverse(names)
	return names[max(slices.Index(names, from), 0):] // the outermost one
}
