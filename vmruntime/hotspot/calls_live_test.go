package hotspot

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

const callsSource = "../../tests/guests/java/hotspot/CallsGuest.java"

// A guestCall is what is known of a call in CallsGuest: how often it is made for each invocation of
// its method, and the shares of its receivers, by class.
type guestCall struct {
	kind      vmruntime.CallKind
	function  string // as the class file says
	per       float64
	target    string             // the method that is called, if there is only one
	receivers map[string]float64 // shares of all receivers that there are; HotSpot keeps two
}

// guestCalls are the calls of the methods in CallsGuest, in the order of their bytecode.
func guestCalls() map[string][]guestCall {
	const g = "hotspot.CallsGuest"
	static := func(name string, per float64) guestCall {
		return guestCall{vmruntime.StaticCall, g + "." + name, per, g + "." + name, nil}
	}
	circles := func(share float64) map[string]float64 {
		return map[string]float64{g + "$Circle": share, g + "$Square": 1 - share}
	}
	var round []guestCall
	for _, name := range []string{"one", "two", "several", "statics", "half", "specials", "finals", "inherited",
		"named",
		"byDefault", "object", "lambda", "joins", "factorial", "even", "hidden", "switches", "array", "trivial"} {
		round = append(round, static(name, 1))
	}
	virtual := func(function string, receivers map[string]float64) []guestCall {
		return []guestCall{{vmruntime.VirtualCall, g + "$" + function, 1, "", receivers}}
	}
	iface := func(function string, receivers map[string]float64) []guestCall {
		return []guestCall{{vmruntime.InterfaceCall, g + "$" + function, 1, "", receivers}}
	}
	return map[string][]guestCall{
		"round": round,
		"one":   virtual("Shape.area", circles(1)),
		"two":   virtual("Shape.area", circles(0.75)),
		"several": virtual("Shape.area", map[string]float64{g + "$Circle": 0.5, g + "$Square": 0.25, g +
			"$Line": 0.125, g + "$Point": 0.125}),
		"statics":   {static("leaf", 3)},
		"half":      {static("leaf", 0.5)},
		"inherited": virtual("Shape.common", circles(0.5)),
		"finals":    {{vmruntime.VirtualCall, g + "$Circle.fixed", 1, g + "$Circle.fixed", nil}},
		"specials": {
			{vmruntime.SpecialCall, g + "$Pair.<init>", 1, g + "$Pair.<init>", nil},
			{vmruntime.VirtualCall, g + "$Pair.total", 1, "", map[string]float64{g + "$Pair": 1}},
		},
		"$Pair.total": {
			{vmruntime.SpecialCall, g + "$Base.total", 1, g + "$Base.total", nil},
			{vmruntime.VirtualCall, g + "$Pair.own", 1, g + "$Pair.own", nil},
		},
		"named":     iface("Named.number", circles(0.75)),
		"byDefault": iface("Named.twice", circles(0.5)),
		"lambda": {{vmruntime.InterfaceCall, "java.util.function.IntUnaryOperator.applyAsInt", 1, "",
			map[string]float64{g + "$$Lambda": 1}}},
		"joins": {
			{vmruntime.DynamicCall, "", 1, "java.lang.invoke.Invokers$Holder.linkToTargetMethod", nil},
			{vmruntime.VirtualCall, "java.lang.String.length", 1, "java.lang.String.length", nil},
		},
		"factorial":   {static("factorial", 5./6)},
		"even":        {static("odd", 5./6)},
		"odd":         {static("even", 1)},
		"hidden":      iface("Named.open", circles(0.5)),
		"$Named.open": {{vmruntime.InterfaceCall, g + "$Named.secret", 1, g + "$Named.secret", nil}},
		"switches":    {static("leaf", 1)},
		"trivial":     virtual("Circle.getValue", circles(1)),
	}
}

// guestTargets are the methods that receivers have, where that is not the class's own of the name
// that is called.
var guestTargets = map[string]string{
	"hotspot.CallsGuest$Circle.common": "hotspot.CallsGuest$Shape.common",
	"hotspot.CallsGuest$Square.common": "hotspot.CallsGuest$Shape.common",
	"hotspot.CallsGuest$Circle.twice":  "hotspot.CallsGuest$Named.twice",
	"hotspot.CallsGuest$Circle.open":   "hotspot.CallsGuest$Named.open",
	"hotspot.CallsGuest$Square.open":   "hotspot.CallsGuest$Named.open",
}

// TestKnownCalls reads the counts of a program whose calls are known. C1's code of level 3 counts
// exactly, up to the one invocation during which counting began; counts that froze when C2 took
// over have the same ratios.
func TestKnownCalls(t *testing.T) {
	for _, home := range jdks(t) {
		for _, mode := range []struct {
			name, rounds string
			options      []string
			tolerance    float64 // tolerance of ratios
			// recursive is the tolerance for methods that call themselves: C2 inlines them into
			// themselves, and takes over in the middle of them.
			recursive float64
		}{
			{"C1", "30000", []string{"-XX:TieredStopAtLevel=3"}, 0, 0},
			{"C2", "1000000", nil, 0.02, 0.25},
		} {
			t.Run(filepath.Base(home)+"/"+mode.name, func(t *testing.T) {
				vm := startGuest(t, home, []string{callsSource}, append(mode.options, "hotspot.CallsGuest",
					mode.rounds)...)
				p := vm.attach(t)
				g := readCalls(t, p)
				for name, want := range guestCalls() {
					method := "hotspot.CallsGuest." + name
					if strings.HasPrefix(name, "$") {
						method = "hotspot.CallsGuest" + name
					}
					profile := g.profiles[g.address[method]]
					if profile == nil || !profile.Counted || profile.Cut || len(profile.Calls) != len(want) {
						t.Errorf("%s: %+v", method, profile)
						continue
					}
					for i := range want {
						tolerance := mode.tolerance
						if name == "factorial" || name == "even" || name == "odd" {
							tolerance = mode.recursive
						}
						g.check(t, method, profile, &profile.Calls[i], want[i], tolerance)
					}
				}
				if round := g.profiles[g.address["hotspot.CallsGuest.round"]]; round != nil && mode.name == "C1" {
					if all := fmt.Sprint(round.Invocations + round.Before); all != mode.rounds {
						t.Errorf("round was invoked %s times of %s", all, mode.rounds)
					}
				}
			})
		}
	}
}

// guestProfiles are the profiles of all methods that a guest has compiled, that were inlined, or
// that those call.
type guestProfiles struct {
	profiles     map[uint64]*vmruntime.MethodProfile
	trees        map[uint32]*vmruntime.InlineTree // by version
	compilations []vmruntime.Compilation
	name         map[uint64]string
	address      map[string]uint64
}

func readCalls(t *testing.T, p *Process) *guestProfiles {
	t.Helper()
	g := &guestProfiles{
		profiles: make(map[uint64]*vmruntime.MethodProfile), trees: make(map[uint32]*vmruntime.InlineTree),
		name: make(map[uint64]string), address: make(map[string]uint64),
	}
	if err := p.Compilations(func(c vmruntime.Compilation) bool {
		g.compilations = append(g.compilations, c)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	next := make(map[uint64]bool)
	for _, c := range g.compilations {
		tree, err := p.InlineTree(c)
		if err != nil {
			continue // it went away meanwhile
		}
		g.trees[c.Version] = tree
		for _, n := range tree.Nodes {
			next[n.Method] = true
		}
	}
	for len(next) > 0 {
		var ask []uint64
		for m := range next {
			if g.profiles[m] == nil {
				ask = append(ask, m)
			}
		}
		found, err := p.Profiles(ask)
		if err != nil {
			t.Fatal(err)
		}
		clear(next)
		for m, profile := range found {
			g.profiles[m] = profile
			for _, c := range profile.Calls {
				for _, target := range targetsOf(c) {
					if target != 0 && g.profiles[target] == nil && found[target] == nil {
						next[target] = true
					}
				}
			}
		}
	}
	var places []vmruntime.Scope
	for m := range g.profiles {
		places = append(places, vmruntime.Scope{Method: m, BCI: 0})
	}
	frames, err := p.Names(places)
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range frames {
		g.name[places[i].Method] = f.Function
		g.address[f.Function] = places[i].Method
	}
	return g
}

func targetsOf(c vmruntime.CallCount) []uint64 {
	targets := []uint64{c.Target}
	for _, r := range c.Receivers {
		targets = append(targets, r.Target)
	}
	return targets
}

func (g *guestProfiles) check(t *testing.T, method string, profile *vmruntime.MethodProfile, got *vmruntime.CallCount,
	want guestCall, tolerance float64) {
	t.Helper()
	const slack = 8 // calls: of rounding, and of what happens while counting begins
	where := fmt.Sprintf("%s, bytecode %d", method, got.BCI)
	if profile.Call(got.BCI) != got {
		t.Errorf("%s: Call finds %+v", where, profile.Call(got.BCI))
	}
	if got.Kind != want.kind || got.Function != want.function || g.name[got.Target] != want.target {
		t.Errorf("%s: %v call of %s, target %s; want %+v", where, got.Kind, got.Function, g.name[got.Target], want)
	}
	near := func(what string, n uint64, share, of float64) {
		if math.Abs(float64(n)-share*of) > slack+tolerance*of {
			t.Errorf("%s: %s: %d, want %g of %g", where, what, n, share, of)
		}
	}
	near("calls", got.Count, want.per, float64(profile.Invocations))
	if want.receivers == nil {
		return
	}
	share := make(map[string]float64)
	var sum uint64
	for _, r := range got.Receivers {
		share[r.Class] += float64(r.Count)
		sum += r.Count
		target := r.Class + want.function[strings.LastIndex(want.function, "."):]
		if other, ok := guestTargets[target]; ok {
			target = other
		}
		if g.name[r.Target] != target {
			t.Errorf("%s: %s leads to %s, want %s", where, r.Class, g.name[r.Target], target)
		}
	}
	for class, count := range share {
		near(class, uint64(count), want.receivers[class], float64(got.Count))
	}
	if len(want.receivers) <= 2 {
		near("all receivers", sum, 1, float64(got.Count))
	}
	if !slices.IsSortedFunc(got.Receivers, func(a, b vmruntime.Receiver) int { return int(b.Count) - int(a.Count) }) {
		t.Errorf("%s: receivers are not in order: %+v", where, got.Receivers)
	}
}

// TestInlinedCallsAreKnown compares two sources: every call that the compilers inlined, as the
// debug information has it, must be a call in the bytecode, and go to a method that the constant
// pool or a receiver's class leads to. Calls that never ran may have no known target: nothing has
// resolved them yet. Nor may calls linked at run time.
func TestInlinedCallsAreKnown(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "crowd", guestSource)
			p := vm.attach(t)
			g := readCalls(t, p)
			checkTargets(t, g)
			inlined, known, lost := 0, 0, 0
			for _, tree := range g.trees {
				for _, n := range tree.Nodes[1:] {
					caller := g.profiles[tree.Nodes[n.Parent].Method]
					if caller == nil {
						continue // unloaded meanwhile
					}
					call := caller.Call(n.BCI)
					if call == nil {
						t.Fatalf("%s has no call at %d, but %s is inlined there", g.name[caller.Method], n.BCI,
							g.name[n.Method])
					}
					inlined++
					if slices.Contains(targetsOf(*call), n.Method) {
						known++
						continue
					}
					switch call.Kind {
					case vmruntime.StaticCall, vmruntime.SpecialCall:
						if call.Target != 0 {
							t.Errorf("%s at %d calls %s, but %s is inlined there", g.name[caller.Method], n.BCI,
								g.name[call.Target], g.name[n.Method])
						}
					}
					if call.Count > 0 && call.Kind != vmruntime.DynamicCall {
						lost++
					}
				}
			}
			t.Logf("%d compilations, %d methods, %d inlined calls: the target is known of %d, not known of %d that ran",
				len(g.trees), len(g.profiles), inlined, known, lost)
			if known < 1000 || lost > known/50 {
				t.Error("of too few inlined calls the target is known, or of too many that ran it is not")
			}
		})
	}
}

// checkTargets compares the methods that calls lead to with those that class files name there.
func checkTargets(t *testing.T, g *guestProfiles) {
	t.Helper()
	methodOf := func(function string) string { return function[strings.LastIndexByte(function, '.')+1:] }
	same, other := 0, 0
	for _, profile := range g.profiles {
		for _, call := range profile.Calls {
			target := g.name[call.Target]
			byName := call.Kind == vmruntime.StaticCall || call.Kind == vmruntime.SpecialCall
			if !byName || target == "" || call.Function == "" {
				continue
			}
			if methodOf(target) == methodOf(call.Function) {
				same++
			} else {
				other++
				t.Logf("found %s, want %s", target, call.Function)
			}
		}
	}
	t.Logf("%d callees have the name that the call has, %d another one", same, other)
	if same < 100 || other > same/100 {
		t.Error("callees are not those that calls name")
	}
}

// BenchmarkProfilesLive reads the profiles of thousands of methods, as the end of a window does.
func BenchmarkProfilesLive(b *testing.B) {
	for _, home := range jdks(b) {
		vm := startJVM(b, home, "hotspot.ScopesGuest", "crowd", guestSource)
		var methods []uint64
		ask := func(p *Process) {
			if _, err := p.Profiles(methods); err != nil {
				b.Fatal(err)
			}
		}
		if err := vm.attach(b).Compilations(func(c vmruntime.Compilation) bool {
			methods = append(methods, c.Method)
			return true
		}); err != nil {
			b.Fatal(err)
		}
		methods = vmstructs.Distinct(methods)
		b.Run(filepath.Base(home)+"/first", func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				p := vm.attach(b)
				b.StartTimer()
				ask(p)
			}
			b.ReportMetric(float64(len(methods)), "methods")
		})
		b.Run(filepath.Base(home)+"/again", func(b *testing.B) {
			p := vm.attach(b)
			for range 2 {
				ask(p)
			}
			b.ReportAllocs()
			for b.Loop() {
				ask(p)
			}
		})
	}
}

// TestCompilationEntries compares entry points with those that the guest itself calls.
func TestCompilationEntries(t *testing.T) {
	for _, home := range jdks(t) {
		t.Run(filepath.Base(home), func(t *testing.T) {
			vm := startJVM(t, home, "hotspot.ScopesGuest", "warm")
			if err := unix.Kill(vm.pid, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			p := vm.attach(t)
			structs, err := vmstructs.ReadTables(p.Memory, p.Symbol)
			if err != nil {
				t.Fatal(err)
			}
			entry := (&vmstructs.Resolver{Tables: structs}).Field("Method._from_compiled_entry")
			all, used, loops, replaced := 0, 0, 0, 0
			if err := p.Compilations(func(c vmruntime.Compilation) bool {
				all++
				if c.EntryBCI >= 0 {
					loops++
				} else if c.InUse {
					used++
					if called, err := p.Memory.Word(entry.At(c.Method)); err != nil || called != c.VerifiedEntry {
						t.Logf("%+v is called at %#x, %v", c, called, err)
						replaced++ // by what was just compiled
					}
				}
				if c.VerifiedEntry < c.Entry || c.Entry < c.Begin || c.FrameComplete < c.VerifiedEntry ||
					c.FrameComplete > c.End {
					t.Errorf("%+v", c)
				}
				site := vmruntime.Site{Kind: vmruntime.Compiled, Version: c.Version, PC: c.VerifiedEntry, Exact: true}
				if again, err := p.Compilation(site); err != nil || again.Begin != c.Begin || again.Method != c.Method {
					t.Errorf("%+v, and when it is asked for %+v, %v", c, again, err)
				}
				if edge, err := p.AtEdge(site); err != nil || !edge && c.FrameComplete > c.VerifiedEntry {
					t.Errorf("%+v: the entry is no edge: %v, %v", c, edge, err)
				}
				return true
			}); err != nil {
				t.Fatal(err)
			}
			t.Logf("%d compilations, %d in use, %d entered in loops", all, used, loops)
			if replaced > used/20 {
				t.Errorf("%d of %d compilations in use are called elsewhere", replaced, used)
			}
			if used < 50 || loops < 1 {
				t.Error("too few compilations")
			}
			seen := 0
			p.Compilations(func(vmruntime.Compilation) bool { seen++; return seen < 3 })
			if seen != 3 {
				t.Errorf("%d compilations were visited after the visitor had enough of 3", seen)
			}
		})
	}
}
