package branch

import (
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

var _ calls.Engine = (*Engine)(nil)

func TestLimit(t *testing.T) {
	rate := func(hz, stride, samples int) profile.Rate {
		return profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride, Samples: samples}}
	}
	for _, c := range []struct {
		source   source
		in, want profile.Rate
	}{
		{stacks, rate(100, 7, 32), rate(100, 1, 32)},
		{stacks, rate(1<<20, 1, 1000), rate(10_000, 1, 32)},
		{stacks, rate(-1, 0, 0), rate(0, 1, 1)},
		{retired, rate(1, 1, 1), rate(1, MinPeriod, 1)},
		{retired, rate(1, 10*MinPeriod, 0), rate(1, 10*MinPeriod, 1)},
	} {
		if got := c.source.limit(c.in); got != c.want {
			t.Errorf("%v becomes %v, want %v", c.in, got, c.want)
		}
	}
}

func TestCost(t *testing.T) {
	got := cost([]bpf.BranchCost{{Samples: 3, Ns: 900}, {}, {Samples: 1, Ns: 1500, Empty: 1}})
	if want := (budget.Cost{Hits: 4, HitTime: 600 * time.Nanosecond}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := cost(nil); got != (budget.Cost{}) {
		t.Errorf("of nothing: %+v", got)
	}
}

// Notes report every loss, summed up over CPUs, and mention no loss that did not occur.
func TestNotes(t *testing.T) {
	got := notes([]bpf.BranchCost{{Stubs: 3}, {Stubs: 1, Untyped: 7}, {Samples: 9, Empty: 9}})
	if len(got) != 2 || !strings.Contains(got[0], "branch: 4 virtual") || !strings.Contains(got[1], "7 records") {
		t.Errorf("%q", got)
	}
	if got := notes(nil); got != nil {
		t.Errorf("%q", got)
	}
}
