package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/stored"
)

// A Flame is what the pages draw of one kind of values: a tree of processes, thread groups and frames, the calls between
// methods where they were counted, and the course of the values over time. It has neither addresses nor thread ids, so it is
// much smaller than the profile. Several can be merged, and one can be the baseline of another.
//
//	flames, err := report.Flames(p)
//	data, err := json.Marshal(flames[0].Cut(5000))
//
// A Flame is not safe for concurrent use, unless nobody changes it.
type Flame struct {
	Kind, Title, Unit string // "cpu", "CPU time", "nanoseconds"
	Start             time.Time
	Duration          time.Duration // of all windows together
	Notes             []string      // what a reader must know, one sentence each

	effect    float64 // what variances are multiplied by, at least 1: see storedEvents.effect
	frames    []flameFrame
	index     map[flameFrame]int32
	nodes     []flameNode // parents before children; the first is the root, without a frame
	children  map[flameChild]int32
	processes map[int32]FlameProcess // by frame
	calls     map[flameCall]float64
	bars      []flameBar
	base      *flameBase
}

// A flameBase is what a baseline adds: its nodes' values are in the second column.
type flameBase struct{ duration time.Duration }

// A FlameProcess is one process in a Flame.
type FlameProcess struct {
	PID     int64   `json:"pid"`
	Comm    string  `json:"comm"`
	Service string  `json:"service"` // Comm if the profile has no service
	Runtime string  `json:"runtime,omitempty"`
	Value   float64 `json:"value"` // in the unit of its Flame
}

// flameFrame identifies a frame. Addresses, lines and tiers of compilation are merged.
type flameFrame struct {
	name, file string
	kind       frameKind
}

// A frameKind is what a frame is, for its colour.
type frameKind uint8

const (
	kindMarker frameKind = iota
	kindProcess
	kindThread
	kindManaged // interpreted or compiled by a VM
	kindStub
	kindVM // the VM's own library
	kindNative
	kindKernel
	kindClass // or whatever else is a label of events
)

// Names of the kinds in JSON, by number.
var frameKindNames = [...]string{"marker", "process", "thread", "managed", "stub", "vm", "native", "kernel", "class"}

// Tiers of execution of a managed frame.
const (
	tierInterpreted = iota
	tierC1
	tierC2
	tierCompiled // by an unknown compiler
	tierInlined  // in addition to one of the others
	tiers
)

var tierNames = [tiers]string{"interpreted", "C1", "C2", "compiled", "inlined"}

type flameNode struct {
	parent, frame int32
	value, count  [2]float64 // of exactly this context, and of the baseline: values, and samples or observed events
	approx        float64    // part of value whose callers are not certain
	inner         float64    // part of value whose innermost method, which is this one, is not certain
	// line is the line of most of the weight, by majority vote (Boyer and Moore): votes is what the others have not outvoted.
	line  int32
	votes float64
	tiers [tiers]float64 // parts of the value with all descendants
}

type flameChild struct{ parent, frame int32 }

// A flameCall is a pair of methods of one process.
type flameCall struct {
	process        int32 // its frame
	caller, callee int32
}

// A flameBar is the values of one window by process and by what ran.
type flameBar struct {
	start    time.Time
	duration time.Duration
	of       map[int32]*[classes]float64 // by the process's frame
}

// Classes of what a thread did when it was sampled: those of profile.CodeKind, and one more.
const (
	classUnknown = int(profile.CodeKinds)
	classes      = classUnknown + 1
)

// ClassName is the name of a class of a timeline, whose number is a profile.CodeKind or profile.CodeKinds.
func ClassName(class int) string {
	if class >= classUnknown {
		return "unknown"
	}
	return profile.CodeKind(class).String()
}

const (
	maxFlameNodes = 1 << 19
	maxFlameDepth = 400 // of frames; what is deeper becomes one frame
	maxFlameCalls = 20_000
	// RareFrames is the frame that stands for those left out by Cut.
	RareFrames = "[rare]"
	deepFrames = "[deeper frames]"
)

func newFlame(kind, title, unit string) *Flame {
	return &Flame{Kind: kind, Title: title, Unit: unit, effect: 1, index: make(map[flameFrame]int32), nodes: []flameNode{{parent: -1, frame: -1}},
		children: make(map[flameChild]int32), processes: make(map[int32]FlameProcess), calls: make(map[flameCall]float64)}
}

// Titles of the kinds that have no events.
const (
	KindCPU   = "cpu"
	KindCalls = "calls"
)

var flameTitles = map[profile.EventKind]string{
	profile.Allocations: "Allocated bytes", profile.Locks: "Delay by locks", profile.Values: "Values at probes",
	profile.Pauses: "Safepoint pauses", profile.Faults: "Page faults", profile.Cycles: "CPU cycles",
}

// flameLeaves are the labels of events that make the innermost frame.
var flameLeaves = map[profile.EventKind][]string{
	profile.Allocations: {stored.LabelClass}, profile.Locks: {stored.LabelKind, stored.LabelClass}, profile.Values: {stored.LabelProbe, stored.LabelValue},
	profile.Pauses: {stored.LabelKind}, profile.Faults: {stored.LabelClass},
}

// Flames returns one Flame for each kind of values in a stored profile, the one to show first first; none of a kind that has
// no values. It fails if the values cannot be added up.
func Flames(p *pprof.Profile) ([]*Flame, error) {
	var all []*Flame
	switch kind, events := EventKindOf(p); {
	case events:
		f := newFlame(kind.String(), flameTitles[kind], stored.MainValue(kind).Unit)
		r := flameReader{Flame: f, leaf: flameLeaves[kind]}
		if e, err := readEvents(p, kind); err == nil && !math.IsInf(e.effect, 0) && e.effect >= 1 {
			f.effect = e.effect
		}
		if err := r.read(p, stored.MainValue(kind).Type, stored.TypeEvents); err != nil {
			return nil, err
		}
		all = append(all, f)
	case HasTime(p):
		valueType := stored.TypeSamples
		f := newFlame(KindCPU, "CPU time", stored.UnitCount)
		if typeIndex(p, stored.TypeCPU) >= 0 {
			valueType, f.Unit = stored.TypeCPU, stored.UnitTime
		}
		r := flameReader{Flame: f}
		if err := r.read(p, valueType, stored.TypeSamples); err != nil {
			return nil, err
		}
		if err := r.addCalls(p); err != nil {
			return nil, err
		}
		all = append(all, f)
	case !HasCalls(p):
		main, err := mainType(p)
		if err != nil {
			return nil, err
		}
		unit := stored.UnitCount
		if at := typeIndex(p, main); at >= 0 {
			unit = stored.Printable(p.SampleType[at].Unit)
		}
		f := newFlame(stored.Printable(main), stored.Printable(main), unit)
		r := flameReader{Flame: f}
		if err := r.read(p, main, ""); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if HasCalls(p) && holdsCalls(p) {
		f := newFlame(KindCalls, "Calls", stored.UnitCount)
		r := flameReader{Flame: f, engine: busiestEngine(p)}
		if err := r.read(p, stored.TypeCalls, ""); err != nil {
			return nil, err
		}
		if err := r.addCalls(p); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	return all, nil
}

// busiestEngine is the engine with most calls: others counted the same calls.
func busiestEngine(p *pprof.Profile) string {
	index, sums := typeIndex(p, stored.TypeCalls), make(map[string]float64)
	for _, sample := range p.Sample {
		sums[label(sample, stored.LabelEngine)] += float64(sample.Value[index])
	}
	var best string
	for _, engine := range slices.Sorted(maps.Keys(sums)) {
		if sums[engine] > sums[best] {
			best = engine
		}
	}
	return best
}

// A flameReader fills a Flame from a stored profile.
type flameReader struct {
	*Flame
	leaf   []string
	engine string             // of calls
	levels map[versionKey]int // tiers of code versions
	shown  map[*pprof.Location][]shownFrame
}

type versionKey struct {
	pid int64
	id  uint32
}

type shownFrame struct {
	frame int32
	line  int32
	tier  int // -1 if it has none
	flags frameFlags
}

// read adds the samples of a profile by one value. The counts are another one, "" for none.
func (r *flameReader) read(p *pprof.Profile, valueType, countType string) error {
	s, err := newStacks(p, valueType)
	if err != nil {
		return err
	}
	if waited := s.leaveWaits(); waited > 0 {
		r.Notes = append(r.Notes, "omitted: waits for work, "+s.amount(float64(waited)))
	}
	if r.engine != "" {
		s.keep = func(sample *pprof.Sample) bool { return label(sample, stored.LabelEngine) == r.engine }
	}
	if len(r.leaf) > 0 { // classes and the like are found in all samples or in none
		if !slices.ContainsFunc(p.Sample, func(sample *pprof.Sample) bool { return leafOf(sample, r.leaf) != "" }) {
			r.leaf = nil
		}
	}
	r.Duration = time.Duration(max(p.DurationNanos, 0))
	if p.TimeNanos > 0 {
		r.Start = time.Unix(0, p.TimeNanos)
	}
	r.Notes = append(r.Notes, noteList(p)...)
	r.levels = make(map[versionKey]int)
	if m, err := stored.MetadataOf(p); err == nil {
		for _, v := range m.Versions {
			r.levels[versionKey{v.PID, v.ID}] = v.Level
		}
	}
	r.shown = make(map[*pprof.Location][]shownFrame)
	count := typeIndex(p, countType)
	bars := r.windows(p)
	for sample, value := range s.all() {
		n := 0.0
		if count >= 0 {
			n = max(float64(sample.Value[count]), 0)
		}
		r.add(s, sample, float64(value), n, bars)
	}
	slices.SortFunc(r.bars, func(a, b flameBar) int { return a.start.Compare(b.start) })
	return nil
}

// noteList is the footer of a profile, as lines.
func noteList(p *pprof.Profile) (notes []string) {
	for i, note := range footer(p) {
		if i == maxComments {
			break
		}
		notes = append(notes, stored.Printable(note))
	}
	return notes
}

// windows makes a bar for each window of the profile, or one for all of it.
func (r *flameReader) windows(p *pprof.Profile) map[int64]int {
	at := make(map[int64]int)
	about := windowsOf(p)
	for _, n := range slices.Sorted(maps.Keys(about)) {
		at[n] = len(r.bars)
		r.bars = append(r.bars, flameBar{about[n].Start, about[n].Duration, make(map[int32]*[classes]float64)})
	}
	if len(at) == 0 && r.Duration > 0 && !r.Start.IsZero() {
		at[0] = 0
		r.bars = []flameBar{{r.Start, r.Duration, make(map[int32]*[classes]float64)}}
	}
	return at
}

// leafOf joins labels of a sample.
func leafOf(sample *pprof.Sample, keys []string) string {
	var words []string
	for _, key := range keys {
		if text := label(sample, key); text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

func (r *flameReader) add(s *stacks, sample *pprof.Sample, value, count float64, bars map[int64]int) {
	process := r.process(sample)
	at := r.child(r.child(0, process), r.frame(flameFrame{name: cmp.Or(stored.ThreadGroup(label(sample, stored.LabelThread)), stored.Unnamed), kind: kindThread}))
	var path []shownFrame // innermost first
	for _, loc := range sample.Location {
		path = append(path, r.at(s, loc)...)
	}
	if len(path) == 0 {
		path = append(path, shownFrame{frame: r.frame(flameFrame{name: stored.Unnamed}), tier: -1})
	}
	if len(r.leaf) > 0 {
		path = append([]shownFrame{{frame: r.frame(flameFrame{name: cmp.Or(leafOf(sample, r.leaf), stored.Unnamed), kind: kindClass}), tier: -1}}, path...)
	}
	kind := r.frames[path[0].frame].kind
	if more := len(path) - maxFlameDepth; more > 0 {
		path = append([]shownFrame{{frame: r.frame(flameFrame{name: deepFrames}), tier: -1}}, path[more:]...)
	}
	pid := processID(sample)
	for i := len(path) - 1; i >= 0; i-- {
		f := path[i]
		at = r.child(at, f.frame)
		n := &r.nodes[at]
		if f.line == n.line {
			n.votes += value
		} else if n.votes -= value; n.votes < 0 {
			n.line, n.votes = f.line, -n.votes
		}
		if f.tier >= 0 {
			tier := f.tier
			if tier > tierInlined { // a version
				tier = r.tierOf(pid, uint32(tier-tierInlined-1))
			}
			n.tiers[tier] += value
			if f.flags&inlined != 0 && f.flags&called == 0 {
				n.tiers[tierInlined] += value
			}
		}
	}
	n := &r.nodes[at]
	n.value[0] += value
	n.count[0] += count
	if certaintyOf(sample) != 0 {
		n.approx += value
	} else if label(sample, stored.LabelAttribution) == stored.Approximate {
		n.inner += value
	}
	window := number(sample, stored.LabelWindow)
	if len(bars) == 1 {
		window = slices.Collect(maps.Keys(bars))[0]
	}
	if i, ok := bars[window]; ok {
		sums := r.bars[i].of[process]
		if sums == nil {
			sums = new([classes]float64)
			r.bars[i].of[process] = sums
		}
		sums[classOf(kind, label(sample, stored.LabelRuntime), label(sample, stored.LabelThread))] += value
	}
}

// tierOf is the tier of a code version.
func (r *flameReader) tierOf(pid int64, id uint32) int {
	switch level := r.levels[versionKey{pid, id}]; {
	case level >= 4:
		return tierC2
	case level >= 1:
		return tierC1
	}
	return tierCompiled
}

// classOf says what a thread did whose innermost frame has that kind.
func classOf(kind frameKind, runtime, thread string) int {
	if of, ok := profile.VMThread(runtime, thread); ok {
		return int(of)
	}
	switch kind {
	case kindManaged, kindStub, kindClass:
		return int(profile.GuestCode)
	case kindVM, kindNative:
		return int(profile.NativeCode)
	case kindKernel:
		return int(profile.KernelCode)
	}
	return classUnknown
}

// process returns the frame of a sample's process.
func (r *flameReader) process(sample *pprof.Sample) int32 {
	pid, comm := processID(sample), label(sample, stored.LabelComm)
	p := FlameProcess{PID: pid, Comm: cmp.Or(comm, stored.Unnamed), Runtime: label(sample, stored.LabelRuntime)}
	p.Service = cmp.Or(label(sample, stored.LabelService), p.Comm)
	name := processName(sample)
	switch {
	case pid == 0 && comm == "":
		name = "[all]" // another profiler's
	case pid != 0: // java says little
		name = fmt.Sprintf("%s (pid %d)", strings.TrimSuffix(p.Service, ".service"), pid)
	}
	frame := r.frame(flameFrame{name: name, file: p.Service, kind: kindProcess})
	if known, ok := r.processes[frame]; !ok || known.Runtime == "" {
		r.processes[frame] = p
	}
	return frame
}

// at returns the frames of a location, which are made once.
func (r *flameReader) at(s *stacks, loc *pprof.Location) []shownFrame {
	shown, known := r.shown[loc]
	if known {
		return shown
	}
	for i, f := range s.at(loc) {
		file := ""
		if i < len(loc.Line) && loc.Line[i].Function != nil {
			file = stored.Printable(loc.Line[i].Function.Filename)
		}
		out := shownFrame{line: max(f.site.Line, 0), tier: -1, flags: f.flags}
		frame := flameFrame{name: f.Name, file: file, kind: frameKindOf(f.flags, loc.Mapping)}
		if file == "" && loc.Mapping != nil && frame.kind != kindManaged {
			frame.file = stored.Printable(filepath.Base(loc.Mapping.File))
		}
		switch {
		case f.flags&interpreted != 0:
			out.tier = tierInterpreted
		case f.flags&jit != 0:
			out.tier = tierCompiled
			if id, ok := stored.VersionOf(loc.Mapping); ok {
				out.tier = tierInlined + 1 + int(id)
			}
		}
		out.frame = r.frame(frame)
		shown = append(shown, out)
	}
	r.shown[loc] = shown
	return shown
}

func frameKindOf(flags frameFlags, m *pprof.Mapping) frameKind {
	switch {
	case flags&(jit|interpreted) != 0:
		return kindManaged
	case flags&stub != 0:
		return kindStub
	case flags&kernel != 0:
		return kindKernel
	case flags&native != 0 && filepath.Base(m.File) == "libjvm.so":
		return kindVM
	case flags&native != 0:
		return kindNative
	}
	return kindMarker
}

// addCalls adds the counted calls between methods.
func (r *flameReader) addCalls(p *pprof.Profile) error {
	if !HasCalls(p) || !holdsCalls(p) {
		return nil
	}
	s, err := newStacks(p, stored.TypeCalls)
	if err != nil {
		return err
	}
	engine := busiestEngine(p)
	s.keep = func(sample *pprof.Sample) bool { return label(sample, stored.LabelEngine) == engine }
	for sample, value := range s.all() {
		edge := s.edge(sample)
		of := flameCall{r.process(sample), r.frame(flameFrame{name: edge.Caller.Name, kind: kindManaged}), r.frame(flameFrame{name: edge.Callee.Name, kind: kindManaged})}
		r.calls[of] += float64(value)
	}
	r.cutCalls(maxFlameCalls)
	return nil
}

// cutCalls keeps the n pairs with most calls.
func (f *Flame) cutCalls(n int) {
	if len(f.calls) <= n {
		return
	}
	for _, of := range slices.SortedFunc(maps.Keys(f.calls), func(a, b flameCall) int {
		return cmp.Or(cmp.Compare(f.calls[b], f.calls[a]), cmp.Compare(a.caller, b.caller), cmp.Compare(a.callee, b.callee))
	})[n:] {
		delete(f.calls, of)
	}
}

// frame returns the place of a frame.
func (f *Flame) frame(frame flameFrame) int32 {
	at, known := f.index[frame]
	if !known {
		at = int32(len(f.frames))
		f.frames = append(f.frames, frame)
		f.index[frame] = at
	}
	return at
}

// child finds or makes a node. If there is no room, it is the parent.
func (f *Flame) child(parent, frame int32) int32 {
	key := flameChild{parent, frame}
	at, known := f.children[key]
	if known {
		return at
	}
	if len(f.nodes) >= maxFlameNodes {
		return parent
	}
	at = int32(len(f.nodes))
	f.nodes = append(f.nodes, flameNode{parent: parent, frame: frame})
	f.children[key] = at
	return at
}

// Services are the processes, the busiest first.
func (f *Flame) Services() []FlameProcess {
	totals := f.totals(0)
	var all []FlameProcess
	for at, n := range f.nodes {
		if n.parent == 0 {
			p, known := f.processes[n.frame]
			if !known {
				p = FlameProcess{Comm: f.frames[n.frame].name, Service: f.frames[n.frame].name}
			}
			p.Value = totals[at]
			all = append(all, p)
		}
	}
	slices.SortStableFunc(all, func(a, b FlameProcess) int { return cmp.Or(cmp.Compare(b.Value, a.Value), cmp.Compare(a.PID, b.PID)) })
	return all
}

// Total is the sum of all values.
func (f *Flame) Total() float64 { return f.totals(0)[0] }

// totals are the values of all nodes with their descendants, of one column.
func (f *Flame) totals(column int) []float64 {
	totals := make([]float64, len(f.nodes))
	for at := len(f.nodes) - 1; at >= 0; at-- { // children before parents
		totals[at] += f.nodes[at].value[column]
		if at > 0 {
			totals[f.nodes[at].parent] += totals[at]
		}
	}
	return totals
}

// Merge adds the values of another window of the same kind.
func (f *Flame) Merge(o *Flame) {
	if f.Start.IsZero() || !o.Start.IsZero() && o.Start.Before(f.Start) {
		f.Start = o.Start
	}
	f.Duration += o.Duration
	f.effect = max(f.effect, o.effect)
	for _, note := range o.Notes {
		if len(f.Notes) < maxComments && !slices.Contains(f.Notes, note) {
			f.Notes = append(f.Notes, note)
		}
	}
	f.take(o, 0, func(int32) bool { return true })
}

// Of returns what a Flame has of one service, and of one process of it if pid is not 0. An empty service is all.
func (f *Flame) Of(service string, pid int64) *Flame {
	out := newFlame(f.Kind, f.Title, f.Unit)
	out.Start, out.Duration, out.Notes, out.effect = f.Start, f.Duration, f.Notes, f.effect
	out.take(f, 0, func(process int32) bool {
		p := f.processes[process]
		return (service == "" || p.Service == service) && (pid == 0 || p.PID == pid)
	})
	return out
}

// Against returns a Flame with the values of base as its baseline. Both stay as they are.
func (f *Flame) Against(base *Flame) *Flame {
	out := newFlame(f.Kind, f.Title, f.Unit)
	out.Start, out.Duration, out.Notes, out.effect = f.Start, f.Duration, f.Notes, max(f.effect, base.effect)
	out.base = &flameBase{duration: base.Duration}
	all := func(int32) bool { return true }
	out.takeRenamed(f, 0, all)
	out.takeRenamed(base, 1, all)
	out.bars = nil
	return out
}

// take adds the values of the processes of another Flame to a column.
func (f *Flame) take(o *Flame, column int, keep func(process int32) bool) {
	f.takeAs(o, column, keep, func(p FlameProcess, frame flameFrame) (FlameProcess, flameFrame) { return p, frame })
}

// takeRenamed is take where processes have no numbers: those of two runs are to meet.
func (f *Flame) takeRenamed(o *Flame, column int, keep func(process int32) bool) {
	f.takeAs(o, column, keep, func(p FlameProcess, frame flameFrame) (FlameProcess, flameFrame) {
		p.PID = 0
		frame.name = cmp.Or(p.Comm, frame.name)
		frame.file = p.Service
		return p, frame
	})
}

func (f *Flame) takeAs(o *Flame, column int, keep func(process int32) bool, rename func(FlameProcess, flameFrame) (FlameProcess, flameFrame)) {
	frames := make([]int32, len(o.frames)) // in f, -1 until it is needed
	for i := range frames {
		frames[i] = -1
	}
	frame := func(of int32) int32 {
		if frames[of] < 0 {
			to := o.frames[of]
			p, process := o.processes[of]
			if process {
				p, to = rename(p, to)
			}
			frames[of] = f.frame(to)
			if known, ok := f.processes[frames[of]]; process && (!ok || known.Runtime == "") {
				f.processes[frames[of]] = p
			}
		}
		return frames[of]
	}
	place := make([]int32, len(o.nodes)) // -1 for those left out
	for at := 1; at < len(o.nodes); at++ {
		n := &o.nodes[at]
		place[at] = -1
		if place[n.parent] < 0 || n.parent == 0 && !keep(n.frame) {
			continue
		}
		place[at] = f.child(place[n.parent], frame(n.frame))
		f.nodes[place[at]].merge(n, column)
	}
	for of, n := range o.calls {
		if column == 0 && keep(of.process) {
			f.calls[flameCall{frame(of.process), frame(of.caller), frame(of.callee)}] += n
		}
	}
	f.cutCalls(maxFlameCalls)
	for _, bar := range o.bars {
		to := flameBar{bar.start, bar.duration, make(map[int32]*[classes]float64)}
		for process, sums := range bar.of {
			if keep(process) {
				to.of[frame(process)] = sums
			}
		}
		f.bars = append(f.bars, to)
	}
	f.bars = f.bars[max(0, len(f.bars)-stored.MaxWindows):]
}

// merge adds what another node has in its first column.
func (n *flameNode) merge(o *flameNode, column int) {
	n.value[column] += o.value[0]
	n.count[column] += o.count[0]
	if column > 0 && n.votes > 0 {
		return
	}
	n.approx += o.approx
	n.inner += o.inner
	switch {
	case n.line == o.line:
		n.votes += o.votes
	case o.votes > n.votes:
		n.line, n.votes = o.line, o.votes-n.votes
	default:
		n.votes -= o.votes
	}
	for i := range n.tiers {
		n.tiers[i] += o.tiers[i]
	}
}

// Cut returns a Flame of the heaviest nodes, about limit of them and at most twice as many with what follows. The others become
// a frame [rare] of their caller, at most one each, so that totals stay true. It shares what it can with f, and neither must change afterwards.
func (f *Flame) Cut(limit int) *Flame {
	if len(f.nodes)-1 <= limit {
		return f
	}
	weights := f.totals(0)
	if f.base != nil {
		base := f.totals(1)
		a, b := max(weights[0], 1), max(base[0], 1)
		for i := range weights {
			weights[i] = weights[i]/a + base[i]/b
		}
	}
	order := slices.Clone(weights[1:])
	slices.SortFunc(order, func(a, b float64) int { return cmp.Compare(b, a) })
	least := order[limit]
	ties := limit // of the weight least, as many as there is room for
	for _, w := range order {
		if w > least {
			ties--
		}
	}
	outer := 0 // processes and threads, which are kept if they are not most of it
	for _, n := range f.nodes[1:] {
		if k := f.frames[n.frame].kind; k == kindProcess || k == kindThread {
			outer++
		}
	}
	keep := func(at int) bool {
		if k := f.frames[f.nodes[at].frame].kind; weights[at] > least || outer <= limit/4 && (k == kindProcess || k == kindThread) {
			return true
		}
		if weights[at] < least || ties == 0 {
			return false
		}
		ties--
		return true
	}
	out := *f
	out.frames, out.index = slices.Clone(f.frames), make(map[flameFrame]int32, len(f.frames))
	for i, frame := range out.frames {
		out.index[frame] = int32(i)
	}
	out.nodes, out.children = []flameNode{f.nodes[0]}, make(map[flameChild]int32)
	rare := out.frame(flameFrame{name: RareFrames})
	place := make([]int32, len(f.nodes))
	cut := make([]bool, len(f.nodes))
	for at := 1; at < len(f.nodes); at++ {
		n := f.nodes[at]
		if cut[n.parent] {
			place[at], cut[at] = place[n.parent], true
		} else if n.frame == rare || !keep(at) {
			place[at], cut[at] = out.child(place[n.parent], rare), true
		} else {
			place[at] = out.child(place[n.parent], n.frame)
			n.parent = out.nodes[place[at]].parent
			out.nodes[place[at]] = n
			continue
		}
		to := &out.nodes[place[at]]
		for c := range n.value {
			to.value[c] += n.value[c]
			to.count[c] += n.count[c]
		}
		to.approx += n.approx
	}
	return &out
}

// String is for tests and logs.
func (f *Flame) String() string {
	return fmt.Sprintf("%s: %d nodes, %d calls, %d windows", f.Kind, len(f.nodes)-1, len(f.calls), len(f.bars))
}

// EmptyFlame returns one without values.
func EmptyFlame(kind, title string, start time.Time, length time.Duration) *Flame {
	f := newFlame(kind, title, stored.UnitCount)
	f.Start, f.Duration = start, length
	return f
}

// Frozen returns f without what only changes need, to be kept. It can be merged into others, and Of and Against work.
func (f *Flame) Frozen() *Flame {
	out := *f
	out.index, out.children = nil, nil
	out.nodes, out.frames = slices.Clone(f.nodes), slices.Clone(f.frames)
	return &out
}

// MergeOf is Merge of what o has of one service; an empty service is all.
func (f *Flame) MergeOf(o *Flame, service string) {
	if service != "" {
		o = o.Of(service, 0)
	}
	f.Merge(o)
}
