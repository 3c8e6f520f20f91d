package flame

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// flameFormat is the version of the JSON form of a Graph. It changes when readers would
// misunderstand what they do not know.
const flameFormat = 1

// maxShownCalls is how many places of calls the JSON form has.
const maxShownCalls = 5000

// The JSON form of a Graph: tables in columns, to be small. docs/reference/http.md describes it.
type flameDocument struct {
	Format   int             `json:"format"`
	Kind     string          `json:"kind"`
	Title    string          `json:"title"`
	Unit     string          `json:"unit"`
	Start    *int64          `json:"start,omitempty"` // ms since 1970
	Seconds  float64         `json:"seconds"`
	Effect   float64         `json:"effect"`
	Notes    []string        `json:"notes,omitempty"`
	Names    []string        `json:"names"`
	Kinds    []string        `json:"frameKinds"`
	Tiers    []string        `json:"tierNames"`
	Frames   flameFrames     `json:"frames"`
	Nodes    flameNodes      `json:"nodes"`
	Base     *flameBaseNodes `json:"base,omitempty"`
	Verdicts *Verdicts       `json:"verdicts,omitempty"`
	Calls    *flameCalls     `json:"calls,omitempty"`
	Timeline *flameTimeline  `json:"timeline,omitempty"`
	PIDs     []Process       `json:"processes,omitempty"`
	Lanes    []flameLanes    `json:"lanes,omitempty"`
	Slow     *slowDocument   `json:"slow,omitempty"`
}

type flameFrames struct {
	Name []int `json:"name"` // place in names
	File []int `json:"file"`
	Kind []int `json:"kind"` // place in frameKinds
}

type flameNodes struct {
	Parent []int32   `json:"parent"` // -1 for outermost ones
	Frame  []int32   `json:"frame"`
	Self   []float64 `json:"self"`
	Count  []float64 `json:"count"`
	Approx []int     `json:"approx"` // percent of the value, with descendants
	Line   []int32   `json:"line"`
	Tiers  []any     `json:"tiers"` // percent by tierNames, 0 for none
}

type flameBaseNodes struct {
	Start   *int64    `json:"start,omitempty"` // ms since 1970
	Seconds float64   `json:"seconds"`
	Self    []float64 `json:"self"`
	Count   []float64 `json:"count"`
}

type flameCalls struct {
	Caller    []int     `json:"caller"` // place in names
	Callee    []int     `json:"callee"`
	Line      []int32   `json:"line"`   // line of the call, 0 if unknown
	Offset    []int32   `json:"offset"` // offset of the call in the caller, -1 if unknown
	PerSecond []float64 `json:"perSecond"`
}

type flameTimeline struct {
	Classes []string    `json:"classes"`
	Start   []int64     `json:"start"` // ms since 1970
	Seconds []float64   `json:"seconds"`
	Values  [][]float64 `json:"values"` // by class, then by window
	Parts   *flameParts `json:"parts,omitempty"`
}

// MarshalJSON writes the form that the pages read. Call Cut first to bound it.
func (f *Graph) MarshalJSON() ([]byte, error) {
	d := flameDocument{Format: flameFormat, Kind: f.Kind, Title: f.Title, Unit: f.Unit, Seconds: f.Duration.Seconds(),
		Effect: f.effect, Notes: f.Notes, Verdicts: f.Verdicts,
		Kinds: frameKindNames[:], Tiers: tierNames[:], Names: []string{""},
		// Lists are there also if they are empty: readers need not distinguish that from a missing
		// one.
		Frames: flameFrames{Name: []int{}, File: []int{}, Kind: []int{}},
		Nodes: flameNodes{Parent: []int32{}, Frame: []int32{}, Self: []float64{}, Count: []float64{}, Approx: []int{},
			Line: []int32{}, Tiers: []any{}},
	}
	d.Start = millis(f.Start)
	places := map[string]int{"": 0}
	place := func(name string) int {
		at, known := places[name]
		if !known {
			at = len(d.Names)
			places[name] = at
			d.Names = append(d.Names, name)
		}
		return at
	}
	frames := make([]int32, len(f.frames)) // place in the document, plus one
	frame := func(of int32) int32 {
		if frames[of] == 0 {
			frames[of] = int32(len(d.Frames.Name)) + 1
			d.Frames.Name = append(d.Frames.Name, place(f.frames[of].name))
			d.Frames.File = append(d.Frames.File, place(f.frames[of].file))
			d.Frames.Kind = append(d.Frames.Kind, int(f.frames[of].kind))
		}
		return frames[of] - 1
	}
	totals, approx := f.totals(0), make([]float64, len(f.nodes))
	for at := range f.nodes {
		approx[at] = f.nodes[at].approx
	}
	f.tree.AddUp(approx)
	rare := 0.0
	n := &d.Nodes
	if f.base != nil {
		d.Base = &flameBaseNodes{Start: millis(f.base.start), Seconds: f.base.duration.Seconds(), Self: []float64{},
			Count: []float64{}}
	}
	for at, of := range f.tree.Nodes() {
		if at == cct.Root {
			continue
		}
		node := &f.nodes[at]
		n.Parent, n.Frame = append(n.Parent, int32(of.Parent)-1), append(n.Frame, frame(of.Key))
		n.Self, n.Count, n.Line = append(n.Self, node.value[0]), append(n.Count, node.count[0]),
			append(n.Line, node.line)
		n.Approx = append(n.Approx, wholePercent(approx[at]+node.inner, totals[at]))
		n.Tiers = append(n.Tiers, tierPercents(node.tiers))
		if d.Base != nil {
			d.Base.Self, d.Base.Count = append(d.Base.Self, node.value[1]), append(d.Base.Count, node.count[1])
		}
		if p, known := f.processes[of.Key]; known && of.Depth == 1 {
			p.Value = totals[at]
			d.PIDs = append(d.PIDs, p)
		}
		if f.frames[of.Key].name == profile.RareStacks {
			rare += totals[at]
		}
	}
	if rare > 0 {
		d.Notes = append(slices.Clip(d.Notes), fmt.Sprintf("%s of the total is in rare stacks, which are merged into %s",
			stored.Percent(rare, totals[0]), profile.RareStacks))
	}
	d.Calls = f.shownCalls(place)
	d.Timeline = f.timeline()
	d.Lanes = f.shownLanes()
	d.Slow = f.slow.document()
	return json.Marshal(d)
}

// millis is a time in ms since 1970; nil for the zero time.
func millis(t time.Time) *int64 {
	if t.IsZero() {
		return nil
	}
	ms := t.UnixMilli()
	return &ms
}

func wholePercent(part, all float64) int {
	if all <= 0 {
		return 0
	}
	return int(math.Round(100 * min(max(part/all, 0), 1)))
}

// tierPercents is 0 or a list of percentages.
func tierPercents(t [tiers]float64) any {
	all := 0.0
	for i, v := range t {
		if i != tierInlined {
			all += v
		}
	}
	if all <= 0 {
		return 0
	}
	list := make([]int, tiers)
	for i, v := range t {
		list[i] = wholePercent(v, all)
	}
	return list
}

func (f *Graph) shownCalls(place func(string) int) *flameCalls {
	seconds := f.Duration.Seconds()
	if len(f.calls) == 0 || seconds <= 0 {
		return nil
	}
	sums := make(map[flameCall]float64) // sums over all processes
	for of, n := range f.calls {
		of.process = 0
		sums[of] += n
	}
	places := slices.SortedFunc(maps.Keys(sums), func(a, b flameCall) int {
		return cmp.Or(cmp.Compare(sums[b], sums[a]), a.compare(b))
	})
	c := new(flameCalls)
	for _, p := range places[:min(len(places), maxShownCalls)] {
		c.Caller, c.Callee = append(c.Caller, place(f.frames[p.caller].name)),
			append(c.Callee, place(f.frames[p.callee].name))
		c.Line, c.Offset = append(c.Line, p.site.Line), append(c.Offset, p.site.Offset)
		c.PerSecond = append(c.PerSecond, math.Round(1000*sums[p]/seconds)/1000)
	}
	return c
}

// timeline is nil unless there are several windows.
func (f *Graph) timeline() *flameTimeline {
	if len(f.bars) < 2 {
		return nil
	}
	t := &flameTimeline{Values: make([][]float64, classes), Parts: f.parts()}
	for class := range classes {
		t.Classes = append(t.Classes, ClassName(class))
	}
	for _, bar := range f.bars {
		t.Start, t.Seconds = append(t.Start, bar.start.UnixMilli()),
			append(t.Seconds, bar.duration.Round(time.Millisecond).Seconds())
		var all [classes]float64
		for _, sums := range bar.of {
			for i, v := range sums {
				all[i] += v
			}
		}
		for i, v := range all {
			t.Values[i] = append(t.Values[i], v)
		}
	}
	return t
}
