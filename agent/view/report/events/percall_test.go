package events_test

import (
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// 300 calls, below which threads ran for 0.9 s and waited for 6 s: 23 ms each. What is idle or
// elsewhere is none of it.
func TestPerCall(t *testing.T) {
	p := sinktest.Reparse(t, sinktest.MustPprofOf(t, sinktest.CountedWall(300),
		sink.OfEvents(profile.Wall)|sink.CallCounts))
	per, err := compare.ParsePer("calls:" + sinktest.Checkout.Function)
	if err != nil {
		t.Fatal(err)
	}
	text := sinktest.Show(t, events.PerCall(per), p, nil)
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
	if got, want := sinktest.Show(t, events.Wall, p, nil), sinktest.Show(t, events.Wall, plain, nil); got != want {
		t.Errorf("with calls:\n%s\nwithout:\n%s", got, want)
	}
	if err := events.PerCall(per)(new(strings.Builder), plain, nil); err == nil ||
		!strings.Contains(err.Error(), "--count=com.acme.Shop.checkout") {
		t.Errorf("without calls: %v", err)
	}
}
