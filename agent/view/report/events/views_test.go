package events_test

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/flame"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

func TestEventViewsGolden(t *testing.T) {
	for kind, view := range events.Views {
		kind := profile.EventKind(kind)
		stored := sinktest.Reparse(t, sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(kind)))
		sinktest.Golden(t, "events."+kind.String()+".golden", sinktest.Show(t, view, stored, nil))
		sinktest.Golden(t, "events."+kind.String()+".report.golden",
			sinktest.Show(t, report.Report, stored, &layout.Options{N: 1, Width: 60}))
	}
}

// The numbers of the written examples, which can be checked by hand, with sinktest.ShopEvents beside them.
func TestEventViews(t *testing.T) {
	for _, test := range []struct {
		kind  profile.EventKind
		lines []string
	}{
		{profile.Allocations, []string{
			// 6 + 3 + 1 MB of 60000, 90000 and 1 objects. The variance is 6²/100 + 3²/50 + 1²/1 =
			// 1.54 MB², of which 1.96 roots are 2.43 MB.
			"Allocations, in 10.00 s: 10.5MB (±24.3%), 150001 objects, from 151 events",
			// s = 0.6: root of 0.4² 0.36 + 0.6² 1.18 is 0.6947, times 1.96 is 1.36 MB of 10.
			"60.0%  ±13.6  6.3MB    60000     100  char[]",
			// s = 0.9: root of 0.1² 0.54 + 0.9² 1 is 0.9030, times 1.96 is 1.77 MB of 10.
			"90.0%  ±17.7  9.4MB   150000     150  com.acme.Shop.checkout",
			"60.0%  ±13.6  6.3MB    60000     100    young      char[]",
			"10.0%     ±?  1.0MB        1       1    humongous  byte[]",
		}},
		{profile.Locks, []string{
			"Locks, in 10.00 s: 800.00ms (±31.0%) of delay in 60 contentions, 12060",
			"75.1%  601.00ms         50        50      50  com.acme.Shop.checkout",
			"75.0%  600.00ms         30        30      30    block  old    com.acme.Cart",
			"24.9%  199.00ms         10     12010     410  com.acme.Cart.total",
			"Waits for work: 9.00s",
			"100.0%  9.00s       5  java.lang.Thread.run",
		}},
		{profile.Values, []string{
			"Values, in 10.00 s: 130 (±54.4%) values of 2 probes, from 13 events",
			"hotspot:object__alloc size",
			"100 executions, mean 35", // (1200 + 300 + 2000) / 100
			"30.0%          30       3     8-15  ##########",
			"60.0%          60       6    16-31  ####################",
			"10.0%          10       1  128-255  ###",
			"40.0%          40       4  com.acme.Cart.total",
			"30 executions",
			"66.7%          20       2  render",
		}},
		{profile.Pauses, []string{
			"java (pid 1234): stopped for 100.00ms in 14 pauses (1.00% of the time)",
			"80.0%    0.80%  80.00ms       4  20.00ms  …ctForAllocation, G1 Young Generation",
			"20.0%    0.20%  20.00ms      10   2.00ms  Cleanup",
		}},
		{profile.Faults, []string{
			"Page faults, in 10.00 s: 100 (±19.6%) first touches of memory, from 100 events",
			"80.0%      80      80  com.acme.Shop.checkout",
			"60.0%      60      60    young   com.acme.Cart.items +16",
			"20.0%      20      20    young   com.acme.Cart +0",
			"20.0%      20      20  G1ParScanThreadState::trim_queue(bool)",
			"20.0%      20      20    native  [unknown]",
		}},
		{profile.Barriers, []string{
			// 40 events of 256 cards and 20 of as many: 1.96 roots of 60 * 256² are 3887 of 15360.
			"Write barriers, in 10.00 s: 15360 (±25.3%) cards made dirty by stores into old",
			"66.7%  10240      40  com.acme.Shop.checkout",
			"50.0%   7680      30    old        com.acme.Cart",
			"16.7%   2560      10    humongous  java.lang.Object[]",
			"33.3%   5120      20  com.acme.Cart.total",
			"33.3%   5120      20    old        [unknown]",
		}},
		{profile.Exceptions, []string{
			"Exceptions, in 10.00 s: 40 (±31.0%) created with a stack trace, from 40 events",
			"75.0%          30      30  com.acme.Shop.checkout",
			"75.0%          30      30    java.lang.IllegalStateException",
			"25.0%          10      10  com.acme.Cart.total",
			"25.0%          10      10    com.acme.Missing",
		}},
		{profile.Cycles, []string{
			"Cycles, in 10.00 s: 10.00G cycles, 8.00G instructions, CPI 1.25, from 100",
			"90.0%  9.00G   37.5%  3.00G  3.00      90  java.util.HashMap.getNode",
			"10.0%  1.00G   62.5%  5.00G  0.20      10  do_futex",
		}},
	} {
		got := sinktest.Show(t, events.Views[test.kind], sinktest.MustPprofOf(t, sinktest.ShopEvents(),
			sink.OfEvents(test.kind)), nil)
		rest := got
		for _, line := range test.lines {
			_, after, found := strings.Cut(rest, line)
			if !found {
				t.Errorf("%v: no %q, in this order, in\n%s", test.kind, line, got)
				break
			}
			rest = after
		}
	}
}

// EventView is the view of the file's own kind; the others say how to record theirs.
func TestEventView(t *testing.T) {
	for kind := range events.Views {
		stored := sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(profile.EventKind(kind)))
		want := sinktest.Show(t, events.Views[kind], stored, nil)
		if got := sinktest.Show(t, events.View(stored), stored, nil); got != want {
			t.Errorf("EventView shows\n%s\ninstead of\n%s", got, want)
		}
		contexts := profile.EventKind(kind) != profile.Pauses
		if got := sinktest.Show(t, report.Report, stored, nil); !strings.HasPrefix(got, want) ||
			strings.Contains(got, "Calling contexts") != contexts || strings.Contains(got, "Hot methods") {
			t.Errorf("Report shows\n%s", got)
		}
		for other, view := range events.Views {
			if err := view(new(strings.Builder), stored, nil); (err == nil) != (other == kind) {
				t.Errorf("view %v of %v: %v", profile.EventKind(other), profile.EventKind(kind), err)
			}
		}
	}
	if events.View(sinktest.MustPprof(t, sinktest.Shop())) != nil {
		t.Error("time has a view of events")
	}
	err := events.Allocations(new(strings.Builder), sinktest.MustPprof(t, sinktest.Shop()), nil)
	if want := "the profile has no allocations: record some with vmprof-agent record -e alloc"; err == nil ||
		err.Error() != want {
		t.Errorf("allocations of time: %v", err)
	}
}

// What was counted has no interval. Beside estimates it is the same objects again, and stands
// apart.
func TestExactAllocations(t *testing.T) {
	exact := sinktest.Event{Labels: profile.EventLabels{Class: "A", What: "exact"}, Events: 3,
		Values: [3]float64{3, 3 * sinktest.Mib}}
	estimated := sinktest.Event{Labels: profile.EventLabels{Class: "B"}, Events: 1,
		Values: [3]float64{1, 1 * sinktest.Mib}}
	for _, test := range []struct {
		list   []sinktest.Event
		want   string
		absent string
	}{
		{[]sinktest.Event{exact}, "3.1MB (exact), 3 objects, from 3 events", "±"},
		{[]sinktest.Event{exact, estimated}, "Allocations, in 10.00 s: 1.0MB (±196.0%), 1 object,", "±  A"},
		{[]sinktest.Event{exact, estimated},
			"Every object was also counted: 3.1MB, 3 objects\n share  bytes  objects  class\n100.0%  3.1MB        3  " +
				"A\n", "4.2MB"},
	} {
		p := sinktest.Only(profile.Allocations)
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Allocations, test.list...)}
		got := sinktest.Show(t, events.Allocations, sinktest.MustPprof(t, p), nil)
		if !strings.Contains(got, test.want) || strings.Contains(got, test.absent) {
			t.Errorf("no %q, or a %q, in\n%s", test.want, test.absent, got)
		}
	}
}

// Values that are no numbers are ordered by how often they were there, and what does not fit is
// added up.
func TestValuesOrder(t *testing.T) {
	for _, test := range []struct {
		values []string
		n      int
		want   string
	}{
		{[]string{"16-31", "0", "-3--2", "18446744073709551615", "2-3", "-1"}, 2,
			"-3--2 -1 0 2-3 16-31 18446744073709551615"},
		{[]string{"16-31", "x", "8-15"}, 0, "16-31 x 8-15"},
		{[]string{"16-31", "x", "8-15"}, 1, "16-31 2"}, // 2 more
		{[]string{"1-2-3", "0"}, 0, "1-2-3 0"},
	} {
		var list []sinktest.Event
		for i, value := range test.values {
			n := uint64(len(test.values) - i)
			list = append(list, sinktest.Event{Labels: profile.EventLabels{Probe: "p", Value: value}, Events: n,
				Values: [3]float64{float64(n)}})
		}
		p := sinktest.Only(profile.Values)
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Values, list...)}
		got := sinktest.Show(t, events.Values, sinktest.MustPprof(t, p), &layout.Options{N: test.n})
		_, table, _ := strings.Cut(got, "value\n")
		table, _, _ = strings.Cut(table, " share")
		var order []string
		for _, line := range strings.Split(strings.TrimSpace(table), "\n") {
			order = append(order, strings.Fields(line)[3])
		}
		if got := strings.Join(order, " "); got != test.want {
			t.Errorf("%q are in the order %s, want %s", test.values, got, test.want)
		}
	}
}

// More numbers than there are powers of two are not buckets, and are bounded as texts are.
func TestValuesBounded(t *testing.T) {
	var list []sinktest.Event
	for i := range 1000 {
		list = append(list, sinktest.Event{Labels: profile.EventLabels{Probe: "p", Value: strings.Repeat("7", i%20+1) +
			"-" + strings.Repeat("8", i/20%20+1)}, Events: 1, Values: [3]float64{1}})
	}
	p := sinktest.Only(profile.Values)
	p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.Values, list...)}
	got := sinktest.Show(t, events.Values, sinktest.MustPprof(t, p), nil)
	if lines := strings.Count(got, "\n"); lines > 40 || !strings.Contains(got, "380 more\n") {
		t.Errorf("%d lines:\n%s", lines, got)
	}
}

// The times of two VMs do not add up to a part of the recording.
func TestSafepointsOfProcesses(t *testing.T) {
	p := sinktest.Only(profile.Pauses)
	second := *p.Processes[1]
	second.PID = 5
	p.Processes = append(p.Processes, &second)
	got := sinktest.Show(t, events.Safepoints, sinktest.MustPprof(t, p), nil)
	for _, want := range []string{"java (pid 1234): stopped for 100.00ms in 14 pauses (1.00% of the time)\n",
		"java (pid 5): stopped for 100.00ms"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	unknown := sinktest.MustPprof(t, p)
	unknown.DurationNanos = 0
	if got := sinktest.Show(t, events.Safepoints, unknown, nil); !strings.Contains(got, "(- of the time)") {
		t.Errorf("without a duration:\n%s", got)
	}
}

// Views of events keep to the width, whatever they show, and bound the parts of a method.
func TestEventViewsWidth(t *testing.T) {
	long := strings.Repeat("com.acme.", 40) + "Cart"
	for kind, view := range events.Views {
		kind := profile.EventKind(kind)
		var list []sinktest.Event
		for i := range 8 {
			frame := sinktest.Checkout
			frame.Function = long + ".checkout"
			list = append(list, sinktest.Event{Frames: []symbol.Frame{frame}, Labels: profile.EventLabels{
				Class: long, Place: "humongous", What: "block", Field: string(rune('a' + i)), Offset: int32(i),
				Probe: "a probe", Value: string(rune('a'+i)) + long,
			}, Events: 123456, Values: [3]float64{9999999, 9999999, 9999999}})
		}
		p := sinktest.Only(kind)
		p.Processes[1].Comm = "a long command"
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(kind, list...)}
		stored := sinktest.MustPprof(t, p)
		for _, line := range strings.Split(sinktest.Show(t, view, stored, nil), "\n") {
			if n := utf8.RuneCountInString(line); n > 79 {
				t.Errorf("%v: %d columns: %s", kind, n, line)
			}
		}
		if kind == profile.Locks || kind == profile.Faults {
			if got := sinktest.Show(t, view, stored, nil); !strings.Contains(got, "  3 more\n") {
				t.Errorf("%v: parts are not bounded:\n%s", kind, got)
			}
			if got := sinktest.Show(t, view, stored, new(layout.Options)); strings.Contains(got, "more\n") {
				t.Errorf("%v: not all parts are shown:\n%s", kind, got)
			}
		}
	}
}

// Negative values, and sums beyond 63 bits, are errors and no nonsense.
func TestEventViewsRefuse(t *testing.T) {
	for kind, view := range events.Views {
		for _, value := range []int64{-1, 1 << 62} {
			stored := sinktest.MustPprofOf(t, sinktest.ShopEvents(), sink.OfEvents(profile.EventKind(kind)))
			for _, s := range stored.Sample {
				s.Value[0] = value
			}
			stored.Sample = append(stored.Sample, stored.Sample[0])
			if err := view(new(strings.Builder), stored, nil); err == nil {
				t.Errorf("%v: the value %d is shown", profile.EventKind(kind), value)
			}
		}
		empty := sinktest.MustPprofOf(t, &profile.Profile{}, sink.OfEvents(profile.EventKind(kind)))
		if got := sinktest.Show(t, report.Report, empty, nil); strings.Contains(got, "NaN") ||
			!strings.Contains(got, "events: 0 "+profile.EventKind(kind).String()+", 0 lost") {
			t.Errorf("nothing of %v is shown as\n%s", profile.EventKind(kind), got)
		}
	}
}

// Who ended waits has a table, and its frames count for no method that waits: only the tree has
// them.
func TestWokenBy(t *testing.T) {
	marker := func(text string) symbol.Frame {
		return symbol.Frame{Function: text, SystemName: text, Kind: symbol.KindMarker}
	}
	own := []symbol.Frame{sinktest.Futex, sinktest.Checkout, sinktest.CallStub, sinktest.Run}
	by := func(labels profile.EventLabels, seconds float64, frames ...symbol.Frame) sinktest.Event {
		labels.Place, labels.What = "blocked", "monitor"
		return sinktest.Event{Frames: append(frames, own...), Labels: labels, Events: 10,
			Values: [3]float64{10, seconds * 1e9}}
	}
	p := sinktest.Only(profile.OffCPU)
	p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(profile.OffCPU,
		by(profile.EventLabels{Class: "pool-1"}, 3, sinktest.Run, sinktest.Total, sinktest.Enter, sinktest.Futex,
			marker("[woken by pool-*]")),
		by(profile.EventLabels{Class: "pool-2"}, 2, sinktest.Run, sinktest.Total, sinktest.Enter, sinktest.Futex,
			marker("[woken by pool-*]")),
		by(profile.EventLabels{Class: "main", Field: "nginx", Offset: 77}, 1, sinktest.Futex,
			marker("[woken by nginx: main]")),
		by(profile.EventLabels{Class: "[timer]"}, 2, marker("[timer]"), marker("[woken by the kernel]")),
		by(profile.EventLabels{}, 2),
	)}
	stored := sinktest.MustPprof(t, p)
	for _, sample := range stored.Sample {
		if comm := sample.Label["waker_comm"]; len(comm) > 0 && (comm[0] != "nginx" ||
			sample.NumLabel["waker_pid"][0] != 77) {
			t.Errorf("%v %v", sample.Label, sample.NumLabel)
		}
	}
	for _, test := range []struct {
		view sinktest.ViewFunc
		want []string
		not  string
	}{
		{events.OffCPU, []string{
			" share    time  waits      mean  method / cause\n100.0%  10.00s     50  200.00ms  " +
				"com.acme.Shop.checkout\n",
			"share   time  waits      mean  woken by / in method\n50.0%  5.00s     20  250.00ms  pool-*\n50.0%  " +
				"5.00s     20  250.00ms    com.acme.Cart.total\n20.0%  2.00s     10  200.00ms  [timer]\n10.0%  1.00s " +
				"    10  100.00ms  nginx: main\n",
		}, "java.lang.Thread.run"},
		{report.Methods, []string{"100.0% 10.00s  100.0% 10.00s  [k] do_futex\n"}, "com.acme.Cart.total"},
		{report.Tree, []string{
			"+-do_futex [k] s:2.00s(20.0%) d:10.00s(100.0%)\n", "+-[woken by pool-*] s:0ns(0.0%) d:5.00s(50.0%)\n",
			"+-ObjectMonitor::enter [n] s:0ns(0.0%) d:5.00s(50.0%)\n",
			"+-com.acme.Cart.total [j] s:0ns(0.0%) d:5.00s(50.0%)\n",
			"+-java.lang.Thread.run [i] s:5.00s(50.0%) d:5.00s(50.0%)\n", "+-[timer] s:2.00s(20.0%)",
		}, "\x00"},
	} {
		got := sinktest.Show(t, test.view, stored, nil)
		rest := got
		for _, want := range test.want {
			_, after, found := strings.Cut(rest, want)
			if !found {
				t.Errorf("no %q in\n%s", want, got)
			}
			rest = after
		}
		if strings.Contains(got, test.not) {
			t.Errorf("%q in\n%s", test.not, got)
		}
	}
	flames, err := flame.Read(stored)
	if err != nil || len(flames) != 1 {
		t.Fatal(len(flames), err)
	}
}

// Waits are in the application's method, whatever package of the class library waits for it.
// Allocations are in the innermost one, and the application's follow.
func TestApplicationSite(t *testing.T) {
	library := func(names ...string) (stack []symbol.Frame) {
		for _, name := range names {
			stack = append(stack, symbol.Frame{Function: name, Kind: symbol.KindJIT, Mapping: sinktest.Jit})
		}
		return stack
	}
	reads := library("sun.nio.ch.SocketChannelImpl.read", "sun.security.ssl.SSLSocketImpl.read",
		"sun.nio.cs.StreamDecoder.readBytes", "java.io.BufferedReader.readLine")
	cleaner := library("java.lang.ref.ReferenceQueue.remove", "jdk.internal.ref.CleanerImpl.run",
		"java.lang.Thread.run")
	for _, test := range []struct {
		kind  profile.EventKind
		view  sinktest.ViewFunc
		stack []symbol.Frame
		want  []string
	}{
		{profile.Wall, events.Wall, append(reads, sinktest.Total, sinktest.Run), []string{"  com.acme.Cart.total\n"}},
		{profile.OffCPU, events.OffCPU, append(reads, sinktest.Total, sinktest.Run),
			[]string{"  com.acme.Cart.total\n"}},
		{profile.Locks, events.Locks, append(library("java.util.Hashtable.get"), sinktest.Total, sinktest.Run),
			[]string{"  com.acme.Cart.total\n"}},
		{profile.Wall, events.Wall, cleaner, []string{"  jdk.internal.ref.CleanerImpl.run\n"}},
		{profile.Allocations, events.Allocations, append(library("java.util.HashMap.resize"), sinktest.Total,
			sinktest.Run),
			[]string{"  java.util.HashMap.resize\n", "  com.acme.Cart.total\n"}},
	} {
		e := sinktest.Event{Frames: test.stack, Labels: profile.EventLabels{Class: "C", Place: "blocked",
			What: "enter"}, Events: 20, Values: [3]float64{20, 2e9, 2e9}}
		p := sinktest.Only(test.kind)
		p.Processes[1].Events = []*profile.Events{sinktest.EventsOf(test.kind, e)}
		got := sinktest.Show(t, test.view, sinktest.MustPprof(t, p), nil)
		for _, want := range test.want {
			if !strings.Contains(got, want) {
				t.Errorf("%v: no %q in\n%s", test.kind, want, got)
			}
		}
	}
}
