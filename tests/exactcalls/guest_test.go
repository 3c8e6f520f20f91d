package exactcalls

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// jdks returns every JDK, each with its name.
func jdks(t *testing.T) []jvm.JDK {
	t.Helper()
	needs.Root(t, "tracing")
	return needs.JDKs(t)
}

// startGuest starts the guest that counts its calls. It ends with the test, or when it hangs.
func startGuest(t *testing.T, jdk jvm.JDK, flags ...string) *guests.Counted {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), 3*time.Minute)
	t.Cleanup(cancel)
	g, err := guests.StartCounted(ctx, jdk, flags...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	})
	return g
}

// A guest is a traced guest.
type guest struct {
	*guests.Counted
	*Session
}

// traced starts a guest and traces it from then on.
func traced(t *testing.T, jdk jvm.JDK, opt exact.Options, flags ...string) guest {
	t.Helper()
	return traceFrom(t, startGuest(t, jdk, append([]string{"-XX:+" + exact.Flag}, flags...)...), opt)
}

// traceFrom traces a guest from now on.
func traceFrom(t *testing.T, g *guests.Counted, opt exact.Options) guest {
	t.Helper()
	s, err := Attach(g.PID(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return guest{g, s}
}

// order makes the guest execute an order.
func (g guest) order(t *testing.T, format string, args ...any) {
	t.Helper()
	if _, err := g.Order(fmt.Sprintf(format, args...)); err != nil {
		t.Fatal(err)
	}
}

// recorded returns all calls, and ends recording.
func (g guest) recorded(t *testing.T) *Calls {
	t.Helper()
	if err := g.Stop(); err != nil {
		t.Fatal(err)
	}
	c, err := g.Since(nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// truth returns the guest's own counts of its calls.
func (g guest) truth(t *testing.T) guests.Contexts {
	t.Helper()
	truth, err := g.Truth()
	if err != nil {
		t.Fatal(err)
	}
	if len(truth) == 0 {
		t.Error("the guest did nothing")
	}
	return truth
}

// seen returns the contexts of c on the guest's own threads, without methods that the truth does
// not cover.
func seen(c *Calls, truth guests.Contexts) guests.Contexts {
	known, contexts := truth.Methods(), guests.Contexts{}
	for i, thread := range c.Threads {
		if !strings.HasPrefix(thread.Name, "exact-") {
			continue
		}
		tree := c.Trees[i]
		paths := make([]string, tree.Len()+1)
		paths[cct.Root] = thread.Name
		for id, node := range tree.Nodes() {
			if id == cct.Root {
				continue
			}
			paths[id] = paths[node.Parent]
			if name := node.Key.Value().Function; known[name] {
				paths[id] += " " + name
				contexts[paths[id]] += node.Self
			}
		}
	}
	return contexts
}

func compare(t *testing.T, got, want guests.Contexts) {
	t.Helper()
	shown, wrong := want.Diff(got, 10)
	for _, difference := range shown {
		t.Error(difference)
	}
	if wrong > len(shown) {
		t.Errorf("%d of %d contexts are wrong", wrong, len(want))
	}
}

// lineOf returns the line of Exact.java that contains text.
func lineOf(t *testing.T, text string) int32 {
	t.Helper()
	source, err := os.ReadFile("../guests/java/calls/Exact.java")
	if err != nil {
		t.Fatal(err)
	}
	before, _, found := strings.Cut(string(source), text)
	if !found {
		t.Fatalf("no line %q", text)
	}
	return int32(strings.Count(before, "\n") + 1)
}
