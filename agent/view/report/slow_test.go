package report_test

import (
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// The slowest calls, with what each waited for.
func TestSlow(t *testing.T) {
	p := sinktest.CountedWall(300)
	stack := func(frames ...symbol.Frame) (list []symbol.Symbol) {
		for _, f := range frames {
			list = append(list, symbol.Intern(f))
		}
		return list
	}
	const ms = float64(time.Millisecond)
	p.Processes[1].Slow = []profile.SlowCall{
		{TID: 9, Thread: "http-2", Start: time.Unix(1_700_000_003, 0), Length: 50 * time.Millisecond,
			End: profile.CallUnwound, Parts: []profile.SlowPart{
				{Stack: stack(sinktest.Checkout, sinktest.Run), State: "running", Cause: "running", Time: 50 * ms},
			}},
		{TID: 8, Thread: "http-1", Start: time.Unix(1_700_000_002, 0), Length: 800 * time.Millisecond,
			Parts: []profile.SlowPart{
				{Stack: stack(sinktest.Futex, sinktest.Total, sinktest.Checkout, sinktest.Run), State: "blocked",
					Cause: "socket", Time: 700 * ms},
				{Stack: stack(sinktest.Get, sinktest.Checkout, sinktest.Run), State: "running", Cause: "running",
					Time: 100 * ms},
			}},
	}
	f := sinktest.Reparse(t, sinktest.MustPprofOf(t, p, sink.OfEvents(profile.Wall)|sink.CallCounts|sink.Slow))
	text := sinktest.Show(t, report.Slow, f, nil)
	t.Log("\n" + text)
	for _, want := range []string{
		"the 2 slowest of 300 calls of com.acme.Shop.checkout", "   1  800.00ms",
		"http-1: socket 700.00ms, running 100.00ms",
		"700.00ms …e.Shop.checkout > com.acme.Cart.total", "   2  ≤50.00ms", "its return was not seen",
	} {
		if !strings.Contains(strings.ReplaceAll(text, "\n  ", " "), want) && !strings.Contains(text, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if err := report.Slow(new(strings.Builder), sinktest.MustPprofOf(t, p, sink.OfEvents(profile.Wall)),
		nil); err == nil || !strings.Contains(err.Error(), "--slow=METHOD") {
		t.Errorf("without slow calls: %v", err)
	}
}

// Of several windows, the slowest calls of all are shown, each with its window.
func TestSlowOfWindows(t *testing.T) {
	w := sink.NewWindows(sink.OfEvents(profile.Wall) | sink.CallCounts | sink.Slow)
	for window := range 3 {
		p := sinktest.CountedWall(300)
		p.Start = p.Start.Add(time.Duration(window) * p.Duration)
		for i := range profile.MaxSlowCalls {
			length := time.Duration(900-100*window-i) * time.Millisecond
			p.Processes[1].Slow = append(p.Processes[1].Slow, profile.SlowCall{TID: 8, Thread: "http-1", Start: p.Start,
				Length: length,
				Parts: []profile.SlowPart{{Stack: []symbol.Symbol{symbol.Intern(sinktest.Checkout)}, State: "running",
					Cause: "running", Time: float64(length)}}})
		}
		if window == 1 {
			p.Processes[1].Slow[0].Length, p.Processes[1].Slow[0].Parts[0].Time = 890*time.Millisecond,
				float64(890*time.Millisecond)
		}
		if err := w.Add(p); err != nil {
			t.Fatal(err)
		}
	}
	several, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	f := sinktest.Reparse(t, several)
	for _, test := range []struct {
		of     *pprof.Profile
		wanted []string
		absent string
	}{
		{f, []string{"the 20 slowest of 900 calls", "window  call      took", "     1     1  900.00ms",
			"     2     1  890.00ms", "     1    19  882.00ms"}, "881.00ms"},
		{sinktest.WindowOf(t, f, 3), []string{"the 20 slowest of 300 calls", "     3     1  700.00ms"}, "890.00ms"},
	} {
		text := sinktest.Show(t, report.Slow, test.of, nil)
		for _, want := range test.wanted {
			if !strings.Contains(text, want) {
				t.Errorf("%q is missing from\n%s", want, text)
			}
		}
		if strings.Contains(text, test.absent) {
			t.Errorf("%q in\n%s", test.absent, text)
		}
	}
}
