package report_test

import (
	"bytes"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// A context that is too light to be shown leaves its mark with the caller that is.
func TestTreeLiftsMarks(t *testing.T) {
	p := sinktest.ShopChained()
	for share, want := range map[float64][]string{
		0: {"HashMap.getNode [ia] ", "HashMap.get [i] ", "Cart.total [jf] ", "do_futex [kf] ", "Shop.checkout [ij] ",
			"Fib.fib [ju] "},
		1:  {"HashMap.getNode [ia] ", "HashMap.get [i] ", "Cart.total [jf] ", "Shop.checkout [ijf] "},
		5:  {"HashMap.getNode [ja] ", "Cart.total [jf] ", "Shop.checkout [ijaf] "},
		60: {"Cart.total [jaf] ", "Shop.checkout [ijaf] ", "(call_stub) [s] "},
	} {
		got := sinktest.Show(t, report.Tree, sinktest.MustPprof(t, p), &layout.Options{MinShare: share})
		for _, want := range want {
			if !strings.Contains(got, want) {
				t.Errorf("from %g%% on: no %q in\n%s", share, want, got)
			}
		}
	}
	// The mark is about contexts, and the hot methods are hot in whatever context.
	if got := sinktest.Show(t, report.Methods, sinktest.MustPprof(t, p), nil); strings.Contains(got, "ambiguous") ||
		!strings.Contains(got, "[ij] java.util.HashMap.getNode") {
		t.Errorf("methods are marked:\n%s", got)
	}
}

// Without a column of entries, or with one of zeros, nothing is said of them.
func TestTreeWithoutEntries(t *testing.T) {
	p := sinktest.MustPprof(t, sinktest.ShopPartial())
	for _, s := range p.Sample {
		s.Value[2] = 0
	}
	for name, p := range map[string]*pprof.Profile{"zeros": p, "none": sinktest.MustPprof(t, sinktest.Shop())} {
		if got := sinktest.Show(t, report.Tree, p, nil); strings.Contains(got, " e:") ||
			strings.Contains(got, "entered") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	p.Sample[0].Value[2] = -1
	p.Sample[1].Value[2] = 1
	var out bytes.Buffer
	if err := report.Tree(&out, p, nil); err == nil || !strings.Contains(err.Error(), "negative") {
		t.Errorf("negative entries: %v", err)
	}
}

// caller returns a profile with the given self counts by path, outermost method first.
func callers(contexts map[string]uint64) *profile.Profile {
	var stacks []sinktest.Sampled
	for path, weight := range contexts {
		var frames []symbol.Frame
		for _, name := range strings.Fields(path) {
			frames = append([]symbol.Frame{{Function: name, Kind: symbol.KindJIT, Mapping: sinktest.Jit}}, frames...)
		}
		stacks = append(stacks, sinktest.Sampled{Weight: weight, Frames: frames})
	}
	return &profile.Profile{Processes: []*profile.Process{{PID: 1,
		Threads: []*profile.Thread{{Tree: sinktest.ContextTree(stacks...)}}}}}
}

// TestTreeFigure12 rebuilds the part of Figure 12 of Inoue and Nakatani (OOPSLA 2009) below two
// transactions, whose callees are all shown, and compares line by line: the same counts, the same
// ratios, the same nodes left out. What the figure does not show is "hidden", none of it 0.3% of
// the 242,000 samples; "rest" is the other transactions.
func TestTreeFigure12(t *testing.T) {
	const (
		custom   = "TransactionManager.goManual CustomerReportTransaction.process"
		delivery = "TransactionManager.goManual DeliveryTransaction.process"
	)
	contexts := map[string]uint64{
		"TransactionManager.goManual": 2953,
		custom:                        74758,
		custom + " Company.getCustomerByLastName": 454,
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
	contexts[custom+" Company.getCustomerByLastName hidden1"] = 400
	contexts[custom+" Company.getCustomerByLastName hidden2"] = 334
	got := sinktest.Show(t, report.Tree, sinktest.MustPprof(t, callers(contexts)), &layout.Options{MinShare: 0.3})
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
		{"direct", map[string]uint64{"main": 1, "main " + deep("fib", 999): 3, "main " + deep("fib", 1000): 4, "main " +
			deep("fib", 1000) + " x": 2},
			[]string{"+-main [j] s:1(10.0%) d:10(100.0%)", " +-fib [j] (recursive, 1000 levels) s:7(70.0%) d:9(90.0%)",
				"  +-x [j] s:2(20.0%) d:2(20.0%)"}},
		{"branching off", map[string]uint64{"fib fib": 2, "fib fib x": 3, "fib fib fib fib": 5},
			[]string{"+-fib [j] (recursive, 2 levels) s:2(20.0%) d:10(100.0%)",
				" +-fib [j] (recursive, 2 levels) s:5(50.0%) d:5(50.0%)", " +-x [j] s:3(30.0%) d:3(30.0%)"}},
		{"twice on a path", map[string]uint64{"a a b a a c": 10},
			[]string{"+-a [j] (recursive, 2 levels) s:0(0.0%) d:10(100.0%)", " +-b [j] s:0(0.0%) d:10(100.0%)",
				"  +-a [j] (recursive, 2 levels) s:0(0.0%) d:10(100.0%)", "   +-c [j] s:10(100.0%) d:10(100.0%)"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := sinktest.Show(t, report.Tree, sinktest.MustPprof(t, callers(test.contexts)), nil)
			lines := strings.Split(got, "\n")
			if len(lines) != len(test.want)+3 || strings.Join(lines[1:len(lines)-2], "\n") != strings.Join(test.want,
				"\n") {
				t.Errorf("Tree =\n%s\nwant\n%s", got, strings.Join(test.want, "\n"))
			}
		})
	}
}

// Mutual recursion is not folded, but neither does it walk off the screen.
func TestTreeIndentIsBounded(t *testing.T) {
	got := sinktest.Show(t, report.Tree, sinktest.MustPprof(t,
		callers(map[string]uint64{strings.Repeat("ping pong ", 500): 1})), nil)
	if want := "{999} pong [j] s:1(100.0%) d:1(100.0%)"; !strings.Contains(got, want) {
		t.Errorf("no %q", want)
	}
	for _, line := range strings.Split(got, "\n") {
		if n := utf8.RuneCountInString(line); n > 79 {
			t.Fatalf("line of %d columns: %s", n, line)
		}
	}
}

// An idle process has an empty profile, which says why.
func TestMethodsOfNothing(t *testing.T) {
	got := sinktest.Show(t, report.Methods, sinktest.MustPprof(t,
		&profile.Profile{Duration: time.Second, Processes: []*profile.Process{{PID: 1,
			Threads: []*profile.Thread{{TID: 1}}}}}), nil)
	if !strings.Contains(got, "No samples: the processes used no CPU time") {
		t.Errorf("%s", got)
	}
	some, err := stacks.Where(sinktest.MustPprof(t, sinktest.Shop()), "false",
		func(*pprof.Sample) (bool, error) { return false, nil })
	if err != nil {
		t.Fatal(err)
	}
	if got := sinktest.Show(t, report.Methods, some, nil); !strings.Contains(got,
		"No samples: no sample meets the condition") {
		t.Errorf("%s", got)
	}
}
