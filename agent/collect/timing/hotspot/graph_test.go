//go:build linux && amd64

package hotspot

import (
	"fmt"
	"math"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/placement"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Frequencies of the blocks of methods with known loops, by the counts of C1's code of level 3, and
// what is chosen by them.
func TestLiveGraph(t *testing.T) {
	needs.Root(t, "to read a JVM")
	const rounds = 20_000
	for _, jdk := range needs.JDKs(t) {
		t.Run(fmt.Sprint(jdk.Version), func(t *testing.T) {
			g := startTimed(t, jdk, "work", rounds, 1, "-XX:TieredStopAtLevel=3")
			for _, test := range []struct {
				method string
				head   float64 // executions of the most frequent block in an invocation
				why    placement.Verdict
			}{
				{"Timed.work", 1, placement.Invoked},
				{"Timed.arithmetic", 1 + (rounds+rounds/4)/2, placement.Tight}, // run calls it, too
			} {
				flow := readFlow(t, g.PID(), test.method)
				var most float64
				for i := range flow.Blocks {
					most = max(most, float64(flow.Blocks[i].Count))
				}
				head := most / float64(flow.Blocks[0].Count)
				if math.Abs(head/test.head-1) > 0.02 {
					t.Errorf("%s: %.1f executions in an invocation, want %.1f; %+v", test.method, head, test.head, flow)
				}
				if points, why := placement.Select(Graph(flow), placement.Default); why != test.why || len(points) > 0 {
					t.Errorf("%s: %v, %s; want: %s", test.method, points, why, test.why)
				}
				// With a lower distance the loop is chosen.
				opt := placement.Default
				opt.Distance = 1
				if points, _ := placement.Select(Graph(flow), opt); (len(points) == 1) != (test.why == placement.Tight) {
					t.Errorf("%s: %v", test.method, points)
				}
			}
		})
	}
}

// readFlow waits until the VM has counted for some time.
func readFlow(t *testing.T, pid int, method string) *vmruntime.MethodFlow {
	t.Helper()
	m, err := ParseMethod(method)
	if err != nil {
		t.Fatal(err)
	}
	p, err := attachProcess(t.Context(), proc.DefaultRoot, proc.NewPool(proc.PoolOptions{}), pid, m)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var flow *vmruntime.MethodFlow
	if late := wait.Until(t.Context(), wait.Long, "the VM counts in "+method, func() (bool, error) {
		if err = p.search(); err != nil {
			return false, nil
		}
		const enough = 2000
		flow, err = p.flow()
		return err == nil && flow.Counted && flow.Blocks[0].Count > enough, nil
	}); late != nil {
		t.Fatalf("%v: %v", late, err)
	}
	return flow
}

func TestParseMethod(t *testing.T) {
	for text, want := range map[string]Method{
		"java.util.HashMap.get":  {"java.util.HashMap.get", ""},
		"java.util.HashMap::get": {"java.util.HashMap.get", ""},
		"java/util/HashMap.get(Ljava/lang/Object;)Ljava/lang/Object;": {"java.util.HashMap.get",
			"(Ljava/lang/Object;)Ljava/lang/Object;"},
	} {
		if got, err := ParseMethod(text); got != want || err != nil {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "get", ".get", "HashMap.", "HashMap.get(Ljava"} {
		if m, err := ParseMethod(text); err == nil {
			t.Errorf("%q is %+v", text, m)
		}
	}
}

// flow reads the control flow of the method, of its first copy.
func (p *process) flow() (*vmruntime.MethodFlow, error) {
	reader, ok := p.vm.(vmruntime.FlowReader)
	if !ok || len(p.methods) == 0 {
		return nil, fmt.Errorf("control flow of %s: %w", p.method, vmruntime.ErrUnknown)
	}
	return reader.Flow(p.methods[0])
}
