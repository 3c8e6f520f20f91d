package sink_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
)

// Two profiles of allocations by class: the measure of Figure 11 of Inoue and Nakatani (OOPSLA 2009).
func TestCompareByClass(t *testing.T) {
	other := only(profile.Allocations)
	other.Processes[1].Events = []*profile.Events{eventsOf(profile.Allocations,
		event{labels: profile.EventLabels{Class: "char[]"}, events: 4, values: [3]float64{4, 4 * mib}},
		event{labels: profile.EventLabels{Class: "java.lang.String"}, events: 3, values: [3]float64{3, 3 * mib}},
		event{labels: profile.EventLabels{}, events: 3, values: [3]float64{3, 3 * mib}},
	)}
	a, b := mustPprof(t, only(profile.Allocations)), mustPprof(t, other)
	got := compared(t, a, b, &sink.CompareOptions{By: sink.ByClass, Width: 79})
	for _, want := range []string{
		"Comparison of alloc_space by class\n", "A: a.pb.gz, 10.0MB allocated, 3 classes\n",
		"overlap        70.00  of 100", // 40 of char[] and 30 of java.lang.String
		" 60.00%   40.00%  -20.00%  char[]\n", "  0.00%   30.00%  +30.00%  [unknown]\n", " 10.00%    0.00%  -10.00%  byte[]\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	// 60000 + 90000 + 1 objects against 4 + 3 + 3: the smaller shares are 39.9997 of char[] and 30 of strings.
	got = compared(t, a, b, &sink.CompareOptions{By: sink.ByClass, SampleType: "alloc_objects"})
	if want := "overlap        70.00"; !strings.Contains(got, want) {
		t.Errorf("no %q in\n%s", want, got)
	}
	got = compared(t, a, b, &sink.CompareOptions{By: sink.ByMethod})
	if want := "overlap         0.00"; !strings.Contains(got, want) || !strings.Contains(got, "MemAllocator::allocate") {
		t.Errorf("no %q in\n%s", want, got)
	}
}

// Waits for work have no part in how alike delays are.
func TestCompareLocks(t *testing.T) {
	a, b := only(profile.Locks), only(profile.Locks)
	rows := b.Processes[1].Events[0].Rows
	rows[4].Values[2] = 1 // of waits
	for _, by := range []sink.By{sink.ByMethod, sink.ByContext, sink.ByClass} {
		got := compared(t, mustPprof(t, a), mustPprof(t, b), &sink.CompareOptions{By: by})
		for _, want := range []string{"Comparison of delay by", "800.00ms delay", "overlap       100.00", "No share differs", "left out: waits for work\n"} {
			if !strings.Contains(got, want) {
				t.Errorf("by %v: no %q in\n%s", by, want, got)
			}
		}
	}
}

func TestCompareByClassRefuses(t *testing.T) {
	for _, test := range []struct {
		a, b *profile.Profile
		want string
	}{
		{only(profile.Allocations), shop(), "a has values of type alloc_objects or alloc_space or events, b of type samples or cpu"},
		{shop(), shop(), "a does not tell classes of objects: compare by method, or record with -e alloc or -e lock"},
		{only(profile.Allocations), only(profile.Locks), "a has allocations, b has locks: compare files of one kind"},
	} {
		err := sink.Compare(new(bytes.Buffer), sink.Named{Name: "a", Profile: mustPprof(t, test.a)}, sink.Named{Name: "b", Profile: mustPprof(t, test.b)},
			&sink.CompareOptions{By: sink.ByClass})
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("Compare = %v, want an error with %q", err, test.want)
		}
	}
}
