package hotspot_test

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unique"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/advise/hotspot"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

const (
	loop  = "app.Main.loop(I)I"
	apply = "app.Main.apply(II)I"
	small = "app.Main.small(I)I"
	cold  = "app.Main.cold(I)V"
)

// A program is a process of ten seconds with one CPU busy.
type program struct {
	proc profile.Process
	tree *cct.Tree[symbol.Symbol]
}

func newProgram() *program {
	p := &program{tree: new(cct.Tree[symbol.Symbol])}
	p.proc = profile.Process{PID: 7, Comm: "java", Runtime: "hotspot",
		Threads: []*profile.Thread{{TID: 7, Tree: p.tree}}, Inlining: &profile.Inlining{}}
	return p
}

func function(system string) symbol.Frame {
	name, _, _ := strings.Cut(system, "(")
	return symbol.Frame{Function: name, SystemName: system, Kind: symbol.KindJIT, Mapping: mapping(0)}
}

func mapping(version uint32) unique.Handle[symbol.Mapping] {
	return unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Start: 0x1000, Limit: 0x9000, Version: version})
}

// calls adds estimated calls from bytecode 7, in calls a second.
func (p *program) calls(basis profile.Basis, caller, callee string, offset int32, rate float64) *program {
	i := slices.IndexFunc(p.proc.Calls, func(c *profile.Calls) bool { return c.Basis == basis })
	if i < 0 {
		i = len(p.proc.Calls)
		p.proc.Calls = append(p.proc.Calls, &profile.Calls{Engine: "hotspot", Basis: basis, Graph: new(profile.Graph),
			Intervals: map[profile.Edge]profile.Interval{}})
	}
	e := profile.Edge{Caller: symbol.Intern(function(caller)), Site: profile.Site{Line: 42, Offset: offset},
		Callee: symbol.Intern(function(callee))}
	p.proc.Calls[i].Graph.Add(e, 10*rate)
	p.proc.Calls[i].Intervals[e] = profile.Interval{Low: 5 * rate, High: 20 * rate}
	if basis == profile.Unmeasured {
		p.proc.Calls[i].Intervals[e] = profile.Interval{Low: 10 * rate, High: 64e3 * rate} // rate is the lower end
	}
	return p
}

// code adds a version of C2, in use.
func (p *program) code(id uint32, method string, size uint32, inlined ...string) *program {
	p.proc.Versions = append(p.proc.Versions, profile.Version{ID: id, Level: 4, EntryBCI: -1, SystemName: method,
		Size: size, State: profile.VersionInUse,
		Inlined: inlined, Decompiles: -1})
	return p
}

// sampled adds CPU time, in percent of a CPU: frames from the outermost to the innermost one, each
// in a version.
func (p *program) sampled(percent uint64, frames ...symbol.Frame) *program {
	var path []symbol.Symbol
	for _, f := range frames {
		path = append(path, symbol.Intern(f))
	}
	slices.Reverse(path)
	p.tree.Add(path, 10*percent)
	return p
}

func frameIn(version uint32, system string) symbol.Frame {
	f := function(system)
	f.Mapping, f.Address = mapping(version), 0x2000+uint64(version)
	return f
}

func (p *program) bytecode(sizes map[string]int) *program {
	for name, size := range sizes {
		p.proc.Inlining.Callees = append(p.proc.Inlining.Callees,
			profile.Callee{Method: name, Bytecode: size, Entering: time.Second / 2})
	}
	return p
}

func (p *program) stored(t *testing.T) *pprof.Profile {
	t.Helper()
	stored, err := sink.Pprof(&profile.Profile{
		Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond,
		Event:     "cpu-clock",
		Processes: []*profile.Process{&p.proc},
	}, sink.Time|sink.CallCounts)
	if err != nil {
		t.Fatal(err)
	}
	return stored
}

func (p *program) advise(t *testing.T) *hotspot.Plan {
	t.Helper()
	plan, err := hotspot.Advise(p.stored(t), hotspot.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// beyond is a program that calls a method that is too large to be inlined.
func beyond() *program {
	return newProgram().calls(profile.Estimated, loop, apply, 7, 50e6).code(11, loop, 800).code(12, apply, 600).
		sampled(60, frameIn(11, loop), frameIn(12, apply)).sampled(40, frameIn(11, loop)).bytecode(map[string]int{apply: 400})
}

func TestInline(t *testing.T) {
	plan := beyond().advise(t)
	if len(plan.Advice) != 1 {
		t.Fatalf("%+v", plan)
	}
	a := plan.Advice[0]
	if a.Kind != hotspot.Inline || a.Callee != apply || !slices.Equal(a.Into, []string{loop}) {
		t.Errorf("%+v", a)
	}
	// 100 M calls a second at the upper end take half a CPU second: less than the time in both
	// methods.
	if math.Abs(a.AtMost-0.5) > 0.06 || math.Abs(a.Entering-0.05) > 0.001 {
		t.Errorf("at most %v, entering %v", a.AtMost, a.Entering)
	}
	if c := a.Calls[0]; math.Abs(c.Rate-50e6) > 1 || math.Abs(c.Time-12e-9) > 1e-10 || c.Of != 1 {
		t.Errorf("%+v", c)
	}
	var directives []struct {
		Match []string
		C2    struct{ Inline []string }
	}
	if err := json.Unmarshal(plan.Directives(), &directives); err != nil || len(directives) != 1 ||
		directives[0].Match[0] != "*.*" || directives[0].C2.Inline[0] != "+app/Main.apply(II)I" {
		t.Errorf("%v: %s", err, plan.Directives())
	}
	if got := string(plan.Commands()); got != "inline app/Main.apply (II)I\n" {
		t.Errorf("%q", got)
	}
	var text strings.Builder
	if err := plan.WriteText(&text, hotspot.DirectivesFile, "d.json"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"1 piece of advice for java[7]", "inline app.Main.apply into app.Main.loop",
		"400 bytes of bytecode, more than FreqInlineSize, 325",
		"50.0M calls/s", "12.0 ns of CPU time a call", "less CPU time", "vmprof-agent compare",
		"-XX:CompilerDirectivesFile=d.json", "Nothing was changed",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, &text)
		}
	}
}

// There is no advice where C2 decides by itself, or would not follow.
func TestNoInline(t *testing.T) {
	for name, p := range map[string]*program{
		"small enough": beyond().bytecode(map[string]int{apply: 0}).limit(400),
		"size unknown": newProgram().calls(profile.Estimated, loop, apply, 7, 50e6).code(11, loop,
			800).sampled(100, frameIn(11, loop), frameIn(12, apply)),
		"far too large": beyond().bytecode(map[string]int{apply: 5000}),
		"rarely called": newProgram().calls(profile.Estimated, loop, apply, 7, 500).code(11, loop,
			800).sampled(100, frameIn(11, loop)).bytecode(map[string]int{apply: 400}),
		"caller not by C2": newProgram().calls(profile.Estimated, loop, apply, 7, 50e6).code(12, apply,
			600).sampled(100, frameIn(11, loop), frameIn(12, apply)).bytecode(map[string]int{apply: 400}),
		"perhaps often called": newProgram().calls(profile.Unmeasured, loop, apply, 7, 5e3).code(11, loop,
			800).sampled(100, frameIn(11, loop), frameIn(12, apply)).bytecode(map[string]int{apply: 400}),
		"recursion": newProgram().calls(profile.Estimated, loop, loop, 7, 50e6).code(11, loop,
			800).sampled(100, frameIn(11, loop), frameIn(11, loop)).bytecode(map[string]int{loop: 400}),
		"only inlined": newProgram().calls(profile.Inferred, loop, apply, 7, 50e6).code(11, loop,
			800).sampled(100, frameIn(11, loop)).bytecode(map[string]int{apply: 400}),
		"counted, and perhaps inlined": newProgram().calls(profile.Counted, loop, apply, 7,
			50e6).calls(profile.Inferred, loop, small, 9, 1).
			code(11, loop, 800, "app.Main.apply").sampled(100, frameIn(11, loop)).bytecode(map[string]int{apply: 400}),
		"generated": newProgram().calls(profile.Estimated, loop, "app.Main$$Lambda$14/0x0000.apply(II)I", 7,
			50e6).code(11, loop, 800).
			sampled(100, frameIn(11, loop)).bytecode(map[string]int{"app.Main$$Lambda$14/0x0000.apply(II)I": 400}),
	} {
		if plan := p.advise(t); len(plan.Advice) != 0 {
			t.Errorf("%s: %+v", name, plan.Advice)
		}
	}
}

// Where nothing shows how often a call is made, there is no rate and no share of all calls. Call
// sites on one line are told apart.
func TestUnmeasured(t *testing.T) {
	plan := beyond().calls(profile.Unmeasured, loop, apply, 9, 1e6).advise(t)
	if len(plan.Advice) != 1 || len(plan.Advice[0].Calls) != 2 {
		t.Fatalf("%+v", plan)
	}
	for _, c := range plan.Advice[0].Calls {
		if unmeasured := c.Site.Offset == 9; c.Unmeasured != unmeasured || unmeasured && c.Of != 0 || !unmeasured &&
			c.Of != 1 {
			t.Errorf("%+v", c)
		}
	}
	var text strings.Builder
	if err := plan.WriteText(&text, hotspot.DirectivesFile, "d.json"); err != nil {
		t.Fatal(err)
	}
	for _, part := range []string{
		"loop:42@7 -> app.Main.apply\n     50.0M calls/s", "100.0 % of all calls",
		"loop:42@9 -> app.Main.apply\n     number of calls unknown, between 1.00M and 9.10G a second\n",
	} {
		if !strings.Contains(text.String(), part) {
			t.Errorf("no %q in\n%s", part, &text)
		}
	}
}

func (p *program) limit(freq int) *program {
	p.proc.Inlining.Limits = profile.InlineLimits{FreqInlineSize: freq}
	return p
}

// What keeps a method from being inlined into itself by way of another one is a limit of recursion.
func TestNoRecursion(t *testing.T) {
	inlined := frameIn(12, small)
	inlined.Inlined = true
	recursive := func() *program {
		return newProgram().calls(profile.Estimated, small, apply, 7, 50e6).code(12, apply, 3000, "app.Main.small").
			sampled(60, frameIn(12, apply), inlined, frameIn(12, apply)).bytecode(map[string]int{apply: 60})
	}
	if plan := recursive().advise(t); len(plan.Advice) != 0 {
		t.Errorf("%+v", plan.Advice)
	}
	plan := recursive().code(11, loop, 800, "app.Main.small").sampled(40, frameIn(11, loop), inlined,
		frameIn(12, apply)).advise(t)
	if len(plan.Advice) != 1 || !slices.Equal(plan.Advice[0].Into, []string{loop}) {
		t.Errorf("of another caller: %+v", plan.Advice)
	}
}

// A callee of large code is refused although its bytecode is small.
func TestInlineSmallCode(t *testing.T) {
	plan := newProgram().calls(profile.Estimated, loop, apply, 7, 50e6).code(11, loop, 800).code(12, apply, 3000).
		sampled(100, frameIn(11, loop), frameIn(12, apply)).bytecode(map[string]int{apply: 60}).advise(t)
	if len(plan.Advice) != 1 || !strings.Contains(plan.Advice[0].Reason, "InlineSmallCode") {
		t.Errorf("%+v", plan.Advice)
	}
}

// shapes is a program with a virtual call of that many targets; the first one has a share, the
// others the rest in equal parts.
func shapes(targets int, share float64) *program {
	p := newProgram().code(11, loop, 800)
	for i := range targets {
		rate := 50e6 * share
		if i > 0 {
			rate = 50e6 * (1 - share) / float64(targets-1)
		}
		callee := "app.Shape" + string(rune('A'+i)) + ".area(I)I"
		p.calls(profile.Estimated, loop, callee, 7, rate).sampled(50/uint64(targets), frameIn(11, loop),
			frameIn(uint32(20+i), callee))
	}
	return p.sampled(50, frameIn(11, loop))
}

func TestGuard(t *testing.T) {
	for _, test := range []struct {
		targets int
		share   float64
		percent int // 0: no advice
	}{
		{3, 0.7, 59}, {8, 0.5, 40}, {4, 0.41, 40},
		{3, 0.39, 0},  // no target is a candidate for guarded inlining
		{3, 0.95, 0},  // the VM does it by itself
		{2, 0.7, 0},   // both are inlined
		{12, 0.05, 0}, // truly megamorphic
	} {
		plan := shapes(test.targets, test.share).advise(t)
		if test.percent == 0 {
			if len(plan.Advice) > 0 {
				t.Errorf("%+v: %+v", test, plan.Advice)
			}
			continue
		}
		if len(plan.Advice) != 1 || plan.Advice[0].Kind != hotspot.Guard ||
			abs(plan.Advice[0].Percent-test.percent) > 1 || plan.HasMethods() ||
			!strings.HasPrefix(plan.Flags()[0], "-XX:TypeProfileMajorReceiverPercent=") {
			t.Errorf("%+v: %+v", test, plan.Advice)
		}
	}
	// A guard changes the cost of calls to all targets.
	if a := shapes(3, 0.7).advise(t).Advice[0]; a.AtMost < 0.97 {
		t.Errorf("at most %v, but all of the time is around the call", a.AtMost)
	}
	// The VM's own counts are what its compiler decides by.
	p := shapes(3, 0.5)
	p.proc.Inlining.Sites = []profile.VirtualSite{{Caller: loop, Offset: 7, Calls: 1000,
		Targets: []profile.VirtualTarget{{Callee: "app.ShapeA.area(I)I", Calls: 800}}}}
	if plan := p.advise(t); len(plan.Advice) != 1 || abs(plan.Advice[0].Percent-70) > 1 ||
		!plan.Advice[0].Calls[0].Counted {
		t.Errorf("%+v", plan.Advice)
	}
	p.proc.Inlining.Sites[0].Targets[0].Callee = "app.Shape.gone(I)I"
	if plan := p.advise(t); len(plan.Advice) != 0 {
		t.Errorf("the receiver is one of the past: %+v", plan.Advice)
	}
	if plan := shapes(3, 0.7).major(60).advise(t); len(plan.Advice) != 0 {
		t.Errorf("the VM has the flag already: %+v", plan.Advice)
	}
}

func (p *program) major(percent int) *program {
	p.proc.Inlining.Limits.TypeProfileMajorReceiverPercent = percent
	return p
}

func abs(n int) int { return max(n, -n) }

// A cold method is to leave room for a hot one: only if its samples would be seen.
func TestDontInline(t *testing.T) {
	make := func() *program {
		return newProgram().calls(profile.Estimated, loop, apply, 7, 50e6).calls(profile.Inferred, loop, cold, 9, 1).
			code(11, loop, 9000, "app.Main.cold").code(12, apply, 600).sampled(60, frameIn(11, loop),
			frameIn(12, apply)).sampled(40, frameIn(11, loop)).
			bytecode(map[string]int{apply: 400, cold: 150})
	}
	plan := make().advise(t)
	if len(plan.Advice) != 2 || plan.Advice[1].Kind != hotspot.DontInline || plan.Advice[1].Callee != cold ||
		!strings.Contains(string(plan.Directives()), "-app/Main.cold(I)V") ||
		!strings.Contains(string(plan.Commands()), "dontinline app/Main.cold (I)V") {
		t.Errorf("%+v", plan.Advice)
	}
	var directives []struct{ Match []string }
	if err := json.Unmarshal(plan.Directives(), &directives); err != nil || len(directives) != 2 ||
		directives[0].Match[0] != "app/Main.loop(I)I" ||
		directives[1].Match[0] != "*.*" || strings.Count(string(plan.Directives()), "+app/Main.apply(II)I") != 2 {
		t.Errorf("%v: %s", err, plan.Directives())
	}
	inlined := frameIn(11, cold)
	inlined.Inlined = true
	if plan := make().sampled(1, frameIn(11, loop), inlined).advise(t); len(plan.Advice) != 1 {
		t.Errorf("with a sample in it: %+v", plan.Advice)
	}
	if plan := make().sampled(1, frameIn(11, loop), inlined, frameIn(12, apply)).advise(t); len(plan.Advice) != 1 {
		t.Errorf("with a sample in what it calls: %+v", plan.Advice)
	}
	approximate := frameIn(11, loop)
	approximate.Function, approximate.SystemName, approximate.Approximate,
		approximate.Inlined = "[inlined in app.Main.loop]", "[inlined in app.Main.loop]", true, true
	if plan := make().sampled(1, frameIn(11, loop), approximate).advise(t); len(plan.Advice) != 1 {
		t.Errorf("without debug information: %+v", plan.Advice)
	}
}

// There are few pieces, those with the largest effect first.
func TestFew(t *testing.T) {
	p := newProgram().code(11, loop, 800).sampled(100, frameIn(11, loop))
	sizes := map[string]int{}
	for i := range 8 {
		callee := "app.Main.apply" + string(rune('A'+i)) + "(II)I"
		p.calls(profile.Estimated, loop, callee, int32(i), 1e6*float64(8+i))
		sizes[callee] = 400
	}
	plan := p.bytecode(sizes).advise(t)
	if len(plan.Advice) != hotspot.MaxAdvice || plan.Advice[0].Callee != "app.Main.applyH(II)I" ||
		!slices.ContainsFunc(plan.Notes, func(n string) bool { return strings.HasPrefix(n, "3 more") }) {
		t.Errorf("%+v", plan)
	}
}

// Without CPU time nothing is known of code and of effects; without calls there is no advice.
func TestAdviseNothing(t *testing.T) {
	p := beyond()
	if _, err := hotspot.Advise(p.stored(t), hotspot.Options{PID: 8}); err == nil {
		t.Error("another process has advice")
	}
	p.proc.Calls = nil
	if _, err := hotspot.Advise(p.stored(t), hotspot.Options{}); err != hotspot.ErrNoCalls {
		t.Errorf("%v", err)
	}
	if _, err := hotspot.Advise(&pprof.Profile{}, hotspot.Options{}); err != hotspot.ErrNoCalls {
		t.Errorf("%v", err)
	}
}

// What another program wrote may have anything in it.
func FuzzAdvise(f *testing.F) {
	f.Add(int64(1), int64(1), "a.B.c(I)V", "x", int64(10))
	f.Add(int64(-1), int64(math.MaxInt64), "(", "\"]", int64(0))
	f.Fuzz(func(t *testing.T, calls, cpu int64, caller, callee string, factor int64) {
		code := &pprof.Mapping{ID: 1, File: "[jit:HotSpot]", Offset: stored.VersionOffset(3)}
		of := func(id uint64, name string) *pprof.Location {
			return &pprof.Location{ID: id, Mapping: code, Line: []pprof.Line{{Function: &pprof.Function{ID: id,
				Name: name, SystemName: name}}, {}}}
		}
		label := map[string][]string{stored.LabelEngine: {"hotspot"}, stored.LabelBasis: {"estimated"}}
		p := &pprof.Profile{
			SampleType: []*pprof.ValueType{{Type: stored.TypeSamples, Unit: "count"},
				{Type: stored.TypeCPU, Unit: "nanoseconds"}, {Type: stored.TypeCalls, Unit: "count"}},
			Sample: []*pprof.Sample{
				{Value: []int64{0, 0, calls}, Label: label, NumLabel: map[string][]int64{stored.LabelFactor: {factor}},
					Location: []*pprof.Location{of(1, callee), of(2, caller)}},
				{Value: []int64{1, cpu, 0}, Location: []*pprof.Location{of(2, caller)}},
				{Value: []int64{1, cpu, 0}},
			},
			DurationNanos: 1e9,
		}
		m := stored.Metadata{Methods: []string{caller, callee}, Versions: []stored.Version{{ID: 3, Level: 4,
			State: int(profile.VersionInUse), Inlined: []int{1, 9}}},
			Inlining: []stored.Inlining{{Callees: []stored.Callee{{Method: 1, Bytecode: 400, Entering: -1},
				{Method: 7}}}}}
		if err := m.Store(p); err != nil {
			t.Fatal(err)
		}
		plan, err := hotspot.Advise(p, hotspot.Options{})
		if err != nil {
			return
		}
		var text strings.Builder
		if err := plan.WriteText(&text, hotspot.CommandFile, "f"); err != nil {
			t.Fatal(err)
		}
		if !json.Valid(plan.Directives()) || strings.Count(string(plan.Commands()), "\n") > hotspot.MaxAdvice {
			t.Errorf("%s%s", plan.Directives(), plan.Commands())
		}
	})
}
