package exactcalls

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
)

// rounds are so many that methods are compiled during them, with thresholds scaled for it.
const rounds, scaled = 60, "-XX:CompileThresholdScaling=0.4"

// Every context of the program's own methods has exactly the calls that the program counted itself:
// recursive ones, inlined ones, virtual ones, native methods, exceptions, and callbacks from the
// class library and the VM.
func TestContexts(t *testing.T) {
	for _, jdk := range jdks(t) {
		for name, flags := range map[string][]string{
			"default":     {exact.NoC1Inlining},
			"interpreter": {"-Xint"},
			"C1":          {exact.NoC1Inlining, "-XX:TieredStopAtLevel=1"},
			"C2":          {"-XX:-TieredCompilation"},
			"native accessors": {
				exact.NoC1Inlining, "-Dsun.reflect.inflationThreshold=2147483647",
				"-Djdk.reflect.useNativeAccessorOnly=true",
			},
		} {
			t.Run(fmt.Sprintf("%d %s", jdk.Version, name), func(t *testing.T) {
				g := traced(t, jdk, exact.Options{}, append(flags, scaled)...)
				g.order(t, "run 2 %d", rounds)
				c := g.recorded(t)
				truth := g.truth(t)
				compare(t, seen(c, truth), truth)
				complete(t, c)
				sites(t, c)
				if name == "native accessors" {
					calledBack(t, c)
				}
			})
		}
	}
}

// complete fails the test if something was lost, or does not add up.
func complete(t *testing.T, c *Calls) {
	t.Helper()
	losses := c.Losses
	losses.Before = 0 // the main thread waited for orders when recording began
	if losses != (exact.Losses{}) {
		t.Errorf("lost %+v", losses)
	}
	if c.Unnamed != 0 {
		t.Errorf("%d methods have no name", c.Unnamed)
	}
	addUp(t, c)
}

// addUp fails the test if a call is in no tree, or in no edge, and is not counted as lost.
func addUp(t *testing.T, c *Calls) {
	t.Helper()
	var calls uint64
	for _, thread := range c.Threads {
		calls += thread.Tree.Total()
		if thread.Tree.Overflow() != 0 {
			t.Errorf("%s: %d calls found no room in the tree", thread.Name, thread.Tree.Overflow())
		}
	}
	if calls+c.Losses.NoThread != c.Calls {
		t.Errorf("%d calls in trees and %d in none, want %d", calls, c.Losses.NoThread, c.Calls)
	}
	if edges := uint64(c.Graph.Total()); edges+c.Losses.NoEdge+c.Losses.NoThread != c.Calls {
		t.Errorf("%d calls on edges and %d on none, want %d", edges, c.Losses.NoEdge, c.Calls)
	}
	if c.Logical.Total() != c.Graph.Total() {
		t.Errorf("%v logical calls of %v", c.Logical.Total(), c.Graph.Total())
	}
}

// sites fails the test if call sites are unknown that should be known, or contradict the tree.
func sites(t *testing.T, c *Calls) {
	t.Helper()
	places := map[string]int32{ // lines of methods that call another one at one place
		"calls.Exact.natives java.lang.Thread.holdsLock": lineOf(t, "Thread.holdsLock(LOCK) ? 1 : 0"),
		"calls.Exact.fib calls.Exact.fib":                lineOf(t, "return n < 2 ? n"),
		"calls.Exact.even calls.Exact.odd":               lineOf(t, "return n == 0 ? 1 : odd"),
	}
	var known, own float64
	for e, n := range c.Logical.Edges() {
		caller := e.Caller.Value().Function
		if !strings.HasPrefix(caller, "calls.Exact") {
			continue
		}
		own += n
		if e.Site.Offset >= 0 && e.Site.Line > 0 {
			known += n
		}
		line, single := places[caller+" "+e.Callee.Value().Function]
		if single && e.Site.Line != 0 && e.Site.Line != line {
			t.Errorf("%s calls %s in line %d, want %d", caller, e.Callee.Value().Function, e.Site.Line, line)
		}
	}
	t.Logf("%d calls in %d contexts, %d logical and %d physical edges; places known of %.1f%%",
		c.Calls, c.Tree().Len(), c.Logical.Len(), c.Physical.Len(), 100*known/own)
	if known == 0 {
		t.Error("no place of a call is known")
	}
}

// calledBack fails the test if the calls of a native method are not below it.
func calledBack(t *testing.T, c *Calls) {
	t.Helper()
	var below, elsewhere uint64
	for _, tree := range c.Trees {
		for _, node := range tree.Nodes() {
			if node.Depth == 0 || node.Key.Value().Function != "calls.Exact.reflected" {
				continue
			}
			if parent := tree.Node(node.Parent).Key.Value().Function; strings.HasSuffix(parent, ".invoke0") {
				below += node.Self
			} else {
				elsewhere += node.Self
			}
		}
	}
	if below != 2*rounds*3 || elsewhere != 0 {
		t.Errorf("%d calls below invoke0 and %d elsewhere", below, elsewhere)
	}
}

// C1 does not report all ends of inlined methods. A note says so, and calls of each method are
// exact nevertheless.
func TestC1Inlining(t *testing.T) {
	for _, jdk := range jdks(t) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			g := traced(t, jdk, exact.Options{}, "-XX:TieredStopAtLevel=1", scaled)
			g.order(t, "run 1 %d", rounds)
			c := g.recorded(t)
			truth := g.truth(t)
			compare(t, perMethod(seen(c, truth)), perMethod(truth))
			addUp(t, c)
			if c.Losses.Unwound == 0 || !strings.Contains(strings.Join(c.Losses.Notes(), "\n"), "without a return") {
				t.Errorf("losses %+v, notes %q", c.Losses, c.Losses.Notes())
			}
		})
	}
}

// perMethod sums up contexts by thread and innermost method.
func perMethod(contexts guests.Contexts) guests.Contexts {
	methods := guests.Contexts{}
	for path, n := range contexts {
		words := strings.Fields(path)
		methods[words[0]+" "+words[len(words)-1]] += n
	}
	return methods
}

// Calls deeper than the shadow stack are counted at its end; contexts afterwards are right again.
func TestDepth(t *testing.T) {
	jdk := jdks(t)[0]
	g := traced(t, jdk, exact.Options{}, exact.NoC1Inlining, "-Xss64m")
	const frames = bpf.ExactDepth + 1000
	g.order(t, "deep %d", frames)
	g.order(t, "run 1 1")
	c := g.recorded(t)
	addUp(t, c)
	if lost := c.Losses.TooDeep; lost < 1000 || lost > 1000+10 { // the thread's own begin is above
		t.Errorf("%d calls were too deep", lost)
	}
	if c.Losses.Unwound != 0 || c.Losses.Stray != 0 {
		t.Errorf("losses %+v", c.Losses)
	}
	var overflow, deep uint64
	for _, tree := range c.Trees {
		for _, node := range tree.Nodes() {
			if node.Depth == 0 {
				continue
			}
			switch node.Key.Value().Function {
			case exact.Overflow.Marker():
				overflow += node.Self
			case "calls.Exact.deep":
				deep++ // recursion keeps its whole context
			}
		}
	}
	if overflow != c.Losses.TooDeep || deep != frames-overflow {
		t.Errorf("%d calls stand as overflow and %d were too deep; %d contexts of the recursion", overflow,
			c.Losses.TooDeep, deep)
	}
	truth := g.truth(t)
	compare(t, seen(c, truth), truth)
}

// Stack overflow errors leave contexts in order.
func TestStackOverflow(t *testing.T) {
	for _, jdk := range jdks(t) {
		for name, flags := range map[string][]string{
			"default": {exact.NoC1Inlining}, "interpreter": {"-Xint"}, "C2": {"-XX:-TieredCompilation"},
		} {
			t.Run(fmt.Sprintf("%d %s", jdk.Version, name), func(t *testing.T) {
				g := traced(t, jdk, exact.Options{}, append(flags, "-Xss512k")...)
				g.order(t, "overflow 40")
				c := g.recorded(t)
				truth := g.truth(t)
				compare(t, seen(c, truth), truth)
				addUp(t, c)
				t.Logf("%d calls, losses %+v", c.Calls, c.Losses)
			})
		}
	}
}

// Calls without room are counted where possible, and reported.
func TestRoom(t *testing.T) {
	jdk := jdks(t)[0]
	for name, tt := range map[string]struct {
		opt  exact.Options
		lost func(exact.Losses) uint64
	}{
		"contexts": {exact.Options{Nodes: 300}, func(l exact.Losses) uint64 { return l.NoNode }},
		"edges":    {exact.Options{Edges: 100}, func(l exact.Losses) uint64 { return l.NoEdge }},
		"threads":  {exact.Options{Threads: 2}, func(l exact.Losses) uint64 { return l.NoThread }},
		"methods":  {exact.Options{Methods: 50}, func(l exact.Losses) uint64 { return l.NoMethod }},
	} {
		t.Run(name, func(t *testing.T) {
			g := traced(t, jdk, tt.opt)
			g.order(t, "run 3 2")
			c := g.recorded(t)
			addUp(t, c)
			if tt.lost(c.Losses) == 0 || len(c.Losses.Notes()) == 0 {
				t.Errorf("losses %+v, notes %q", c.Losses, c.Losses.Notes())
			}
		})
	}
}

// A window between two moments has exactly the calls made meanwhile.
func TestSince(t *testing.T) {
	g := traced(t, jdks(t)[0], exact.Options{}, exact.NoC1Inlining)
	g.order(t, "run 1 10")
	before := g.truth(t)
	earlier, err := g.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	g.order(t, "run 1 5")
	c, err := g.Since(earlier)
	if err != nil {
		t.Fatal(err)
	}
	truth := g.truth(t)
	for path, n := range before {
		truth[path] -= n
	}
	maps.DeleteFunc(truth, func(_ string, n uint64) bool { return n == 0 })
	compare(t, seen(c, truth), truth)
}

// The error for a JVM without the flag names the remedy.
func TestFlag(t *testing.T) {
	for _, jdk := range jdks(t) {
		g := startGuest(t, jdk)
		_, err := Attach(g.PID(), exact.Options{})
		if err == nil || !strings.Contains(err.Error(), "-XX:+DTraceMethodProbes") {
			t.Errorf("%d: %v", jdk.Version, err)
		}
	}
}
