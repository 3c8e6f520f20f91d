package exactcalls

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// watch records a program that runs by itself, for a while.
func watch(t *testing.T, jdk jvm.JDK, name string, length time.Duration) *Calls {
	t.Helper()
	programs := guests.Programs()
	i := slices.IndexFunc(programs, func(p guests.Program) bool { return p.Name == name })
	g, err := guests.Start(t.Context(), jdk, programs[i], guests.Flavour{Flags: []string{"-XX:+" + exact.Flag,
		exact.NoC1Inlining}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() }) // ends with the test at the latest
	s, err := Attach(g.PID(), exact.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	time.Sleep(length)
	if err := s.Stop(); err != nil {
		t.Fatal(err)
	}
	c, err := s.Since(nil)
	if err != nil {
		t.Fatal(err)
	}
	addUp(t, c)
	t.Logf("%d calls in %d contexts, %d methods unnamed, losses %+v", c.Calls, c.Tree().Len(), c.Unnamed, c.Losses)
	return c
}

var generated = regexp.MustCompile(`^guest\.Gen(\d+)\.(run|shift|scale)(\d+)$`)

// Unloaded classes leave their Method structures to others; the counts distinguish them.
func TestClassUnloading(t *testing.T) {
	for _, jdk := range jdks(t) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			t.Parallel()
			c := watch(t, jdk, "Churn", 4*time.Second)
			epochs := map[uint32]bool{}
			for e := range c.Graph.Edges() {
				epochs[e.Callee.Epoch] = true
			}
			pairs := 0
			for e, n := range c.Logical.Edges() {
				callee := generated.FindStringSubmatch(e.Callee.Value().Function)
				caller := generated.FindStringSubmatch(e.Caller.Value().Function)
				if callee != nil && callee[1] != callee[3] || callee != nil && caller != nil && caller[1] != callee[1] {
					t.Errorf("%v calls from %s to %s", n, e.Caller.Value().Function, e.Callee.Value().Function)
				}
				if callee != nil && caller != nil {
					pairs++
				}
			}
			if pairs < 20 || len(epochs) < 2 {
				t.Errorf("%d edges between generated methods, in %d epochs", pairs, len(epochs))
			}
		})
	}
}

// Contexts of virtual threads that continue after a pause are cut, which is reported; they are
// never attributed to another thread.
func TestVirtualThreads(t *testing.T) {
	found := jdks(t)
	jdk := found[len(found)-1]
	if jdk.Version < 21 {
		t.Skip("virtual threads came with JDK 21")
	}
	c := watch(t, jdk, "Virtuals", 3*time.Second)
	if notes := strings.Join(c.Losses.Notes(), "\n"); !strings.Contains(notes, "virtual threads") {
		t.Errorf("losses %+v, notes %q", c.Losses, notes)
	}
	var right, cut, wrong uint64
	for _, tree := range c.Trees {
		for id, node := range tree.Nodes() {
			if node.Depth == 0 || node.Key.Value().Function != "guest.Virtuals.shift" {
				continue
			}
			switch under := tree.Stack(id); {
			case contains(under, "guest.Virtuals.enterScale"):
				wrong += node.Self
			case contains(under, "guest.Virtuals.enterShift"):
				right += node.Self
			default:
				cut += node.Self
			}
		}
	}
	t.Logf("%d calls in the right context, %d in a part of it", right, cut)
	if wrong > 0 || right+cut == 0 {
		t.Errorf("%d of %d calls are in the context of another thread", wrong, right+cut+wrong)
	}
}

func contains(stack []symbol.Symbol, function string) bool {
	return slices.ContainsFunc(stack, func(s symbol.Symbol) bool { return s.Value().Function == function })
}
