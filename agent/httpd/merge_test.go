package httpd

import (
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

func TestMerge(t *testing.T) {
	a, b := shop(0), shop(1)
	a.Counts.Dropped, b.Counts.Dropped = map[string]uint64{"ring_full": 2}, map[string]uint64{"ring_full": 3}
	p, err := merge([]*agent.Profile{a, b}, maxStacks)
	if err != nil {
		t.Fatal(err)
	}
	var samples int64
	for _, s := range p.Sample {
		samples += s.Value[0]
		if len(s.Label[processLabel]) != 1 {
			t.Errorf("a sample of process %q", s.Label[processLabel])
		}
	}
	var want uint64
	for _, w := range []*agent.Profile{a, b} {
		for _, proc := range w.Processes {
			for _, thread := range proc.Threads {
				want += thread.Tree.Total()
			}
		}
	}
	if samples != int64(want) {
		t.Errorf("%d samples, want %d", samples, want)
	}
	accounts := 0
	for _, c := range p.Comments {
		if strings.HasPrefix(c, "samples: ") {
			accounts++
			if !strings.Contains(c, "samples: 3200") || !strings.Contains(c, "5 lost") {
				t.Errorf("the accounts are %q, want 3200 samples and 5 lost", c)
			}
		}
	}
	if accounts != 1 {
		t.Errorf("%d accounts in %q, want one", accounts, p.Comments)
	}
	if a.Counts.Dropped["ring_full"] != 2 {
		t.Error("a window was changed")
	}
}

// The hottest stacks are kept, and what is left out is said.
func TestMergeLimit(t *testing.T) {
	all, err := merge([]*agent.Profile{shop(0)}, maxStacks)
	if err != nil {
		t.Fatal(err)
	}
	p, err := merge([]*agent.Profile{shop(0)}, 3)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	if len(p.Sample) != 3 || p.Sample[0].Value[0] < 130 || len(p.Function) >= len(all.Function) {
		t.Errorf("%d samples, the first %v, of %d functions", len(p.Sample), p.Sample[0].Value, len(p.Function))
	}
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, "rarest stacks are left out") }) {
		t.Errorf("%q does not say what is left out", p.Comments)
	}
}
