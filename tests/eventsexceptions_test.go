package tests

import (
	"math"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// Exceptions by class and by the method that creates them are those of the program: each one where
// the budget has room. A burst for which it has none is observed part of the time: their shares are
// right, and the sum is not called exact unless it is. Those without a stack trace are not counted,
// and the profile says so.
func TestRecordExceptions(t *testing.T) {
	needs.Root(t, "sampling")
	for _, jdk := range append(needs.Fetched(t, "8"), needs.JDKs(t)...) {
		t.Run(jdk.String(), func(t *testing.T) { recordExceptions(t, jdk) })
	}
}

func recordExceptions(t *testing.T, jdk jvm.JDK) {
	guest := startEvents(t, jdk, events.Throwing)
	const threads, amount = 2, 20_000
	if _, err := guest.Run(threads, amount); err != nil { // compiles the methods
		t.Fatal(err)
	}
	for _, budget := range []string{"50%", "1%"} {
		p, truth := recordEvents(t, guest, "exceptions", threads, amount, "--budget="+budget)
		rows, notes := rowsOf(t, p, "exceptions"), strings.Join(p.Comments, "\n")
		own := func(r events.Row) bool { return r.Has("guest.Throwing.work") }
		all, times := float64(events.Count(events.Where(rows, own))), 0.0
		for _, thrown := range truth.Thrown {
			times += float64(thrown.Times)
		}
		total, err := eventviews.TotalOf(p, profile.Exceptions)
		if err != nil {
			t.Fatal(err)
		}
		exact := total.Within == 0 && total.Missed == 0
		t.Logf("budget %s: %.0f ± %v", budget, total.Sum, total.Within)
		for _, thrown := range truth.Thrown {
			of := events.Where(rows, func(r events.Row) bool { return r.Class == thrown.Class && r.Has(thrown.Method) })
			n, sum := float64(events.Count(of)), events.Sum(of, 0)
			t.Logf("budget %s: %s in %s: %.0f of %d, %.0f of %.0f records", budget, thrown.Class, thrown.Method, sum,
				thrown.Times, n, all)
			if exact && sum != float64(thrown.Times) || budget == "50%" && math.Abs(sum-float64(thrown.Times)) > total.Within {
				t.Errorf("budget %s: %s in %s: %.0f, %d in truth; exact: %v", budget, thrown.Class, thrown.Method, sum,
					thrown.Times, exact)
			}
			// They come in turn, so that a slice of the time has no more than one round too many.
			share := float64(thrown.Times) / times
			if off := math.Abs(n/all - share); off > 4*math.Sqrt(share*(1-share)/all) {
				t.Errorf("budget %s: %s in %s: %.2f%% of the records, %.2f%% in truth", budget, thrown.Class,
					thrown.Method, 100*n/all, 100*share)
			}
			for _, r := range of {
				if leaf := r.Frames[0].Function; strings.HasSuffix(leaf, ".<init>") && leaf != thrown.Method ||
					strings.Contains(leaf, "fillInStackTrace") {
					t.Errorf("the stack of %s begins with %s", thrown.Class, leaf)
				}
			}
		}
		for _, r := range rows {
			if strings.HasSuffix(r.Class, "$Light") {
				t.Errorf("an exception without a stack trace: %+v", r)
			}
		}
		if !strings.Contains(notes, "without a stack trace are not counted") {
			t.Errorf("no note:\n%s", notes)
		}
	}
}
