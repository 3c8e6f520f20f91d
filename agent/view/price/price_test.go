package price

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// profileOf has a sample for each row of values, in a method of its own: a, b, c and so on.
func profileOf(types []*pprof.ValueType, labels []map[string][]string, rows ...[]int64) *pprof.Profile {
	p := &pprof.Profile{SampleType: types, PeriodType: types[0], Period: 1, Comments: []string{"kept"}}
	for i, values := range rows {
		id := uint64(i + 1)
		f := &pprof.Function{ID: id, Name: string(rune('a' + i))}
		loc := &pprof.Location{ID: id, Line: []pprof.Line{{Function: f}}}
		s := &pprof.Sample{Location: []*pprof.Location{loc}, Value: values}
		if labels != nil {
			s.Label = labels[i]
		}
		p.Function, p.Location, p.Sample = append(p.Function, f), append(p.Location, loc), append(p.Sample, s)
	}
	return p
}

var (
	timeTypes  = []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}
	allocTypes = []*pprof.ValueType{{Type: "alloc_objects", Unit: "count"}, {Type: "alloc_space", Unit: "bytes"},
		{Type: "events", Unit: "count"}}
)

// costs are the values by method.
func costs(t *testing.T, p *pprof.Profile) map[string]int64 {
	t.Helper()
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	by := make(map[string]int64)
	for _, s := range p.Sample {
		by[s.Location[0].Line[0].Function.Name] += s.Value[0]
	}
	return by
}

func parse(t *testing.T, text string) *Model {
	t.Helper()
	m, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Costs by hand.
func TestApply(t *testing.T) {
	opcode := func(names ...string) (labels []map[string][]string) {
		for _, name := range names {
			labels = append(labels, map[string][]string{"opcode": {name}})
		}
		return labels
	}
	for name, tt := range map[string]struct {
		model string
		of    *pprof.Profile
		want  map[string]int64
		unit  string
	}{
		"CPU time": { // half an hour and a second, at 0.36 an hour
			"{name: cloud, unit: EUR, prices: [{of: cpu, price: 0.36, per: h}]}",
			profileOf(timeTypes, nil, []int64{180_000, 1_800_000_000_000}, []int64{100, 1_000_000_000}, []int64{0, 0}),
			map[string]int64{"a": 180_000_000, "b": 100_000}, "n EUR",
		},
		"CPU time and samples": { // 2 s at 3 a second, and 4 samples at 5 each
			"{name: both, unit: points, resolution: one, prices: [{of: cpu, price: 3, per: s}, {of: samples, price: " +
				"5}]}",
			profileOf(timeTypes, nil, []int64{4, 2_000_000_000}),
			map[string]int64{"a": 26}, "points",
		},
		"allocated bytes": { // 3 GB at 0.002 a GB; 1500 bytes at that are 3 nano
			"{name: gc, unit: EUR, prices: [{of: alloc_space, price: 0.002, per: GB}]}",
			profileOf(allocTypes, nil, []int64{1, 3_000_000_000, 1}, []int64{1, 1500, 1}),
			map[string]int64{"a": 6_000_000, "b": 3}, "n EUR",
		},
		"exact counts are of the same objects": {
			"{name: gc, unit: EUR, resolution: one, prices: [{of: alloc_space, price: 1, per: B}]}",
			profileOf(allocTypes, []map[string][]string{nil, {"kind": {"exact"}}}, []int64{1, 10, 1},
				[]int64{1, 10, 1}),
			map[string]int64{"a": 10}, "EUR",
		},
		"exact counts alone": {
			"{name: gc, unit: EUR, resolution: one, prices: [{of: alloc_space, price: 1, per: B}]}",
			profileOf(allocTypes, []map[string][]string{{"kind": {"exact"}}}, []int64{1, 10, 1}),
			map[string]int64{"a": 10}, "EUR",
		},
		"bytecodes": { // 10 × 1 + 3 × 100, and another at the price of all others
			"{name: jop, unit: cycles, resolution: one, prices: [{of: bytecodes, by: opcode, table: {iadd: 1, " +
				"invokestatic: 100}, other: 7}]}",
			profileOf([]*pprof.ValueType{{Type: "bytecodes", Unit: "count"}}, opcode("iadd", "invokestatic", "pop"),
				[]int64{10}, []int64{3}, []int64{2}),
			map[string]int64{"a": 10, "b": 300, "c": 14}, "cycles",
		},
		"causes of waits": { // idle threads cost nothing
			"{name: seats, unit: EUR, resolution: one, prices: [{of: wall, by: cause, table: {idle: 0}, other: 2, " +
				"per: s}]}",
			profileOf([]*pprof.ValueType{{Type: "wall", Unit: "nanoseconds"}},
				[]map[string][]string{{"cause": {"idle"}}, {"cause": {"running"}}, nil},
				[]int64{9e9}, []int64{3e9}, []int64{1e9}),
			map[string]int64{"b": 6, "c": 2}, "EUR",
		},
		"processes, by a label with numbers": {
			"{name: pids, unit: EUR, resolution: one, prices: [{of: cpu, by: pid, table: {'7': 3}, other: 1, per: s}]}",
			func() *pprof.Profile {
				p := profileOf(timeTypes, nil, []int64{1, 2e9}, []int64{1, 2e9})
				p.Sample[0].NumLabel = map[string][]int64{stored.LabelPID: {7}}
				return p
			}(),
			map[string]int64{"a": 6, "b": 2}, "EUR",
		},
		"calls whose number is unknown": {
			"{name: jop, unit: cycles, resolution: one, prices: [{of: calls, price: 100}]}",
			profileOf([]*pprof.ValueType{{Type: "calls", Unit: "count"}},
				[]map[string][]string{{"basis": {"estimated"}}, {"basis": {"unmeasured"}}}, []int64{10}, []int64{7}),
			map[string]int64{"a": 1000}, "cycles",
		},
		"rounding keeps the sum": { // three thirds
			"{name: third, unit: EUR, resolution: one, prices: [{of: samples, price: 1, per: 1000}]}",
			profileOf(timeTypes, nil, []int64{334, 0}, []int64{333, 0}, []int64{333, 0}),
			map[string]int64{"b": 1}, "EUR",
		},
	} {
		m := parse(t, tt.model)
		got, err := m.Apply(tt.of)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if by := costs(t, got); len(by) != len(tt.want) {
			t.Errorf("%s: %v, want %v", name, by, tt.want)
		} else {
			for method, want := range tt.want {
				if by[method] != want {
					t.Errorf("%s: %s costs %d, want %d", name, method, by[method], want)
				}
			}
		}
		cost := m.Cost()
		if u := got.SampleType[0]; len(got.SampleType) != 1 || u.Unit != tt.unit || u.Type != "cost:"+m.Name+":"+
			cost.Hash || got.DefaultSampleType != u.Type {
			t.Errorf("%s: type %+v, want one in %s", name, got.SampleType, tt.unit)
		}
		if back, ok := stored.CostOf(got.SampleType[0]); !ok || back != cost {
			t.Errorf("%s: %+v read back as %+v", name, cost, back)
		}
		if about := got.Comments; len(about) != 2 || about[0] != "kept" ||
			!strings.HasPrefix(about[1], "cost model "+m.Name+" "+cost.Hash+": ") {
			t.Errorf("%s: comments %q", name, about)
		}
	}
}

func TestApplyErrors(t *testing.T) {
	bytecodes := []*pprof.ValueType{{Type: "bytecodes", Unit: "count"}}
	for _, tt := range []struct {
		model string
		of    *pprof.Profile
		want  string
	}{
		{"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}]}", profileOf(allocTypes, nil, []int64{1, 2, 3}),
			"has prices of cpu, and the profile has alloc_objects, alloc_space, events"},
		{"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: GB}]}", profileOf(timeTypes, nil, []int64{1, 2}),
			"cpu is in nanoseconds: use one of ns, us, ms, s, min, h, day"},
		{"{name: m, unit: EUR, prices: [{of: cpu, price: 1}]}", profileOf(timeTypes, nil, []int64{1, 2}),
			"cpu is in nanoseconds"},
		{"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}]}",
			profileOf([]*pprof.ValueType{{Type: "cpu", Unit: "furlongs"}}, nil, []int64{1}),
			"cpu is in furlongs: prices are for times, bytes and counts"},
		{"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}]}", profileOf(timeTypes, nil, []int64{1, -2}),
			"negative values"},
		{"{name: m, unit: EUR, resolution: pico, prices: [{of: cpu, price: 1, per: ns}]}",
			profileOf(timeTypes, nil, []int64{1, math.MaxInt64}), "choose a coarser resolution"},
		{"{name: m, unit: cycles, prices: [{of: bytecodes, by: opcode, table: {iadd: 1}}]}",
			profileOf(bytecodes, []map[string][]string{{"opcode": {"pop"}}, nil}, []int64{1}, []int64{1}),
			"for samples without the label, pop: add them to the table"},
	} {
		if _, err := parse(t, tt.model).Apply(tt.of); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.model, err, tt.want)
		}
	}
}

// A profile without costs says that they are too small for the resolution.
func TestApplyTooCoarse(t *testing.T) {
	of := profileOf(timeTypes, nil, []int64{1, 1e9})
	got, err := parse(t, "{name: m, unit: EUR, resolution: one, prices: [{of: cpu, price: 0.04, per: h}]}").Apply(of)
	if err != nil || len(got.Sample) > 0 || !strings.Contains(got.Comments[len(got.Comments)-1],
		"choose a finer resolution") {
		t.Errorf("%v: %+v", err, got)
	}
	got, err = parse(t, "{name: m, unit: EUR, resolution: one, prices: [{of: cpu, price: 0, per: h}]}").Apply(of)
	if err != nil || strings.Contains(got.Comments[len(got.Comments)-1], "resolution") {
		t.Errorf("%v: %q", err, got.Comments)
	}
}

// What is wrong with a model is an error that says what to write instead.
func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"{name: m, unit: EUR, pirces: []}":                             `unknown key "pirces": did you mean prices?`,
		"{name: m, unit: EUR, vat: 19}":                                `unknown key "vat": use name, unit, resolution, about, prices`,
		"{name: m, unit: EUR, prices: [{off: cpu, price: 1, per: h}]}": `unknown key "off": did you mean of?`,
		"{name: m, name: n, unit: EUR}":                                "twice",
		"{name: a b, unit: EUR}":                                       "letters, digits and _",
		"{name: m, unit: a b}":                                         "without spaces",
		"{name: m}":                                                    "unit: give the unit",
		"{name: m, unit: EUR}":                                         "prices: there are none",
		"{name: m, unit: EUR, resolution: tiny, prices: [{of: cpu, price: 1, per: h}]}":             "use one, milli, micro, nano",
		"{name: m, unit: EUR, prices: [{price: 1}]}":                                                "of is missing",
		"{name: m, unit: EUR, prices: [{of: cpu, per: h}]}":                                         "price is missing",
		"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: fortnight}]}":                       "fortnight is unknown: use ns, us, ms, s, min, h, day for times, B, kB",
		"{name: m, unit: EUR, prices: [{of: cpu, price: -1, per: h}]}":                              "-1 is not a price",
		"{name: m, unit: EUR, prices: [{of: cpu, price: .inf, per: h}]}":                            "is not a price",
		"{name: m, unit: EUR, prices: [{of: cpu, price: cheap, per: h}]}":                           "cannot unmarshal",
		"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}, {of: cpu, price: 2, per: h}]}":  "price 2: cpu has a price already",
		"{name: m, unit: EUR, prices: [{of: wall, price: 1, per: h, table: {idle: 0}}]}":            "table and other need by",
		"{name: m, unit: EUR, prices: [{of: wall, by: cause, price: 1, per: h, table: {idle: 0}}]}": "put the price into other",
		"{name: m, unit: EUR, prices: [{of: wall, by: cause, per: h}]}":                             "by needs a table",
		"{name: m, unit: c, prices: [{of: bytecodes, by: opcode, table: {iaad: 1}}]}":               "iaad is not a bytecode: did you mean",
		"{name: m, unit: c, prices: [{of: bytecodes, by: opcode, table: {iadd: -1}}]}":              "table: iadd: -1 is not a price",
		"name: [": "yaml",
		"{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}]}\n---\nname: n": "one file has one model",
		strings.Repeat("#", maxFile+1):                                              "larger than 64 kB",
		"{name: m, unit: EUR, prices: 1}":                                           "cannot unmarshal",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.100s: %v, want an error with %q", text, err, want)
		}
	}
}

// The hash is that of what a model says, not of how it is written.
func TestHash(t *testing.T) {
	one := parse(t, "{name: m, unit: EUR, about: guess, prices: [{of: cpu, price: 0.5, per: h}]}").Cost()
	same := parse(t, "# a comment\nunit: EUR\nname: m\nprices:\n- of: cpu\n  per: h\n  price: 5e-1\n").Cost()
	dearer := parse(t, "{name: m, unit: EUR, prices: [{of: cpu, price: 0.6, per: h}]}").Cost()
	if one != same || one.Hash == dearer.Hash || len(one.Hash) != 8 {
		t.Errorf("%+v, %+v, %+v", one, same, dearer)
	}
}

func TestMissing(t *testing.T) {
	m := parse(t, "{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}, {of: alloc_space, price: 1, per: GB}]}")
	cpu, alloc := profileOf(timeTypes, nil, []int64{1, 1}), profileOf(allocTypes, nil, []int64{1, 1, 1})
	if got := m.Missing([]*pprof.Profile{cpu}); !slices.Equal(got, []string{"alloc_space"}) {
		t.Errorf("missing %q", got)
	}
	if got := m.Missing([]*pprof.Profile{cpu, alloc}); len(got) > 0 {
		t.Errorf("missing %q", got)
	}
}

// The models that ship are valid, and say that their prices are assumptions.
func TestExamples(t *testing.T) {
	files, err := filepath.Glob("../../../contrib/costs/*.yaml")
	if err != nil || len(files) < 2 {
		t.Fatalf("%v: %d models", err, len(files))
	}
	for _, file := range files {
		m, err := Read(file)
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if !strings.Contains(m.About, "assum") {
			t.Errorf("%s does not say that its prices are assumptions", file)
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "missing.yaml")); !os.IsNotExist(err) &&
		!strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("{name: m, unit: EUR, prices: [{of: cpu, price: 1, per: h}]}")
	f.Add("{name: jop, unit: cycles, prices: [{of: bytecodes, by: opcode, table: {iadd: 1}, other: 2}]}")
	f.Fuzz(func(t *testing.T, text string) {
		if m, err := Parse([]byte(text)); err == nil {
			m.Cost()
		}
	})
}
