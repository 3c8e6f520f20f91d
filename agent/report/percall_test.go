package report_test

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/report"
	"github.com/vmprof-agent/vmprof-agent/agent/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// counted is a window of wall time with so many calls of the shop's checkout, as record --count has them.
func counted(calls float64) *profile.Profile {
	p := sinktest.Only(profile.Wall)
	graph := new(profile.Graph)
	graph.Add(profile.Edge{
		Caller: symbolize.Intern(symbolize.Frame{Function: "[unknown caller]", Kind: symbolize.KindMarker}), Site: profile.Site{Offset: -1},
		Callee: symbolize.Intern(symbolize.Frame{Function: sinktest.Checkout.Function, Kind: symbolize.KindJIT}),
	}, calls)
	p.Processes[1].Calls = []*profile.Calls{{Engine: stored.EngineCount, Basis: profile.Counted, Graph: graph}}
	return p
}

// 300 calls, below which threads ran for 0.9 s and waited for 6 s: 23 ms each. What is idle or elsewhere is none of it.
func TestPerCall(t *testing.T) {
	p := sinktest.Reparse(t, sinktest.MustPprofOf(t, counted(300), sink.OfEvents(profile.Wall)|sink.CallCounts))
	per, err := report.ParsePer("calls:" + sinktest.Checkout.Function)
	if err != nil {
		t.Fatal(err)
	}
	text := sinktest.Show(t, report.PerCall(per), p, nil)
	t.Log("\n" + text)
	for _, want := range []string{
		"com.acme.Shop.checkout, in 10.00 s: 300 calls, 23.00ms each",
		"monitor 20.00ms, running 3.00ms",
		"87.0%  20.00ms",
		"13.0%   3.00ms",
		"com.acme.Cart.total",
	} {
		if !strings.Contains(strings.ReplaceAll(text, "\n  ", " "), want) {
			t.Errorf("%q is missing", want)
		}
	}
	// The other views are as without the calls.
	plain := sinktest.Reparse(t, sinktest.MustPprofOf(t, sinktest.Only(profile.Wall), sink.OfEvents(profile.Wall)))
	if got, want := sinktest.Show(t, report.Wall, p, nil), sinktest.Show(t, report.Wall, plain, nil); got != want {
		t.Errorf("with calls:\n%s\nwithout:\n%s", got, want)
	}
	if err := report.PerCall(per)(new(strings.Builder), plain, nil); err == nil || !strings.Contains(err.Error(), "--count=com.acme.Shop.checkout") {
		t.Errorf("without calls: %v", err)
	}
}
