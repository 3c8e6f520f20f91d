package httpd

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"

	pprof "github.com/google/pprof/profile"
)

func TestMerge(t *testing.T) {
	a, b := shop(0), shop(1)
	a.Counts.Dropped, b.Counts.Dropped = map[string]uint64{"ring_full": 2}, map[string]uint64{"ring_full": 3}
	p, err := merge([]*profile.Profile{a, b}, kinds[0], maxPageNodes)
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
	for _, w := range []*profile.Profile{a, b} {
		for _, proc := range w.Processes {
			for _, thread := range proc.Threads {
				want += thread.Tree.Total()
			}
		}
	}
	if samples != int64(want) {
		t.Errorf("%d samples, want %d", samples, want)
	}
	if c := sinktest.Metadata(t, p).Samples; c.Folded != 3200 || profile.Sum(c.Dropped)+profile.Sum(c.Discarded) != 5 {
		t.Errorf("the account is %+v, want 3200 samples and 5 lost", c)
	}
	if a.Counts.Dropped["ring_full"] != 2 {
		t.Error("a window was changed")
	}
}

// The hottest contexts are kept, the others folded below their callers, and nothing is lost.
func TestMergeLimit(t *testing.T) {
	all, err := merge([]*profile.Profile{shop(0)}, kinds[0], maxPageNodes)
	if err != nil {
		t.Fatal(err)
	}
	const limit = 9
	p, err := merge([]*profile.Profile{shop(0)}, kinds[0], limit)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	perProcess := func(p *pprof.Profile) map[string]int64 {
		sum := make(map[string]int64)
		for _, s := range p.Sample {
			sum[s.Label[processLabel][0]] += s.Value[1]
		}
		return sum
	}
	if got, want := perProcess(p), perProcess(all); !maps.Equal(got, want) {
		t.Errorf("CPU time is %v, want %v", got, want)
	}
	rare := 0
	contexts := make(map[string]bool)
	for _, s := range p.Sample {
		names := s.Label[processLabel][0]
		for i := len(s.Location) - 1; i >= 0; i-- {
			name := s.Location[i].Line[0].Function.Name
			if name == profile.RareStacks {
				rare++
				if i != 0 {
					t.Errorf("something is below %s: %v", profile.RareStacks, s.Location)
				}
				break
			}
			names += "/" + name
			contexts[names] = true
		}
	}
	if len(contexts) > limit || len(contexts) < limit-2 || rare == 0 {
		t.Errorf("%d contexts and %d for the rest, want up to %d and some", len(contexts), rare, limit)
	}
	if len(p.Function) >= len(all.Function) {
		t.Errorf("%d functions are left of %d", len(p.Function), len(all.Function))
	}
	if !slices.ContainsFunc(p.Comments, func(c string) bool { return strings.Contains(c, "rare stacks are merged") }) {
		t.Errorf("%q does not say what is merged", p.Comments)
	}
}
