package top

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/cause"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

func TestMethods(t *testing.T) {
	m := filled(20)
	list, samples := m.methods(selection{"shop.service", 10 * time.Second})
	if samples != 500 { // five windows of 100
		t.Fatalf("%d samples, want 500", samples)
	}
	first := list[0]
	if first.method.name != "org.acme.shop.catalogue.Index.find" || first.samples != 200 || first.share != 0.4 {
		t.Errorf("first is %+v", first)
	}
	if first.caller != "org.acme.shop.web.SearchController.handle" || first.callerShare != 1 {
		t.Errorf("its caller is %q, %v", first.caller, first.callerShare)
	}
	if _, all := m.methods(selection{"", 10 * time.Second}); all != 5*124 {
		t.Errorf("%d samples of all services, want %d", all, 5*124)
	}
	if _, all := m.methods(selection{"", Keep}); all != 20*124 {
		t.Errorf("%d samples of all windows, want %d", all, 20*124)
	}
}

func TestThreads(t *testing.T) {
	m := filled(5)
	list, _ := m.threads(selection{"", 2 * time.Second})
	var names []string
	for _, r := range list {
		names = append(names, r.label)
	}
	if want := "[http-nio-8080-exec-* worker-* C2 CompilerThre main GC Thread#*]"; fmt.Sprint(names) != want {
		t.Errorf("groups %v, want %v", names, want)
	}
}

func TestServices(t *testing.T) {
	rows := filled(20).services(10*time.Second, 30)
	all, first := rows[0], rows[1]
	if all.processes != 3 || math.Abs(all.cpus-0.62) > 1e-9 {
		t.Errorf("all: %d processes, %v CPUs", all.processes, all.cpus)
	}
	if first.name != "shop.service" || math.Abs(first.cpus-0.5) > 1e-9 || math.Abs(first.stopped-0.0015) > 1e-9 {
		t.Errorf("first: %+v", first)
	}
	if got, want := first.code, [profile.CodeKinds]float64{0.6, 0.09, 0.11, 0.14, 0.06, 0}; got != want {
		t.Errorf("shares %v, want %v", got, want)
	}
	if !math.IsNaN(first.alloc) || !math.IsNaN(first.delay) {
		t.Errorf("allocations %v and locks %v without a recording", first.alloc, first.delay)
	}
	// 20 windows of 2 s are the last 20 of 30 cells.
	if len(first.spark) != 30 || !math.IsNaN(first.spark[9]) || math.Abs(first.spark[10]-0.5) > 1e-9 ||
		math.Abs(first.spark[29]-0.5) > 1e-9 {
		t.Errorf("spark %v", first.spark)
	}
}

// Waits are of the program's methods, and those for a CPU are a figure of the service. Idle threads
// are no part of either.
func TestWaitRows(t *testing.T) {
	m := filled(3)
	p := process(4711, "shop.service")
	waits(p, cause.Park, 20*time.Millisecond,
		stack{"main", "a.main;a.ask;java.util.concurrent.FutureTask.get;n:wait;k:futex_wait", 10})
	waits(p, cause.Throttled, 10*time.Millisecond, stack{"main", "a.main;a.work;k:schedule", 20})
	waits(p, cause.Idle, time.Second, stack{"pool", "[idle];a.run;k:futex_wait", 2})
	m.ObserveEvents(profile.OffCPU, at(2, p))
	list, seconds := m.eventRows(profile.OffCPU, selection{"", 10 * time.Second})
	if len(list) != 2 || list[0].method.name != "a.ask" && list[1].method.name != "a.ask" || seconds != 2 {
		t.Fatalf("%+v in %v s", list, seconds)
	}
	if row := m.services(10*time.Second, 0)[1]; row.name != "shop.service" || math.Abs(row.queued-0.1) > 1e-9 {
		t.Errorf("%s: %v s a second, want 0.1", row.name, row.queued)
	}
	if row := m.services(10*time.Second, 0)[2]; row.queued != 0 {
		t.Errorf("%s: %v s a second, want 0", row.name, row.queued)
	}
	callers := m.callers(content{true, profile.OffCPU}, selection{"", 10 * time.Second},
		methodName{"a.ask", profile.GuestCode}, 0)
	if len(callers) != 2 || callers[1].method.name != "a.main" {
		t.Errorf("callers %+v", callers)
	}
}

func TestEventRows(t *testing.T) {
	m := filled(3)
	p := process(4711, "shop.service")
	events(p, profile.Allocations, "byte[]", 1000, stack{"main", "a;b", 300}, stack{"main", "a;c", 100})
	m.ObserveEvents(profile.Allocations, at(2, p))
	list, seconds := m.eventRows(profile.Allocations, selection{"", 10 * time.Second})
	if len(list) != 2 || list[0].method.name != "b" || list[0].label != "byte[]" || list[0].value != 300_000 ||
		list[0].caller != "a" || seconds != 2 {
		t.Fatalf("%+v in %v s", list, seconds)
	}
	// Of equal events the interval is the binomial one: 1.96 √(0.75·0.25/400).
	if half := list[0].share - list[0].interval.low; math.Abs(half-0.0424) > 1e-3 {
		t.Errorf("interval %v of %v", list[0].interval, list[0].share)
	}
	if row := m.services(10*time.Second, 0)[1]; row.alloc != 200_000 {
		t.Errorf("%v bytes a second, want 200000", row.alloc)
	}
	// Once they are no longer recorded, they are no longer shown.
	for n := 3; n < 20; n++ {
		m.Observe(at(n, shop(10)))
	}
	if list, _ := m.eventRows(profile.Allocations, selection{"", 10 * time.Second}); len(list) != 0 {
		t.Errorf("old events are shown: %+v", list)
	}
}

func TestDiff(t *testing.T) {
	if list, ago := filled(3).diff(selection{"", 10 * time.Second}); list != nil || ago != 0 {
		t.Errorf("differences without anything older: %v, %v", list, ago)
	}
	list, ago := filled(150).diff(selection{"shop.service", 10 * time.Second})
	// 30 s from 0, against 10 s to 300.
	if want := 280 * time.Second; ago != want {
		t.Errorf("compared with %v ago, want %v", ago, want)
	}
	if len(list) < 3 || !list[0].certain() || !list[1].certain() || list[2].certain() {
		t.Fatalf("%+v", list)
	}
	for _, c := range list[:2] {
		want := map[string]float64{"org.acme.shop.catalogue.Index.find": 0.15,
			"java.util.regex.Pattern.<init>": -0.15}[c.method.name]
		if math.Abs(c.delta()-want) > 1e-9 || want == 0 {
			t.Errorf("%s: %+v, want %+v", c.method.name, c.delta(), want)
		}
	}
}

func TestCallers(t *testing.T) {
	m := NewModel(1)
	m.Observe(at(0, process(1, "a",
		stack{"t", "main;left;deep;hot", 60}, stack{"t", "main;right;hot", 39}, stack{"t", "main;hot;leaf", 50},
		stack{"t", "rare;hot", 1})))
	rare := []stack{{"t", "odd;hot", 60}, {"t", "even;hot", 40}}
	for i := range 100 { // each below the least share, together above it
		rare = append(rare, stack{"t", fmt.Sprintf("even;c%d;hot", i), 1})
	}
	m.Observe(at(1, process(2, "b", rare...)))
	got := ""
	for _, service := range []string{"a", "b"} {
		for _, r := range m.callers(content{}, selection{service, time.Minute}, methodName{"hot", profile.GuestCode}, 0.02) {
			got += fmt.Sprintf("%d %s %.2f\n", r.indent, r.method.name, r.share)
		}
	}
	want := "0 hot 1.00\n1 deep 0.60\n1 left 0.60\n1 main 0.60\n1 right 0.39\n1 main 0.39\n" +
		"0 hot 1.00\n1 (other) 0.50\n1 odd 0.30\n1 even 0.20\n"
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

// Wilson's intervals, computed apart.
func TestShareInterval(t *testing.T) {
	for _, c := range []struct {
		k, n      uint64
		low, high float64
	}{
		{0, 10, 0, 0.2775}, {1, 10, 0.0179, 0.4042}, {50, 100, 0.4038, 0.5962}, {10, 10, 0.7225, 1}, {0, 0, 0, 1},
	} {
		got := shareInterval(c.k, c.n)
		if math.Abs(got.low-c.low) > 1e-4 || math.Abs(got.high-c.high) > 1e-4 {
			t.Errorf("%d of %d: %v, want %v to %v", c.k, c.n, got, c.low, c.high)
		}
	}
}

// Whatever targets do, memory is bounded: in time, in sums of a window, and in trees.
func TestBounds(t *testing.T) {
	m := NewModel(2)
	for n := range 400 {
		m.Observe(at(n, shop(10)))
	}
	if got := len(m.cpu); got != 150 {
		t.Errorf("%d windows of 2 s are kept, want 150", got)
	}
	nodes := 0
	for _, w := range m.cpu {
		nodes += w.nodes
	}
	if m.nodes != nodes {
		t.Errorf("%d nodes are counted, %d are there", m.nodes, nodes)
	}

	m = NewModel(2)
	var stacks []stack
	for i := range 2 * maxCells {
		stacks = append(stacks, stack{"t", fmt.Sprintf("main;f%d", i), 1})
	}
	var processes []*profile.Process
	for i := range 2 * maxServices {
		processes = append(processes, process(i, fmt.Sprintf("service %d", i), stack{"t", "main", 1}))
	}
	m.Observe(at(0, append(processes, process(1, "many", stacks...))...))
	w := m.cpu[0]
	if len(w.cells) > maxCells+maxServices+1 || len(w.services) > maxServices+1 {
		t.Errorf("%d cells and %d services", len(w.cells), len(w.services))
	}
	if _, samples := m.methods(selection{span: time.Minute}); samples != 2*maxCells+2*maxServices {
		t.Errorf("%d samples, want all %d", samples, 2*maxCells+2*maxServices)
	}

	// Deep trees: the oldest profiles go, their sums stay.
	m = NewModel(2)
	deep := process(1, "deep", stacks...)
	for n := range 2 * maxNodes / len(stacks) {
		m.Observe(at(n, deep))
	}
	if m.nodes > maxNodes || m.cpu[0].profile != nil || m.cpu[len(m.cpu)-1].profile == nil {
		t.Errorf("%d nodes are kept, at most %d should be", m.nodes, maxNodes)
	}
	if got := len(m.profiles(content{}, selection{span: Keep})); got == 0 || got >= len(m.cpu) {
		t.Errorf("%d profiles of %d windows are kept", got, len(m.cpu))
	}
	if list, _ := m.methods(selection{span: Keep}); len(list) == 0 {
		t.Error("sums are gone")
	}
}

func TestPause(t *testing.T) {
	m := filled(3)
	s := NewScreen(m)
	s.Press(Key{Rune: ' '})
	m.Observe(at(3, shop(10)))
	m.ObserveEvents(profile.Locks, at(3, shop(10)))
	if len(m.cpu) != 3 || len(m.events[profile.Locks]) != 0 {
		t.Error("a paused model takes windows")
	}
	s.Press(Key{Rune: 'p'})
	m.Observe(at(4, shop(10)))
	if len(m.cpu) != 4 {
		t.Error("a model that goes on takes none")
	}
}
