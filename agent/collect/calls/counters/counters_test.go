package counters

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A fakeVM is a VM that a test defines completely.
type fakeVM struct {
	flags    map[string]bool
	numbers  map[string]int64
	counts   []vmruntime.MethodCounts
	profiles map[uint64]*vmruntime.MethodProfile
	names    map[uint64]string
	asked    int // methods whose profiles were asked for
	reading  func()
}

var errNone = errors.New("no such flag")

func (f *fakeVM) Flag(name string) (bool, error) {
	if on, ok := f.flags[name]; ok {
		return on, nil
	}
	return false, errNone
}

func (f *fakeVM) Number(name string) (int64, error) {
	if n, ok := f.numbers[name]; ok {
		return n, nil
	}
	return 0, errNone
}

func (f *fakeVM) Methods() (methods []uint64, err error) {
	for _, m := range f.counts {
		methods = append(methods, m.Method)
	}
	return methods, nil
}

func (f *fakeVM) Counts([]uint64) ([]vmruntime.MethodCounts, time.Duration, error) {
	if f.reading != nil {
		f.reading()
	}
	return f.counts, time.Millisecond, nil
}

func (f *fakeVM) Profiles(methods []uint64) (map[uint64]*vmruntime.MethodProfile, error) {
	f.asked += len(methods)
	return f.profiles, nil
}

func (f *fakeVM) Names(places []vmruntime.Scope) (frames []vmruntime.Frame, err error) {
	for _, p := range places {
		frame := vmruntime.Frame{Function: f.names[p.Method], BCI: p.BCI}
		if p.BCI >= 0 {
			frame.Line = 100 + p.BCI
		}
		frames = append(frames, frame)
	}
	return frames, nil
}

func TestCheck(t *testing.T) {
	good := map[string]bool{"UseCompiler": true, "TieredCompilation": true, "ProfileInterpreter": true}
	with := func(name string, on bool) map[string]bool {
		flags := maps.Clone(good)
		flags[name] = on
		return flags
	}
	for _, c := range []struct {
		name  string
		flags map[string]bool
		level int64
		want  string // in the error; "" for none
	}{
		{"the flags", good, 3, ""},
		{"with C2", good, 4, "C2's code counts nothing and TieredStopAtLevel is 4"},
		{"C1 without profiles", good, 1, "only code of level 3"},
		{"C1 with few profiles", good, 2, "only code of level 3"},
		{"the interpreter alone", with("UseCompiler", false), 3, "only interprets"},
		{"C2 alone", with("TieredCompilation", false), 3, "disables C1"},
		{"no profiles of inlined calls", with("C1ProfileInlinedCalls", false), 3, "no inlined calls"},
		{"no profiles of calls", with("C1ProfileCalls", false), 3, "no calls"},
		{"no profiles of the interpreter", with("ProfileInterpreter", false), 3, "interpreter counts nothing"},
	} {
		err := Check(&fakeVM{flags: c.flags, numbers: map[string]int64{"TieredStopAtLevel": c.level}})
		if c.want == "" {
			if err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
			continue
		}
		if !errors.As(err, new(*FlagError)) || !strings.Contains(err.Error(), c.want) ||
			!strings.Contains(err.Error(), Flags) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if err := Check(&fakeVM{}); err == nil || errors.As(err, new(*FlagError)) {
		t.Errorf("a VM whose flags cannot be read: %v", err)
	}
	if err := Check(&fakeVM{flags: good}); err == nil || errors.As(err, new(*FlagError)) {
		t.Errorf("a VM whose level cannot be read: %v", err)
	}
	for rows, want := range map[int64]bool{2: true, 7: true, 8: false, 20: false} {
		if got := WidthNote(&fakeVM{numbers: map[string]int64{"TypeProfileWidth": rows}}); (got != "") != want {
			t.Errorf("%d rows: %q", rows, got)
		}
	}
}

// at returns a reading of these methods.
func at(second int, counts ...vmruntime.MethodCounts) *Reading {
	r := &Reading{At: time.Unix(int64(second), 0), Took: 10 * time.Millisecond, Epoch: 1}
	r.keep(counts)
	return r
}

func site(bci int, others uint64, rows ...vmruntime.RowCount) vmruntime.SiteCounts {
	return vmruntime.SiteCounts{BCI: bci, Others: others, Rows: rows}
}

func row(klass, n uint64) vmruntime.RowCount { return vmruntime.RowCount{Klass: klass, Count: n} }

func method(addr, data, invocations uint64, sites ...vmruntime.SiteCounts) vmruntime.MethodCounts {
	return vmruntime.MethodCounts{Method: addr, Data: data, Invocations: invocations, Sites: sites}
}

func TestSince(t *testing.T) {
	young := vmruntime.MethodCounts{Method: 5, Before: 40}
	older := vmruntime.MethodCounts{Method: 5, Before: 140}
	unreadable := vmruntime.MethodCounts{Method: 6, Data: 60, Unreadable: true}
	for _, c := range []struct {
		name          string
		before, after []vmruntime.MethodCounts
		want          map[Call]uint64
		losses        Losses
	}{
		{
			"calls and receivers",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 5), site(8, 1, row(90, 10), row(91, 20)))},
			[]vmruntime.MethodCounts{method(1, 10, 9, site(3, 8), site(8, 3, row(90, 11), row(91, 20), row(92, 4)))},
			map[Call]uint64{{1, 3, 0}: 3, {1, 8, 0}: 2, {1, 8, 90}: 1, {1, 8, 92}: 4}, Losses{},
		},
		{
			"counted since the first reading",
			nil, []vmruntime.MethodCounts{method(1, 10, 9, site(3, 8))}, map[Call]uint64{{1, 3, 0}: 8}, Losses{},
		},
		{
			"counted anew, elsewhere",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 5))},
			[]vmruntime.MethodCounts{method(1, 11, 9, site(3, 8))},
			map[Call]uint64{{1, 3, 0}: 8}, Losses{},
		},
		{
			"one class in two rows",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 0, row(90, 5)))},
			[]vmruntime.MethodCounts{method(1, 10, 9, site(3, 0, row(90, 6), row(90, 2)))},
			map[Call]uint64{{1, 3, 90}: 3}, Losses{},
		},
		{
			"a row that was given to another class",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 0, row(90, 5)))},
			[]vmruntime.MethodCounts{method(1, 10, 9, site(3, 0, row(91, 2)))},
			map[Call]uint64{{1, 3, 91}: 2}, Losses{Reset: 1},
		},
		{
			"a counter that began anew",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 5))},
			[]vmruntime.MethodCounts{method(1, 10, 9, site(3, 2))},
			map[Call]uint64{{1, 3, 0}: 2}, Losses{Reset: 1},
		},
		{
			"classes that were unloaded",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 5)), young}, nil, map[Call]uint64{}, Losses{Unloaded: 1},
		},
		{
			"methods that are not counted yet, and such as were counted just now",
			[]vmruntime.MethodCounts{young}, []vmruntime.MethodCounts{older, {Method: 7, Before: 2},
				{Method: 8, Before: 300, Data: 80}},
			map[Call]uint64{}, Losses{Uncounted: 100 + 2 + 300},
		},
		{
			"counters that cannot be read at one of both ends",
			[]vmruntime.MethodCounts{method(1, 10, 7, site(3, 5)), unreadable},
			[]vmruntime.MethodCounts{{Method: 1, Data: 10, Unreadable: true}, method(6, 60, 9, site(3, 7))},
			map[Call]uint64{}, Losses{Unreadable: 2},
		},
	} {
		d := at(12, c.after...).Since(at(2, c.before...))
		if !maps.Equal(d.Calls, c.want) || d.Losses != c.losses {
			t.Errorf("%s: %v, %+v, want %v, %+v", c.name, d.Calls, d.Losses, c.want, c.losses)
		}
		if d.Length != 10*time.Second || d.Uncertain != 20*time.Millisecond {
			t.Errorf("%s: %v, %v", c.name, d.Length, d.Uncertain)
		}
	}
}

// The VM's counter of invocations wraps around, which must not count as invocations.
func TestSinceWraps(t *testing.T) {
	d := at(2, method(1, 10, 4), method(2, 20, 9)).Since(at(1, method(1, 10, 1<<29-6), method(2, 20, 7)))
	if n := (&Book{}).Elsewhere(d); n != 2 {
		t.Errorf("entered %d times", n)
	}
}

// newVM has a method that makes a static call, a virtual one of two known classes and others, and
// one that is not resolved.
func newVM() *fakeVM {
	return &fakeVM{
		counts: []vmruntime.MethodCounts{
			method(1, 10, 7, site(3, 5), site(8, 2, row(90, 10), row(91, 20), row(92, 1)), site(12, 4)),
			method(2, 20, 6), method(4, 40, 20),
		},
		profiles: map[uint64]*vmruntime.MethodProfile{1: {Method: 1, Counted: true, Calls: []vmruntime.CallCount{
			{BCI: 3, Kind: vmruntime.StaticCall, Target: 2},
			{BCI: 8, Kind: vmruntime.VirtualCall, Receivers: []vmruntime.Receiver{{Klass: 90, Target: 4},
				{Klass: 91, Target: 4}, {Klass: 92}}},
			{BCI: 12, Kind: vmruntime.DynamicCall},
		}}},
		names: map[uint64]string{1: "a", 2: "b", 4: "c"},
	}
}

func symbolOf(f vmruntime.Frame) symbol.Symbol { return markerOf(f.Function) }

func markerOf(text string) symbol.Symbol {
	return symbol.Intern(symbol.Frame{Function: text})
}

// Sites of the same callee with different receiver classes are one edge. Unknown callees are shown
// as unknown, and a note reports them.
func TestBook(t *testing.T) {
	vm := newVM()
	end, err := Read(vm, func() uint32 { return 1 })
	if err != nil {
		t.Fatal(err)
	}
	if n := end.Counted(); n != 3 {
		t.Errorf("%d methods are counted", n)
	}
	d := end.Since(at(1))
	b, err := (&Book{}).Learn(vm, 1, d)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for e, n := range b.Graph(d, 100, symbolOf, markerOf).Edges() {
		if e.Site.Line != 100+e.Site.Offset {
			t.Errorf("site %+v", e.Site)
		}
		got[e.Caller.Value().Function+" "+e.Callee.Value().Function] += n
	}
	want := map[string]float64{"a b": 5, "a c": 30, "a [unknown callee]": 2 + 1 + 4}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if n := b.Elsewhere(d); n != 7+1 { // a itself, and b once; c was entered less often than it was called
		t.Errorf("%d calls from elsewhere", n)
	}
	notes := strings.Join(b.Notes(d), "\n")
	for _, part := range []string{"42 calls counted", "7 calls (17 %) without a known callee", "entered 8 times"} {
		if !strings.Contains(notes, part) {
			t.Errorf("no %q in %s", part, notes)
		}
	}
}

// Known callees are not looked up again, even after the VM has ended. Unknown ones are looked up a
// few times only. A new class epoch invalidates everything.
func TestLearn(t *testing.T) {
	vm := newVM()
	d := at(2, vm.counts...).Since(at(1))
	first, err := (&Book{}).Learn(vm, 1, d)
	if err != nil {
		t.Fatal(err)
	}
	b := first
	for range 5 {
		if b, err = b.Learn(vm, 1, d); err != nil {
			t.Fatal(err)
		}
	}
	if vm.asked != maxTries {
		t.Errorf("asked %d times", vm.asked)
	}
	vm.names, vm.profiles = map[uint64]string{1: "x"}, nil
	if b, err = b.Learn(vm, 1, d); err != nil || len(b.frames) != len(first.frames) {
		t.Errorf("the VM forgot: %v, %v", b, err)
	}
	after, err := b.Learn(vm, 2, d)
	if err != nil || after.targets[Call{1, 3, 0}].method != 0 ||
		after.frames[vmruntime.Scope{Method: 1, BCI: 3}].Function != "x" {
		t.Errorf("other classes: %+v, %v", after, err)
	}
	if b.frames[vmruntime.Scope{Method: 1, BCI: 3}].Function != "a" {
		t.Error("a book that somebody has was changed")
	}
}

// Counts that were read while classes were unloaded may belong to other methods.
func TestReadStale(t *testing.T) {
	vm, epoch := newVM(), uint32(1)
	vm.reading = func() { epoch++ }
	if _, err := Read(vm, func() uint32 { return epoch }); !errors.Is(err, vmruntime.ErrStale) {
		t.Errorf("%v", err)
	}
}

// Notes report class unloading and lost counters.
func TestNotes(t *testing.T) {
	before := at(1, method(1, 10, 7, site(3, 5)), method(2, 20, 7, site(3, 9)))
	after := at(2, method(1, 10, 7, site(3, 4)), vmruntime.MethodCounts{Method: 3, Before: 5})
	after.Epoch += 2
	notes := (&Book{}).Notes(after.Since(before))
	for _, part := range []string{"unloaded or changed 2 times", "1 counter decreased", "methods ran 5 times before",
		"20ms"} {
		if !slices.ContainsFunc(notes, func(n string) bool { return strings.Contains(n, part) }) {
			t.Errorf("no %q in %q", part, notes)
		}
	}
}
