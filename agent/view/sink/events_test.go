package sink_test

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestPprofEventsGolden(t *testing.T) {
	for _, kind := range sinktest.AllKinds() {
		sinktest.Golden(t, "events."+kind.String()+".pprof.golden",
			sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(kind)).String())
	}
}

func TestPprofEventsTypes(t *testing.T) {
	for _, test := range []struct {
		kind                 profile.EventKind
		types, first, period string
	}{
		{profile.Allocations, "alloc_objects/count alloc_space/bytes events/count", "alloc_space", "space/bytes 1"},
		{profile.Locks, "acquisitions/count contentions/count delay/nanoseconds events/count", "delay",
			"contentions/count 1"},
		{profile.Values, "executions/count sum/count events/count", "executions", "executions/count 1"},
		{profile.Pauses, "pauses/count stopped/nanoseconds events/count", "stopped", "stopped/nanoseconds 1"},
		{profile.Faults, "faults/count events/count", "faults", "faults/count 1"},
		{profile.Barriers, "dirty_cards/count events/count", "dirty_cards", "dirty_cards/count 1"},
		{profile.Exceptions, "exceptions/count events/count", "exceptions", "exceptions/count 1"},
		{profile.Cycles, "cycles/count instructions/count events/count", "cycles", "cycles/count 1"},
	} {
		stored := sinktest.Reparse(t, sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(test.kind)))
		var types []string
		for _, s := range stored.SampleType {
			types = append(types, s.Type+"/"+s.Unit)
		}
		period := fmt.Sprintf("%s/%s %d", stored.PeriodType.Type, stored.PeriodType.Unit, stored.Period)
		if got := strings.Join(types, " "); got != test.types || stored.DefaultSampleType != test.first ||
			period != test.period {
			t.Errorf("%v: types %s, default %s, period %s", test.kind, got, stored.DefaultSampleType, period)
		}
		if kind, ok := stacks.EventKindOf(stored); kind != test.kind || !ok {
			t.Errorf("%v: EventKindOf = %v, %v", test.kind, kind, ok)
		}
	}
	if kind, ok := stacks.EventKindOf(sinktest.MustPprof(t, sinktest.Shop())); ok {
		t.Errorf("time is %v", kind)
	}
}

// The labels of a row are those of its sample, also after the file was read back.
func TestPprofEventsLabels(t *testing.T) {
	labels := profile.EventLabels{Class: "C", Place: "old", What: "w", Field: "f", Offset: 0, Probe: "p", Value: "v"}
	for _, test := range []struct {
		kind   profile.EventKind
		labels profile.EventLabels
		want   string
	}{
		{profile.Allocations, profile.EventLabels{Class: "C", Place: "old", What: "exact"},
			"class=C comm=java generation=old kind=exact runtime=hotspot service=shop.service thread=http-1 pid=1234 " +
				"tid=1240"},
		{profile.Locks, profile.EventLabels{Class: "C", Place: "old", What: "spin"},
			"class=C comm=java kind=spin place=old runtime=hotspot service=shop.service thread=http-1 pid=1234 " +
				"tid=1240"},
		{profile.Barriers, profile.EventLabels{Class: "C", Place: "old"},
			"class=C comm=java place=old runtime=hotspot service=shop.service thread=http-1 pid=1234 tid=1240"},
		{profile.Faults, labels, "class=C comm=java field=f kind=w place=old probe=p runtime=hotspot " +
			"service=shop.service thread=http-1 value=v offset=0 pid=1234 tid=1240"},
		{profile.Faults, profile.EventLabels{Class: "C", Offset: -8},
			"class=C comm=java runtime=hotspot service=shop.service thread=http-1 offset=-8 pid=1234 tid=1240"},
		{profile.Faults, profile.EventLabels{Place: "stack", Offset: 8},
			"comm=java place=stack runtime=hotspot service=shop.service thread=http-1 pid=1234 tid=1240"},
	} {
		p := sinktest.Only(test.kind)
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(test.kind,
			sinktest.Event{Labels: test.labels, Events: 1})}
		stored := sinktest.Reparse(t, sinktest.MustPprof(t, p))
		var got []string
		for key, values := range stored.Sample[0].Label {
			got = append(got, key+"="+values[0])
		}
		slices.Sort(got)
		var numbers []string
		for key, values := range stored.Sample[0].NumLabel {
			numbers = append(numbers, fmt.Sprintf("%s=%d", key, values[0]))
		}
		slices.Sort(numbers)
		if got := strings.Join(append(got, numbers...), " "); got != test.want {
			t.Errorf("%v: labels\n%s, want\n%s", test.kind, got, test.want)
		}
	}
}

// Estimates are rounded so that the sum of each value stays, and what was observed is kept even if
// nothing is left of it.
func TestPprofEventsRounding(t *testing.T) {
	var list []sinktest.Event
	for range 10 {
		list = append(list, sinktest.Event{Frames: []symbol.Frame{sinktest.Checkout}, Events: 1,
			Values: [3]float64{0.25, 1.3}})
	}
	p := sinktest.Only(profile.Allocations)
	p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Allocations, list...)}
	stored := sinktest.MustPprof(t, p)
	var sums [3]int64
	for _, s := range stored.Sample {
		for i, v := range s.Value {
			sums[i] += v
		}
	}
	if want := [3]int64{3, 13, 10}; sums != want { // 2.5 rounds to 3
		t.Errorf("sums %d, want %d", sums, want)
	}
	if len(stored.Sample) != 10 {
		t.Errorf("%d samples, want 10", len(stored.Sample))
	}
}

func TestPprofEventsRefuses(t *testing.T) {
	for _, test := range []struct {
		kind   profile.EventKind
		events uint64
		values [profile.MaxEventValues]float64
		want   string
	}{
		{profile.Allocations, 1, [3]float64{math.NaN()}, "round alloc_objects: NaN is not a count"},
		{profile.Locks, 1, [3]float64{0, 0, -1}, "round delay: -1 is not a count"},
		{profile.Pauses, 1, [3]float64{1, 1e19}, "too large for the format"},
		{profile.Faults, 1 << 63, [3]float64{1}, "too many for the format"},
		{profile.Values, 1, [3]float64{1, math.NaN()}, "round sum: NaN is not a count"},
	} {
		p := sinktest.Only(test.kind)
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(test.kind,
			sinktest.Event{Events: test.events, Values: test.values})}
		if got, err := sink.Pprof(p, sink.ContentOf(p)); got != nil || err == nil ||
			!strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: Pprof = %v, %v, want an error with %q", test.kind, got, err, test.want)
		}
	}
	for _, content := range []sink.Content{
		sink.Time | sink.OfEvents(profile.Locks), sink.OfEvents(profile.Allocations) | sink.OfEvents(profile.Locks),
		sink.CallCounts | sink.OfEvents(profile.Cycles),
	} {
		if _, err := sink.Pprof(sinktest.ShopEvents(), content); err == nil ||
			!strings.Contains(err.Error(), "a separate file") {
			t.Errorf("content %b: %v", content, err)
		}
		if err := sink.Collapsed(new(bytes.Buffer), sinktest.ShopEvents(), content); err == nil {
			t.Errorf("content %b is collapsed", content)
		}
	}
}

// Sums of values may be negative, or too large to be kept.
func TestPprofEventsSums(t *testing.T) {
	for _, test := range []struct {
		sums, want []float64
		tooLarge   bool
	}{
		{[]float64{-5, 3, -0.5, -0.5}, []float64{-5, 3, -1, 0}, false},
		{[]float64{1e19, 3}, []float64{0, 0}, true},
		{[]float64{-1e19, 3}, []float64{0, 0}, true},
		{[]float64{math.Inf(1), 3}, []float64{0, 0}, true},
	} {
		var list []sinktest.Event
		for _, sum := range test.sums {
			list = append(list, sinktest.Event{Events: 1, Values: [3]float64{1, sum}})
		}
		window := sinktest.Only(profile.Values)
		window.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Values, list...)}
		p := sinktest.MustPprof(t, window)
		for i, s := range p.Sample {
			if s.Value[1] != int64(test.want[i]) {
				t.Errorf("%v: sum %d is %d", test.sums, i, s.Value[1])
			}
		}
		leftOut := slices.Contains(sinktest.Metadata(t, p).Rounding, stored.Rounding{Comm: "java", PID: 1234})
		if leftOut != test.tooLarge {
			t.Errorf("%v: the profile says that the sums are left out: %v", test.sums, leftOut)
		}
	}
}

func TestContentOfEvents(t *testing.T) {
	both := sinktest.Shop()
	both.Processes[1].Events = sinktest.ShopEvents().Processes[1].Events
	for _, test := range []struct {
		name string
		p    *profile.Profile
		want sink.Content
	}{
		{"locks only", sinktest.Only(profile.Locks), sink.OfEvents(profile.Locks)},
		{"several kinds", sinktest.ShopEvents(), sink.OfEvents(profile.Allocations)},
		{"time, too", both, sink.Time},
		{"nothing", &profile.Profile{}, sink.Time},
	} {
		if got := sink.ContentOf(test.p); got != test.want {
			t.Errorf("%s: content %b, want %b", test.name, got, test.want)
		}
	}
	if got := sink.Kinds(sinktest.ShopEvents()); !slices.Equal(got, sinktest.AllKinds()) {
		t.Errorf("Kinds = %v", got)
	}
	if got := sink.Kinds(sinktest.Shop()); got != nil {
		t.Errorf("Kinds of time = %v", got)
	}
	for _, content := range []sink.Content{sink.Time, sink.CallCounts, sink.Time | sink.CallCounts | sink.Entries} {
		if kind, ok := content.Events(); ok {
			t.Errorf("content %b is %v", content, kind)
		}
	}
}

// The first comment accounts for the events; how samples of time were taken is not said.
func TestPprofEventsAccounts(t *testing.T) {
	for _, test := range []struct {
		p    *profile.Profile
		want []string
	}{
		{sinktest.Only(profile.Allocations), []string{
			"events: 151 alloc, 8 lost (malformed 3, ring_full 5), 15000 hits of probes took 13ms of CPU time",
			"java (pid 1234): one event for each buffer that a thread fills, weighted by its size",
			"vmprof-agent 0.1.0",
		}},
		{sinktest.ShopEvents(), []string{
			"events: 151 alloc; of all kinds together 902, 8 lost (malformed 3, ring_full 5), 15000 hits of probes " +
				"took 13ms of CPU time",
			"java (pid 1234): one event for each buffer that a thread fills, weighted by its size",
			"vmprof-agent 0.1.0",
		}},
	} {
		if got := sinktest.Sentences(sinktest.MustPprof(t, test.p)); !slices.Equal(got, test.want) {
			t.Errorf("comments\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// Windows of events stay apart, and each has its account.
func TestWindowsOfEvents(t *testing.T) {
	w := sink.NewWindows(sink.OfEvents(profile.Locks))
	for range 2 {
		if err := w.Add(sinktest.ShopEvents()); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := w.Profile()
	if err != nil {
		t.Fatal(err)
	}
	if want := "events: 930 lock; of all kinds together 1804, 16 lost (malformed 6, ring_full 10), 30000 hits of " +
		"probes took 26ms of CPU time"; stored.Comments[0] != want {
		t.Errorf("comment %q, want %q", stored.Comments[0], want)
	}
	second, err := stacks.WindowOf(sinktest.Reparse(t, stored), 2)
	if err != nil {
		t.Fatal(err)
	}
	if want := "events: 465 lock; of all kinds together 902, 8 lost"; len(second.Sample) != 5 ||
		!strings.HasPrefix(second.Comments[0], want) {
		t.Errorf("window 2 has %d samples and the comment %q", len(second.Sample), second.Comments[0])
	}
	for _, comment := range second.Comments[1:] {
		if strings.HasPrefix(comment, "events: ") {
			t.Errorf("window 2 has the account of all windows: %q", comment)
		}
	}
	if got := sinktest.Show(t, events.Locks, second, nil); !strings.Contains(got, "75.0%  600.00ms") {
		t.Errorf("window 2 is\n%s", got)
	}
}

func TestCollapsedEvents(t *testing.T) {
	for _, test := range []struct {
		kind profile.EventKind
		want string
	}{
		{profile.Allocations, "java;java.lang.Thread.run;StubRoutines " +
			"(call_stub);com.acme.Shop.checkout;MemAllocator::allocate 9437184\n" +
			"java;java.lang.Thread.run;StubRoutines " +
			"(call_stub);com.acme.Shop.checkout;com.acme.Cart.total;MemAllocator::allocate 1048576\n"},
		{profile.Locks, "java;java.lang.Thread.run;StubRoutines " +
			"(call_stub);com.acme.Shop.checkout;ObjectMonitor::enter 601000000\n" +
			"java;java.lang.Thread.run;StubRoutines " +
			"(call_stub);com.acme.Shop.checkout;com.acme.Cart.total;ObjectMonitor::enter 199000000\n"},
		{profile.Pauses, "java;[unknown] 100000000\n"},
	} {
		var out bytes.Buffer
		if err := sink.Collapsed(&out, sinktest.ShopEvents(), sink.OfEvents(test.kind)); err != nil {
			t.Fatal(err)
		}
		if got := out.String(); got != test.want {
			t.Errorf("%v:\n%swant\n%s", test.kind, got, test.want)
		}
	}
}

// Notes that waits were not observed all the time are one for the processes of one name, in
// profiles of waits only.
func TestPartNotes(t *testing.T) {
	window := func(share float64, hits int) *profile.Profile {
		p := sinktest.ShopEvents()
		note := profile.PartNote{What: "waits for monitors", Kind: profile.Locks, Least: share, Most: share, Windows: 1,
			Why: fmt.Sprintf("%d hits", hits)}
		first := p.Processes[1]
		for _, e := range first.Events {
			if e.Kind == profile.Locks {
				e.Basis = []string{note.String()}
			}
		}
		second := *first
		second.PID = 4321
		p.Processes = append(p.Processes, &second)
		note.What = "waits of java.util.concurrent" // waits that no process has
		p.Comments = append(p.Comments, note.String())
		return p
	}
	for _, content := range []sink.Content{sink.Time, sink.OfEvents(profile.Allocations),
		sink.OfEvents(profile.Locks)} {
		w := sink.NewWindows(content)
		for i, share := range []float64{0.76, 0.43, 0.6} {
			if err := w.Add(window(share, 20+i)); err != nil {
				t.Fatal(err)
			}
		}
		var got []string
		for _, line := range sinktest.Sentences(sinktest.MustStored(t, w)) {
			if strings.Contains(line, "were observed") {
				got = append(got, line)
			}
		}
		slices.Sort(got)
		var want []string
		if content == sink.OfEvents(profile.Locks) {
			want = []string{
				"java (pid 1234, 4321): waits for monitors (lock) were observed 43 to 76 % of the time, in 3 " +
					"windows: 21 hits",
				"waits of java.util.concurrent (lock) were observed 43 to 76 % of the time, in 3 windows: 21 hits",
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%v: %q, want %q", content, got, want)
		}
	}
}
