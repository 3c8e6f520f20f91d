package sink_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

type viewFunc func(io.Writer, *pprof.Profile, *sink.ViewOptions) error

func show(t *testing.T, view viewFunc, p *pprof.Profile, opts *sink.ViewOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := view(&out, p, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestReportGolden(t *testing.T) {
	stored := mustPprof(t, shop())
	golden(t, "shop.methods.golden", show(t, sink.Methods, stored, nil))
	golden(t, "shop.tree.golden", show(t, sink.Tree, stored, nil))
	golden(t, "shop.narrow.golden", show(t, sink.Report, stored, &sink.ViewOptions{N: 5, MinShare: 5, Width: 60}))
	var text bytes.Buffer
	if err := sink.FormatText.Encode(&text, shop()); err != nil {
		t.Fatal(err)
	}
	golden(t, "shop.txt.golden", text.String())
}

// A window in which nothing ran is shown too.
func TestReportOfNothing(t *testing.T) {
	var text bytes.Buffer
	if err := sink.FormatText.Encode(&text, &profile.Profile{}); err != nil {
		t.Fatal(err)
	}
	if want := "samples: 0, 0 lost, 0 truncated\n"; !strings.Contains(text.String(), want) {
		t.Errorf("no %q in\n%s", want, &text)
	}
}

// A stored file gives the same views as the window that it was made from.
func TestReportOfStoredFile(t *testing.T) {
	stored := mustPprof(t, shop())
	want := show(t, sink.Report, stored, nil)
	if got := show(t, sink.Report, reparse(t, stored), nil); got != want {
		t.Errorf("after reading back:\n%s\ninstead of\n%s", got, want)
	}
}

func TestReportFitsTerminal(t *testing.T) {
	for _, line := range strings.Split(show(t, sink.Report, mustPprof(t, shop()), nil), "\n") {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Errorf("line of %d columns: %s", n, line)
		}
	}
}

// caller returns a profile with the given self counts by path, outermost method first.
func callers(contexts map[string]uint64) *profile.Profile {
	var stacks []sampled
	for path, weight := range contexts {
		var frames []symbolize.Frame
		for _, name := range strings.Fields(path) {
			frames = append([]symbolize.Frame{{Function: name, Kind: symbolize.KindJIT, Mapping: jit}}, frames...)
		}
		stacks = append(stacks, sampled{weight, frames})
	}
	return &profile.Profile{Processes: []*profile.Process{{PID: 1, Threads: []*profile.Thread{{Tree: contextTree(stacks...)}}}}}
}

// TestTreeFigure12 rebuilds the part of Figure 12 of Inoue and Nakatani (OOPSLA 2009) below two transactions, whose
// callees are all shown, and compares line by line: the same counts, the same ratios, the same nodes left out. What
// the figure does not show is "hidden", none of it 0.3% of the 242,000 samples; "rest" is the other transactions.
func TestTreeFigure12(t *testing.T) {
	const (
		report   = "TransactionManager.goManual CustomerReportTransaction.process"
		delivery = "TransactionManager.goManual DeliveryTransaction.process"
	)
	contexts := map[string]uint64{
		"TransactionManager.goManual": 2953,
		report:                        74758,
		report + " Company.getCustomerByLastName": 454,
		delivery:                 122,
		delivery + " hidden":     54,
		delivery + " preprocess": 74438,
		delivery + " preprocess District.removeOldNewOrders":        780,
		delivery + " preprocess District.removeOldNewOrders hidden": 103,
		delivery + " preprocess District.removeOldOrders":           691,
		delivery + " preprocess District.removeOldOrders hidden":    299,
		delivery + " preprocess hidden":                             593,
		"TransactionManager.goManual rest":                          221376 - 2953 - 75946 - 77080,
		"elsewhere":                                                 242000 - 221376,
	}
	// 734 samples below getCustomerByLastName: callees of which none is in the figure.
	contexts[report+" Company.getCustomerByLastName hidden1"] = 400
	contexts[report+" Company.getCustomerByLastName hidden2"] = 334
	got := show(t, sink.Tree, mustPprof(t, callers(contexts)), &sink.ViewOptions{MinShare: 0.3})
	want := strings.Join([]string{
		"+-TransactionManager.goManual [j] s:2953(1.2%) d:221376(91.5%)",
		" +-DeliveryTransaction.process [j] s:122(0.1%) d:77080(31.9%)",
		"  +-preprocess [j] s:74438(30.8%) d:76904(31.8%)",
		"   +-District.removeOldOrders [j] s:691(0.3%) d:990(0.4%)",
		"   +-District.removeOldNewOrders [j] s:780(0.3%) d:883(0.4%)",
		" +-CustomerReportTransaction.process [j] s:74758(30.9%) d:75946(31.4%)",
		"  +-Company.getCustomerByLastName [j] s:454(0.2%) d:1188(0.5%)",
		" +-rest [j] s:65397(27.0%) d:65397(27.0%)",
		"+-elsewhere [j] s:20624(8.5%) d:20624(8.5%)",
	}, "\n")
	if _, lines, _ := strings.Cut(got, "\n"); !strings.HasPrefix(lines, want+"\nmarks:") {
		t.Errorf("Tree =\n%s\nwant\n%s", got, want)
	}
}

func TestTreeRecursion(t *testing.T) {
	deep := func(cycle string, n int) string { return strings.TrimSpace(strings.Repeat(cycle+" ", n)) }
	for _, test := range []struct {
		name     string
		contexts map[string]uint64
		want     []string
	}{
		{"direct", map[string]uint64{"main": 1, "main " + deep("fib", 999): 3, "main " + deep("fib", 1000): 4, "main " + deep("fib", 1000) + " x": 2},
			[]string{"+-main [j] s:1(10.0%) d:10(100.0%)", " +-fib [j] (recursive, 1000 levels) s:7(70.0%) d:9(90.0%)", "  +-x [j] s:2(20.0%) d:2(20.0%)"}},
		{"branching off", map[string]uint64{"fib fib": 2, "fib fib x": 3, "fib fib fib fib": 5},
			[]string{"+-fib [j] (recursive, 2 levels) s:2(20.0%) d:10(100.0%)", " +-fib [j] (recursive, 2 levels) s:5(50.0%) d:5(50.0%)", " +-x [j] s:3(30.0%) d:3(30.0%)"}},
		{"twice on a path", map[string]uint64{"a a b a a c": 10},
			[]string{"+-a [j] (recursive, 2 levels) s:0(0.0%) d:10(100.0%)", " +-b [j] s:0(0.0%) d:10(100.0%)",
				"  +-a [j] (recursive, 2 levels) s:0(0.0%) d:10(100.0%)", "   +-c [j] s:10(100.0%) d:10(100.0%)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := show(t, sink.Tree, mustPprof(t, callers(test.contexts)), nil)
			lines := strings.Split(got, "\n")
			if len(lines) != len(test.want)+3 || strings.Join(lines[1:len(lines)-2], "\n") != strings.Join(test.want, "\n") {
				t.Errorf("Tree =\n%s\nwant\n%s", got, strings.Join(test.want, "\n"))
			}
		})
	}
}

// Mutual recursion is not folded, but neither does it walk off the screen.
func TestTreeIndentIsBounded(t *testing.T) {
	got := show(t, sink.Tree, mustPprof(t, callers(map[string]uint64{strings.Repeat("ping pong ", 500): 1})), nil)
	if want := "{999} pong [j] s:1(100.0%) d:1(100.0%)"; !strings.Contains(got, want) {
		t.Errorf("no %q", want)
	}
	for _, line := range strings.Split(got, "\n") {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Fatalf("line of %d columns: %s", n, line)
		}
	}
}

// foreign is a profile as other tools write them.
func foreign(sampleType, unit string, values ...int64) *pprof.Profile {
	p := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: sampleType, Unit: unit}}}
	for _, v := range values {
		p.Sample = append(p.Sample, &pprof.Sample{Value: []int64{v}})
	}
	return p
}

func TestViewsOfOtherProfiles(t *testing.T) {
	got := show(t, sink.Report, foreign("alloc_space", "bytes", 100, 28), nil)
	for _, want := range []string{"alloc_space", "100.0%        128B", "[unknown]", "losses not recorded"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	nameless := foreign("cpu", "nanoseconds", 1)
	m := &pprof.Mapping{ID: 1, File: "/lib/libc.so.6"}
	nameless.Mapping = []*pprof.Mapping{m}
	nameless.Location = []*pprof.Location{{ID: 1, Mapping: m, Address: 0x1234}}
	nameless.Sample[0].Location = nameless.Location
	if got := show(t, sink.Methods, nameless, nil); !strings.Contains(got, "[n] [unknown] libc.so.6") {
		t.Errorf("a location without lines is shown as\n%s", got)
	}
}

func TestViewErrors(t *testing.T) {
	const half = 1 << 62
	for name, p := range map[string]*pprof.Profile{
		"a difference":    foreign("samples", "count", 3, -1),
		"wraps":           foreign("samples", "count", half, half),
		"no sample types": {},
	} {
		for i, view := range []viewFunc{sink.Methods, sink.Tree, sink.Report} {
			var out bytes.Buffer
			if err := view(&out, p, nil); err == nil || out.Len() > 0 {
				t.Errorf("%s: view %d = %v with %d bytes written, want an error and nothing", name, i, err, out.Len())
			}
		}
	}
	for i, view := range []viewFunc{sink.Methods, sink.Tree, sink.Report} {
		if err := view(brokenPipe{}, mustPprof(t, shop()), nil); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("view %d = %v, want %v", i, err, io.ErrClosedPipe)
		}
	}
}

// A stored file may hold more contexts than are kept: the views say so, and lose no sample.
func TestViewsOfTooManyContexts(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	p := foreign("samples", "count", 41, 1)
	p.SampleType = append(p.SampleType, &pprof.ValueType{Type: "entries", Unit: "count"})
	p.Sample[0].Value, p.Sample[1].Value = []int64{41, 3}, []int64{1, 5}
	f := &pprof.Function{ID: 1, Name: "deep"}
	l := &pprof.Location{ID: 1, Line: []pprof.Line{{Function: f}}}
	p.Function, p.Location = []*pprof.Function{f}, []*pprof.Location{l}
	p.Sample[0].Location = make([]*pprof.Location, cct.DefaultLimit+1)
	for i := range p.Sample[0].Location {
		p.Sample[0].Location[i] = l
	}
	for _, view := range []viewFunc{sink.Methods, sink.Tree} {
		got := show(t, view, p, nil)
		for _, want := range []string{"too many contexts: 42 samples", "too many contexts: 8 entries are left out", "deep"} {
			if !strings.Contains(got, want) {
				t.Errorf("no %q in\n%s", want, got)
			}
		}
	}
}

func TestFooterIsBounded(t *testing.T) {
	p := foreign("samples", "count", 1)
	for i := range 1000 {
		p.Comments = append(p.Comments, fmt.Sprintf("comment %d", i))
	}
	var out bytes.Buffer
	if err := sink.Footer(&out, p, 79); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), "\n"); n != 101 || !strings.HasSuffix(out.String(), "901 more comments\n") {
		t.Errorf("%d lines:\n%s", n, &out)
	}
}
