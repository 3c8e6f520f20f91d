package report_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

func TestReportGolden(t *testing.T) {
	stored := sinktest.MustPprof(t, sinktest.Shop())
	sinktest.Golden(t, "shop.methods.golden", sinktest.Show(t, report.Methods, stored, nil))
	sinktest.Golden(t, "shop.tree.golden", sinktest.Show(t, report.Tree, stored, nil))
	sinktest.Golden(t, "shop.narrow.golden", sinktest.Show(t, report.Report, stored,
		&layout.Options{N: 5, MinShare: 5, Width: 60}))
	var text bytes.Buffer
	if err := sink.FormatText.Encode(&text, sinktest.Shop(), sink.ContentOf(sinktest.Shop())); err != nil {
		t.Fatal(err)
	}
	sinktest.Golden(t, "shop.txt.golden", text.String())
}

// A window in which nothing ran is shown too.
func TestReportOfNothing(t *testing.T) {
	var text bytes.Buffer
	if err := sink.FormatText.Encode(&text, &profile.Profile{}, sink.ContentOf(&profile.Profile{})); err != nil {
		t.Fatal(err)
	}
	if want := "samples: 0, 0 lost, 0 truncated\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, &text)
	}
}

// A stored file gives the same views as the window that it was made from.
func TestReportOfStoredFile(t *testing.T) {
	stored := sinktest.MustPprof(t, sinktest.Shop())
	want := sinktest.Show(t, report.Report, stored, nil)
	if got := sinktest.Show(t, report.Report, sinktest.Reparse(t, stored), nil); got != want {
		t.Errorf("after reading back:\n%s\ninstead of\n%s", got, want)
	}
}

func TestReportFitsTerminal(t *testing.T) {
	for _, line := range strings.Split(sinktest.Show(t, report.Report, sinktest.MustPprof(t, sinktest.Shop()), nil),
		"\n") {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
}

func TestViewsOfOtherProfiles(t *testing.T) {
	got := sinktest.Show(t, report.Report, sinktest.Foreign("alloc_space", "bytes", 100, 28), nil)
	for _, want := range []string{"alloc_space", "100.0%        128B", "[unknown]", "losses not recorded"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	nameless := sinktest.Foreign("cpu", "nanoseconds", 1)
	m := &pprof.Mapping{ID: 1, File: "/lib/libc.so.6"}
	nameless.Mapping = []*pprof.Mapping{m}
	nameless.Location = []*pprof.Location{{ID: 1, Mapping: m, Address: 0x1234}}
	nameless.Sample[0].Location = nameless.Location
	if got := sinktest.Show(t, report.Methods, nameless, nil); !strings.Contains(got, "[n] [unknown] libc.so.6") {
		t.Errorf("a location without lines is shown as\n%s", got)
	}
}

func TestViewErrors(t *testing.T) {
	const half = 1 << 62
	for name, p := range map[string]*pprof.Profile{
		"a difference":    sinktest.Foreign("samples", "count", 3, -1),
		"wraps":           sinktest.Foreign("samples", "count", half, half),
		"no sample types": {},
	} {
		for i, view := range []sinktest.ViewFunc{report.Methods, report.Tree, report.Report} {
			var out bytes.Buffer
			if err := view(&out, p, nil); err == nil || out.Len() > 0 {
				t.Errorf("%s: view %d = %v with %d bytes written, want an error and nothing", name, i, err, out.Len())
			}
		}
	}
	for i, view := range []sinktest.ViewFunc{report.Methods, report.Tree, report.Report} {
		if err := view(sinktest.BrokenPipe{}, sinktest.MustPprof(t, sinktest.Shop()), nil); !errors.Is(err,
			io.ErrClosedPipe) {
			t.Errorf("view %d = %v, want %v", i, err, io.ErrClosedPipe)
		}
	}
}

// A stored file may hold more contexts than are kept: the views say so, and lose no sample.
func TestViewsOfTooManyContexts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	p := sinktest.Foreign("samples", "count", 41, 1)
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: "entries", Unit: "count"})
	p.Sample[0].Value, p.Sample[1].Value = []int64{41, 3}, []int64{1, 5}
	f := &pprof.Function{ID: 1, Name: "deep"}
	l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f}}}
	p.Function, p.Location = []*pprof.Function{f}, []*pprof.Location{l}
	p.Sample[0].Location = make([]*pprof.Location, cct.DefaultLimit+1)
	for i := range p.Sample[0].Location {
		p.Sample[0].Location[i] = l
	}
	for _, view := range []sinktest.ViewFunc{report.Methods, report.Tree} {
		got := sinktest.Show(t, view, p, nil)
		for _, want := range []string{"too many contexts: 42 samples", "too many contexts: 8 entries are omitted",
			"deep"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	}
}

func TestFooterIsBounded(t *testing.T) {
	p := sinktest.Foreign("samples", "count", 1)
	for i := range 1000 {
		p.Comments = append(p.Comments, fmt.Sprintf("comment %d", i))
	}
	var out bytes.Buffer
	if err := report.Footer(&out, p, 0); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 101 || !strings.HasSuffix(out.String(), "902 more comments\n") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}

// The tree and the hot methods of events are in their own unit, and waits for work do not drown
// contention.
func TestTreeOfEvents(t *testing.T) {
	for _, test := range []struct {
		kind profile.EventKind
		view sinktest.ViewFunc
		want []string
	}{
		{profile.Allocations, report.Tree, []string{
			"Calling contexts with 0.3% or more of 10.5MB allocated\n",
			"+-com.acme.Shop.checkout [j] s:0B(0.0%) d:10.5MB(100.0%)\n",
			"+-MemAllocator::allocate [n] s:9.4MB(90.0%) d:9.4MB(90.0%)\n",
		}},
		{profile.Allocations, report.Methods,
			[]string{"100.0%      10.5MB  100.0%      10.5MB  [n] MemAllocator::allocate\n"}},
		{profile.Locks, report.Tree, []string{
			"of 800.00ms delay\n", "+-com.acme.Cart.total [j] s:0ns(0.0%) d:199.00ms(24.9%)\n",
			"omitted: waits for work, 9.00s\n",
		}},
		{profile.Locks, report.Methods, []string{"omitted: waits for work, 9.00s\n"}},
		{profile.Cycles, report.Tree, []string{"of 10.00G cycles\n", "+-do_futex [k] s:1.00G(10.0%) d:1.00G(10.0%)\n"}},
		{profile.Values, report.Methods,
			[]string{" 46.2%         60   76.9%        100  [j] com.acme.Shop.checkout\n"}},
	} {
		got := sinktest.Show(t, test.view, sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(test.kind)),
			nil)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: no %q in\n%s", test.kind, want, got)
			}
		}
	}
}
