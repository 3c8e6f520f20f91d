package versions

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/layout"
)

// versionProfile is a profile of consecutive seconds. In the first half, calls of app.Main.put run
// as #2 and take cost[0] samples each on average; then it is compiled again, and they take cost[1].
// Before, there is a version of C1.
func versionProfile(t *testing.T, seconds int, cost [2]float64, calls bool) *pprof.Profile {
	t.Helper()
	p := &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: "calls", Unit: "count"}, {Type: "samples", Unit: "count"},
			{Type: "cpu", Unit: "nanoseconds"}},
		DurationNanos: int64(seconds) * 1e9, TimeNanos: 1_700_000_000e9,
	}
	if !calls {
		p.SampleType = p.SampleType[1:]
	}
	function := func(name, system string) *pprof.Function {
		f := &pprof.Function{ID: uint64(len(p.Function) + 1), Name: name, SystemName: system}
		p.Function = append(p.Function, f)
		return f
	}
	location := func(file string, version uint32, functions ...*pprof.Function) *pprof.Location {
		m := &pprof.Mapping{ID: uint64(len(p.Mapping) + 1), File: file, Offset: stored.VersionOffset(version)}
		l := &pprof.Location{ID: uint64(len(p.Location) + 1), Mapping: m}
		for _, f := range functions {
			l.Line = append(l.Line, pprof.Line{Function: f})
		}
		p.Mapping, p.Location = append(p.Mapping, m), append(p.Location, l)
		return l
	}
	put, area, main := function("app.Main.put", "app.Main.put(I)V"), function("app.Shape.area", "app.Shape.area()I"),
		function("app.Main.main", "app.Main.main()V")
	put2, put3, interpreted, caller := location("[jit:HotSpot]", 2, area, put), location("[jit:HotSpot]", 3, put),
		location("[interpreter:HotSpot]", 0, put), location("[interpreter:HotSpot]", 0, main)
	callee := location("[jit:HotSpot]", 0, put)
	const period = 1_000_000
	add := func(window int, calls, samples int64, stack ...*pprof.Location) {
		s := &pprof.Sample{Location: stack, Value: []int64{samples, samples * period},
			Label:    map[string][]string{stored.LabelComm: {"java"}},
			NumLabel: map[string][]int64{stored.LabelPID: {7}, stored.LabelWindow: {int64(window)}}}
		if len(p.SampleType) == 3 {
			s.Value = append([]int64{calls}, s.Value...)
		}
		if calls > 0 {
			s.Label[stored.LabelEngine], s.Label[stored.LabelBasis] = []string{"page"},
				[]string{profile.Counted.String()}
		}
		p.Sample = append(p.Sample, s)
	}
	m := &stored.Metadata{
		Methods: []string{"app.Main.put(I)V", "app.Shape.area()I"},
		Versions: []stored.Version{
			{PID: 7, ID: 1, Level: 3, Size: 960, Since: time.Second, State: int(profile.VersionGivenUp),
				Until: new(1200 * time.Millisecond)},
			{PID: 7, ID: 2, Level: 4, Size: 2048, Since: 1200 * time.Millisecond, State: int(profile.VersionGivenUp),
				InUse: new(time.Duration(seconds) * 500 * time.Millisecond),
				Until: new(time.Duration(seconds)*500*time.Millisecond + 200*time.Millisecond), Inlined: []int{1},
				Traps: []profile.Trap{{Method: "app.Shape.area", Reason: "class_check", Count: 2}}, Decompiles: new(4)},
			{PID: 7, ID: 3, Level: 4, Size: 4096, Since: time.Duration(seconds)*500*time.Millisecond +
				300*time.Millisecond, Seen: true, State: int(profile.VersionInUse)},
		},
	}
	random := rand.New(rand.NewPCG(1, 1))
	for w := range seconds {
		stack, c := put2, cost[0]
		if w >= seconds/2 {
			stack, c = put3, cost[1]
		}
		n := int64(90 + random.IntN(20))
		add(w+1, 0, int64(float64(n)*c), stack, caller)
		if calls {
			add(w+1, n, 0, callee, caller)
		}
		m.Windows = append(m.Windows, stored.Window{Number: int64(w + 1),
			Start: time.Unix(1_700_000_000+int64(w), 0).UTC(), Duration: time.Second})
	}
	add(1, 0, 3, interpreted, caller)
	if err := m.Store(p); err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	return p
}

func versionsText(t *testing.T, p *pprof.Profile, method string) string {
	t.Helper()
	var text strings.Builder
	if err := View(method)(&text, p, &layout.Options{N: 20}); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

func TestVersionsView(t *testing.T) {
	p := versionProfile(t, 60, [2]float64{4, 4}, true)
	all := versionsText(t, p, "")
	for _, want := range []string{"#3 C2  app.Main.put", "invalidated repeatedly",
		"4  deopt: class_check  app.Main.put", "Recompiled at the same level"} {
		if !strings.Contains(all, want) {
			t.Errorf("the list has no %q:\n%s", want, all)
		}
	}
	one := versionsText(t, p, "app.Main.put")
	for _, want := range []string{
		"#1 C1 (3) 1.0–1.2 s · #2 C2 1.2–30.2 s · deopt at 30.2 s: class_check · #3 C2 from ≤30.3 s",
		"#1 C1 (3), replaced by #2", "30.0–30.2", "2.0kB", "#2 inlines +app.Shape.area()I",
		"#3 inlines -app.Shape.area()I",
		"#2: trap class_check in app.Shape.area, 2 times", "3 samples with the method interpreted",
		"invalidated optimised code of the method 4 times",
		"differ in warm-up and input",
	} {
		if !strings.Contains(one, want) {
			t.Errorf("the view has no %q:\n%s", want, one)
		}
	}
	var text strings.Builder
	if err := View("put")(&text, p, nil); err == nil || !strings.Contains(err.Error(), "app.Main.put") {
		t.Errorf("part of a name: %v", err)
	}
	if err := View("")(&text, &pprof.Profile{SampleType: p.SampleType[1:]}, nil); err == nil {
		t.Error("a profile without versions has a view")
	}
}

// A version is slower than its predecessor only if the interval says so, and only per call.
func TestVersionVerdicts(t *testing.T) {
	for _, test := range []struct {
		name    string
		seconds int
		cost    [2]float64
		calls   bool
		want    string
	}{
		{"slower", 60, [2]float64{4, 5}, true, "#3 against #2: slower than its predecessor: CPU time per call +25."},
		{"faster", 60, [2]float64{5, 4}, true, "#3 against #2: faster than its predecessor: CPU time per call -20."},
		{"same", 60, [2]float64{4, 4}, true, "#3 against #2: as fast as its predecessor"},
		{"too few windows", 20, [2]float64{4, 8}, true,
			"#3 against #2: undecided: 10 windows and 10 windows of their own, 20 each are needed"},
		{"no calls", 60, [2]float64{4, 8}, false, "#3 against #2: undecided: calls were not counted"},
	} {
		text := versionsText(t, versionProfile(t, test.seconds, test.cost, test.calls), "app.Main.put")
		if !strings.Contains(text, test.want) {
			t.Errorf("%s: no %q in:\n%s", test.name, test.want, text)
		}
	}
}

// Whatever a file says of versions, there is a view or an error.
func TestHostileVersions(t *testing.T) {
	p := versionProfile(t, 20, [2]float64{4, 4}, true)
	m, err := stored.MetadataOf(p)
	if err != nil {
		t.Fatal(err)
	}
	m.Versions[1].Method, m.Versions[1].Inlined = 1000, []int{-1, 7}
	m.Versions = append(m.Versions, m.Versions[0], stored.Version{PID: 7, ID: 9, State: int(profile.VersionFreed)})
	if err := m.Store(p); err != nil {
		t.Fatal(err)
	}
	vs, err := Read(p)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range vs.Methods {
		if text := versionsText(t, p, of.SystemName); !strings.Contains(text, of.SystemName) {
			t.Error(fmt.Sprint(of.SystemName, ": ", text))
		}
	}
}

func TestName(t *testing.T) {
	loop := 17
	for want, v := range map[string]Code{
		"#7":                {Version: stored.Version{ID: 7, Level: 4}}, // only samples name it
		"#8":                {Version: stored.Version{ID: 8, Level: -1}, Known: true},
		"#9 native wrapper": {Version: stored.Version{ID: 9}, Known: true},
		"#10 C1 (3)":        {Version: stored.Version{ID: 10, Level: 3}, Known: true},
		"#11 C2 OSR@17":     {Version: stored.Version{ID: 11, Level: 4, OSR: &loop}, Known: true},
	} {
		if got := v.Name(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
