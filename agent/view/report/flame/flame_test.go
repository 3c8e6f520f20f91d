package flame

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// A flameProfile makes profiles of CPU time for these tests.
type flameProfile struct {
	pprof.Profile
	locations map[string]*pprof.Location
	mappings  map[string]*pprof.Mapping
}

func newFlameProfile(columns ...*pprof.ValueType) *flameProfile {
	p := &flameProfile{locations: make(map[string]*pprof.Location), mappings: make(map[string]*pprof.Mapping)}
	p.SampleType = columns
	p.TimeNanos, p.DurationNanos = 1e18, int64(10*time.Second)
	return p
}

var timeColumns = []*pprof.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}}

// at returns the location of a method, which is written mapping:method.
func (p *flameProfile) at(name string) *pprof.Location {
	if p.locations[name] == nil {
		file, method, _ := strings.Cut(name, ":")
		if p.mappings[file] == nil {
			p.mappings[file] = &pprof.Mapping{ID: uint64(len(p.Mapping) + 1),
				File: map[string]string{"j": "[jit:HotSpot]", "i": "[interpreter:HotSpot]", "k": "[kernel]"}[file]}
			if p.mappings[file].File == "" {
				p.mappings[file].File = file
			}
			p.Mapping = append(p.Mapping, p.mappings[file])
		}
		f := &pprof.Function{ID: uint64(len(p.Function) + 1), Name: method, SystemName: method, Filename: "A.java"}
		p.Function = append(p.Function, f)
		p.locations[name] = &pprof.Location{ID: uint64(len(p.Location) + 1), Mapping: p.mappings[file],
			Line: []pprof.Line{{Function: f, Line: 7}}}
		p.Location = append(p.Location, p.locations[name])
	}
	return p.locations[name]
}

// add adds a sample of a stack, outermost first.
func (p *flameProfile) add(pid int64, comm, thread string, stack []string, values ...int64) *pprof.Sample {
	s := &pprof.Sample{Value: values, Label: map[string][]string{},
		NumLabel: map[string][]int64{stored.LabelPID: {pid}}}
	s.Label[stored.LabelComm], s.Label[stored.LabelThread], s.Label[stored.LabelRuntime] = []string{comm},
		[]string{thread}, []string{"hotspot"}
	for i := len(stack) - 1; i >= 0; i-- {
		s.Location = append(s.Location, p.at(stack[i]))
	}
	p.Sample = append(p.Sample, s)
	return s
}

// paths lists a Graph's nodes with a value of their own as text, from its JSON form.
func paths(t *testing.T, f *Graph) map[string]float64 {
	t.Helper()
	data, err := json.Marshal(f)
	if err != nil {
		t.Fatal(err)
	}
	var d flameDocument
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	list, names := make(map[string]float64), make([]string, len(d.Nodes.Parent))
	for i, parent := range d.Nodes.Parent {
		names[i] = d.Names[d.Frames.Name[d.Nodes.Frame[i]]]
		if parent >= 0 {
			names[i] = names[parent] + ";" + names[i]
		}
		if d.Nodes.Self[i] != 0 {
			list[names[i]] += d.Nodes.Self[i]
		}
	}
	return list
}

func flamesOf(t *testing.T, p *pprof.Profile) []*Graph {
	t.Helper()
	flames, err := Read(p)
	if err != nil {
		t.Fatal(err)
	}
	return flames
}

// Threads that differ by a number are one group, tiers are one frame, and values and counts are
// sums.
func TestFlames(t *testing.T) {
	p := newFlameProfile(timeColumns...)
	p.add(1, "shop", "http-1", []string{"j:run", "j:hot"}, 3, 30)
	p.add(1, "shop", "http-2", []string{"i:run", "j:hot"}, 1, 10)
	p.add(1, "shop", "GC Thread#0", []string{"/lib/libjvm.so:mark"}, 2, 20)
	p.add(2, "db", "db", []string{"k:read"}, 4, 40)
	sample := p.add(1, "shop", "http-2", []string{"j:run", "j:maybe"}, 1, 10)
	sample.Label[stored.LabelContext] = []string{profile.Ambiguous.String()}

	flames := flamesOf(t, &p.Profile)
	if len(flames) != 1 || flames[0].Kind != KindCPU || flames[0].Unit != stored.UnitTime || flames[0].Total() != 110 {
		t.Fatalf("%v", flames)
	}
	f := flames[0]
	want := map[string]float64{"shop (pid 1);http-*;run;hot": 40, "shop (pid 1);http-*;run;maybe": 10,
		"shop (pid 1);GC Thread#*;mark": 20, "db (pid 2);db;read": 40}
	if got := paths(t, f); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if services := f.Services(); len(services) != 2 || services[0].Service != "shop" || services[0].Value != 70 {
		t.Errorf("services %+v", services)
	}
	if got := paths(t, f.ForService("db", 0)); len(got) != 1 || f.ForService("", 1).Total() != 70 || f.ForService("db", 1).Total() != 0 {
		t.Errorf("of db: %v", got)
	}
	data, _ := json.Marshal(f)
	var d flameDocument
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	for i, frame := range d.Nodes.Frame {
		name, kind := d.Names[d.Frames.Name[frame]], d.Kinds[d.Frames.Kind[frame]]
		switch {
		case name == "run" && (kind != "managed" || fmt.Sprint(d.Nodes.Tiers[i]) != "[20 0 0 80 0]" ||
			d.Nodes.Approx[i] != 20 || d.Nodes.Line[i] != 7):
			t.Errorf("run is %s, tiers %v, approximate %d %%, line %d", kind, d.Nodes.Tiers[i], d.Nodes.Approx[i],
				d.Nodes.Line[i])
		case name == "mark" && kind != "vm", name == "read" && kind != "kernel":
			t.Errorf("%s is %s", name, kind)
		}
	}
	f.Merge(f.ForService("", 0))
	if f.Total() != 220 || f.Duration != 20*time.Second || len(f.bars) != 2 {
		t.Errorf("merged with itself: %v, %v, %v", f, f.Total(), f.Duration)
	}
}

// Of a recording with calls, CPU time has their rates, and calls are a kind of their own, by the
// engine with most of them.
func TestFlamesOfCalls(t *testing.T) {
	p := newFlameProfile(append(timeColumns, &pprof.ValueType{Type: "calls", Unit: "count"})...)
	p.add(1, "shop", "main", []string{"j:run", "j:hot"}, 3, 30, 0)
	for engine, calls := range map[string]int64{"page": 500, "hotspot": 400} {
		p.add(1, "shop", "", []string{"j:run", "j:hot"}, 0, 0, calls).Label[stored.LabelEngine] = []string{engine}
	}
	flames := flamesOf(t, &p.Profile)
	if len(flames) != 2 || flames[1].Kind != KindCalls || flames[1].Total() != 500 {
		t.Fatalf("%v", flames)
	}
	data, _ := json.Marshal(flames[0])
	var d flameDocument
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	if d.Calls == nil || d.Names[d.Calls.Caller[0]] != "run" || d.Names[d.Calls.Callee[0]] != "hot" ||
		d.Calls.PerSecond[0] != 50 {
		t.Errorf("calls %+v", d.Calls)
	}
}

// However large a profile is, what is drawn is bounded and adds up to the same.
func TestFlameCut(t *testing.T) {
	p := newFlameProfile(timeColumns...)
	for i := range 3000 {
		p.add(1, "shop", "main", []string{"j:run", fmt.Sprintf("j:a%d", i%70), fmt.Sprintf("j:b%d", i)}, 1,
			int64(10+i%7))
	}
	p.add(1, "shop", "main", []string{"j:run", "j:hot"}, 100, 1000)
	const callers, each = 300, 5
	for i := range callers {
		p.add(1, "shop", "main", []string{"j:run", fmt.Sprintf("j:c%d", i), "j:leaf"}, 1, each)
	}
	f := flamesOf(t, &p.Profile)[0]
	const limit = 100
	cut := f.Cut(limit)
	if len(cut.nodes) > 5*limit/2+1 || cut.Total() != f.Total() {
		t.Errorf("%v of %v, which is %v of %v", cut, f, cut.Total(), f.Total())
	}
	got := paths(t, cut)
	rare, leaf := 0.0, 0.0
	for path, value := range got {
		if strings.HasSuffix(path, ";"+profile.RareStacks) {
			rare += value
		}
		if strings.HasSuffix(path, ";leaf") {
			leaf += value
		}
	}
	if leaf != callers*each {
		t.Errorf("a method that rare stacks end in has %v, want %v", leaf, callers*each)
	}
	if got["shop (pid 1);main;run;hot"] != 1000 || rare == 0 {
		t.Errorf("%v", got)
	}
	if again := cut.ForService("", 0).Cut(10); again.Total() != f.Total() || len(again.nodes) > 26 {
		t.Errorf("cut twice: %v", again)
	}

	deep := newFlameProfile(timeColumns...)
	deep.add(1, "shop", "main", strings.Fields(strings.Repeat("j:f ", 5000)), 1, 10)
	if f := flamesOf(t, &deep.Profile)[0]; len(f.nodes) > maxFlameDepth+10 || f.Total() != 10 {
		t.Errorf("deep: %v", f)
	}
}

// Whatever is cut, what is kept and what is left out are all there was: of each process, in each
// column and in each window.
func TestFlameCutKeepsSums(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 1))
		f := newFlame(KindCPU, "CPU time", stored.UnitTime)
		f.base = new(flameBase)
		f.bars = []flameBar{{cells: map[cct.NodeID]flameCell{}}, {cells: map[cct.NodeID]flameCell{}}}
		for range 400 {
			at := f.child(cct.Root, f.frame(flameFrame{name: fmt.Sprint("p", r.IntN(3)), kind: kindProcess}))
			for range r.IntN(6) {
				at = f.child(at, f.frame(flameFrame{name: fmt.Sprint("f", r.IntN(9))}))
			}
			column, bar := r.IntN(2), &f.bars[r.IntN(2)]
			f.nodes[at].value[column]++
			f.nodes[at].count[column]++
			bar.cells[at] = bar.cells[at].plus(flameCell{1, 1})
		}
		limit := 1 + r.IntN(200)
		cut := f.Cut(limit)
		if n := cut.tree.Len(); n > 5*limit/2+1 && n > limit {
			t.Errorf("seed %d: %d nodes, limit %d", seed, n, limit)
		}
		for column := range 2 {
			if got, want := cut.totals(column)[0], f.totals(column)[0]; got != want {
				t.Errorf("seed %d: column %d has %v, want %v", seed, column, got, want)
			}
		}
		if got, want := fmt.Sprint(cut.Services()), fmt.Sprint(f.Services()); limit > 10 && got != want {
			t.Errorf("seed %d: processes %v, want %v", seed, got, want)
		}
		for i, bar := range cut.bars {
			sum, want := flameCell{}, flameCell{}
			for _, c := range bar.cells {
				sum = sum.plus(c)
			}
			for _, c := range f.bars[i].cells {
				want = want.plus(c)
			}
			if sum != want {
				t.Errorf("seed %d: window %d has %v, want %v", seed, i, sum, want)
			}
		}
		again, err := json.Marshal(cut)
		if share := strings.Contains(string(again), "of the total is in rare stacks"); err != nil ||
			share != (cut.tree.Len() != f.tree.Len()) {
			t.Errorf("seed %d: the share of rare stacks is shown: %v, %v", seed, share, err)
		}
	}
}

// A kind of which nothing was recorded has empty lists, which pages can read.
func TestFlameEmpty(t *testing.T) {
	empty := Empty("lock", "Locks", time.Time{}, time.Second)
	for _, f := range []*Graph{empty, empty.Against(Empty("lock", "Locks", time.Time{}, time.Second))} {
		text, err := json.Marshal(f)
		if err != nil || strings.Contains(string(text), "null") {
			t.Errorf("%s, %v", text, err)
		}
	}
}

// Two recordings of one service meet although their processes have other numbers.
func TestFlameAgainst(t *testing.T) {
	a, b := newFlameProfile(timeColumns...), newFlameProfile(timeColumns...)
	a.add(1, "shop", "main", []string{"j:run", "j:old"}, 1, 10)
	a.add(1, "shop", "main", []string{"j:run"}, 3, 30)
	b.add(7, "shop", "main", []string{"j:run", "j:new"}, 2, 20)
	b.add(7, "shop", "main", []string{"j:run"}, 3, 30)
	f := flamesOf(t, &b.Profile)[0].Against(flamesOf(t, &a.Profile)[0])
	data, _ := json.Marshal(f)
	var d flameDocument
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	got := make(map[string][2]float64)
	for i, frame := range d.Nodes.Frame {
		got[d.Names[d.Frames.Name[frame]]] = [2]float64{d.Base.Self[i], d.Nodes.Self[i]}
	}
	want := map[string][2]float64{"shop (pid 1)": {}, "shop": {}, "main": {}, "run": {30, 30}, "old": {10, 0},
		"new": {0, 20}}
	delete(want, "shop (pid 1)")
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
