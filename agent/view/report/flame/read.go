package flame

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// Read returns one Graph for each kind of values in a stored profile, the one to show first first;
// none of a kind that has no values. It fails if the values cannot be added up.
func Read(p *pprof.Profile) ([]*Graph, error) {
	var all []*Graph
	switch kind, ofEvents := stacks.EventKindOf(p); {
	case ofEvents:
		f := newFlame(kind.String(), kind.Describe().Title, stored.MainValue(kind).Unit)
		r := flameReader{Graph: f, leaf: kind.Describe().Leaf}
		f.effect = events.EffectOf(p, kind)
		if err := r.read(p, stored.MainValue(kind).Type, stored.TypeEvents); err != nil {
			return nil, err
		}
		f.readLanes(p)
		if err := f.readSlow(p); err != nil {
			return nil, err
		}
		all = append(all, f)
	case stacks.HasTime(p):
		valueType := stored.TypeSamples
		f := newFlame(KindCPU, "CPU time", stored.UnitCount)
		if stacks.TypeIndex(p, stored.TypeCPU) >= 0 {
			valueType, f.Unit = stored.TypeCPU, stored.UnitTime
		}
		r := flameReader{Graph: f}
		if err := r.read(p, valueType, stored.TypeSamples); err != nil {
			return nil, err
		}
		if err := r.addCalls(p); err != nil {
			return nil, err
		}
		all = append(all, f)
	case !stacks.HasCalls(p):
		main, err := stacks.MainType(p)
		if err != nil {
			return nil, err
		}
		unit := stored.UnitCount
		if at := stacks.TypeIndex(p, main); at >= 0 {
			unit = stored.Printable(p.SampleType[at].Unit)
		}
		f := newFlame(stored.Printable(main), stored.Printable(main), unit)
		if at := stacks.TypeIndex(p, main); at >= 0 {
			if cost, ok := stored.CostOf(p.SampleType[at]); ok {
				f.Title = "Cost (" + cost.Name + ")"
			}
		}
		r := flameReader{Graph: f}
		if err := r.read(p, main, ""); err != nil {
			return nil, err
		}
		all = append(all, f)
	}
	if stacks.HasCalls(p) && stacks.HoldsCalls(p) {
		f := newFlame(KindCalls, "Calls", stored.UnitCount)
		r := flameReader{Graph: f, engine: busiestEngine(p)}
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
	index, sums := stacks.TypeIndex(p, stored.TypeCalls), make(map[string]float64)
	for _, sample := range p.Sample {
		sums[stacks.Label(sample, stored.LabelEngine)] += float64(sample.Value[index])
	}
	var best string
	for _, engine := range slices.Sorted(maps.Keys(sums)) {
		if sums[engine] > sums[best] {
			best = engine
		}
	}
	return best
}

// A flameReader fills a Graph from a stored profile.
type flameReader struct {
	*Graph
	leaf   []string
	engine string             // engine of calls
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
	flags stacks.Flags
}

// read adds the samples of a profile by one value. The counts are another one, "" for none.
func (r *flameReader) read(p *pprof.Profile, valueType, countType string) error {
	s, err := stacks.NewSamples(p, valueType)
	if err != nil {
		return err
	}
	if waited := s.LeaveWaits(); waited > 0 {
		r.Notes = append(r.Notes, "omitted: waits for work, "+s.Amount(float64(waited)))
	}
	if r.engine != "" {
		s.Keep = func(sample *pprof.Sample) bool { return stacks.Label(sample, stored.LabelEngine) == r.engine }
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
	count := stacks.TypeIndex(p, countType)
	bars := r.windows(p)
	for sample, value := range s.All() {
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
	for i, note := range report.Sentences(p) {
		if i == stored.MaxComments {
			break
		}
		notes = append(notes, stored.Printable(note))
	}
	return notes
}

// windows makes a bar for each window of the profile, or one for all of it.
func (r *flameReader) windows(p *pprof.Profile) map[int64]int {
	at := make(map[int64]int)
	about := stacks.Windows(p)
	for _, n := range slices.Sorted(maps.Keys(about)) {
		at[n] = len(r.bars)
		r.bars = append(r.bars, flameBar{start: about[n].Start, duration: about[n].Duration,
			of: make(map[int32]*[classes]float64)})
	}
	if len(at) == 0 && r.Duration > 0 && !r.Start.IsZero() {
		at[0] = 0
		r.bars = []flameBar{{start: r.Start, duration: r.Duration, of: make(map[int32]*[classes]float64)}}
	}
	return at
}

// leafOf joins labels of a sample.
func leafOf(sample *pprof.Sample, keys []string) string {
	var words []string
	for _, key := range keys {
		if text := stacks.Label(sample, key); text != "" {
			words = append(words, text)
		}
	}
	return strings.Join(words, " ")
}

func (r *flameReader) add(s *stacks.Samples, sample *pprof.Sample, value, count float64, bars map[int64]int) {
	process := r.process(sample)
	at := r.child(r.child(0, process), r.frame(flameFrame{name: cmp.Or(stored.ThreadGroup(stacks.Label(sample,
		stored.LabelThread)), stored.Unnamed), kind: kindThread}))
	var path []shownFrame // innermost first
	for _, loc := range sample.Location {
		path = append(path, r.at(s, loc)...)
	}
	if len(path) == 0 {
		path = append(path, shownFrame{frame: r.frame(flameFrame{name: stored.Unnamed}), tier: -1})
	}
	own := 0 // where in the path the frames of a waker end
	if at := s.WokenAt(sample); at >= 0 {
		for _, loc := range sample.Location[:at+1] {
			own += len(r.at(s, loc))
		}
	}
	if len(r.leaf) > 0 {
		path = slices.Insert(path, min(own, len(path)), shownFrame{frame: r.frame(flameFrame{name: cmp.Or(leafOf(sample,
			r.leaf), stored.Unnamed), kind: kindClass}), tier: -1})
	}
	kind := r.frames[path[min(own, len(path)-1)].frame].kind
	if more := len(path) - maxFlameDepth; more > 0 {
		path = append([]shownFrame{{frame: r.frame(flameFrame{name: deepFrames}), tier: -1}}, path[more:]...)
	}
	pid := stacks.ProcessID(sample)
	for i := len(path) - 1; i >= 0; i-- {
		f := path[i]
		at = r.child(at, f.frame)
		n := &r.nodes[at]
		n.vote(f.line, value)
		if f.tier >= 0 {
			tier := f.tier
			if tier > tierInlined { // a version
				tier = r.tierOf(pid, uint32(tier-tierInlined-1))
			}
			n.tiers[tier] += value
			if f.flags&stacks.Inlined != 0 && f.flags&stacks.Called == 0 {
				n.tiers[tierInlined] += value
			}
		}
	}
	n := &r.nodes[at]
	n.value[0] += value
	n.count[0] += count
	if stacks.CertaintyOf(sample) != 0 {
		n.approx += value
	} else if stacks.Label(sample, stored.LabelAttribution) == stored.Approximate {
		n.inner += value
	}
	window := stacks.Number(sample, stored.LabelWindow)
	if len(bars) == 1 {
		window = slices.Collect(maps.Keys(bars))[0]
	}
	if i, ok := bars[window]; ok {
		if len(bars) > 1 {
			if r.bars[i].cells == nil {
				r.bars[i].cells = make(map[cct.NodeID]flameCell)
			}
			r.bars[i].cells[at] = r.bars[i].cells[at].plus(flameCell{value, count})
		}
		sums := r.bars[i].of[process]
		if sums == nil {
			sums = new([classes]float64)
			r.bars[i].of[process] = sums
		}
		sums[classOf(kind, sample)] += value
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

// classOf says what a sample's thread did. Its innermost frame has that kind.
func classOf(kind frameKind, sample *pprof.Sample) int {
	if of, ok := stacks.VMWork(sample); ok {
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
	pid, comm := stacks.ProcessID(sample), stacks.Label(sample, stored.LabelComm)
	p := Process{PID: pid, Comm: cmp.Or(comm, stored.Unnamed), Runtime: stacks.Label(sample, stored.LabelRuntime)}
	p.Service = cmp.Or(stacks.Label(sample, stored.LabelService), p.Comm)
	name := stacks.ProcessName(sample)
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
func (r *flameReader) at(s *stacks.Samples, loc *pprof.Location) []shownFrame {
	shown, known := r.shown[loc]
	if known {
		return shown
	}
	for i, f := range s.At(loc) {
		file := ""
		if i < len(loc.Line) && loc.Line[i].Function != nil {
			file = stored.Printable(loc.Line[i].Function.Filename)
		}
		out := shownFrame{line: max(f.Site.Line, 0), tier: -1, flags: f.Flags}
		frame := flameFrame{name: f.Name, file: file, kind: frameKindOf(f.Flags, loc.Mapping)}
		if file == "" && loc.Mapping != nil && frame.kind != kindManaged {
			frame.file = stored.Printable(filepath.Base(loc.Mapping.File))
		}
		switch {
		case f.Flags&stacks.Interpreted != 0:
			out.tier = tierInterpreted
		case f.Flags&stacks.JIT != 0:
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

func frameKindOf(flags stacks.Flags, m *pprof.Mapping) frameKind {
	switch {
	case flags&(stacks.JIT|stacks.Interpreted) != 0:
		return kindManaged
	case flags&stacks.Stub != 0:
		return kindStub
	case flags&stacks.Kernel != 0:
		return kindKernel
	case flags&stacks.Native != 0 && filepath.Base(m.File) == "libjvm.so":
		return kindVM
	case flags&stacks.Native != 0:
		return kindNative
	}
	return kindMarker
}

// addCalls adds the counted calls between methods.
func (r *flameReader) addCalls(p *pprof.Profile) error {
	if !stacks.HasCalls(p) || !stacks.HoldsCalls(p) {
		return nil
	}
	s, err := stacks.NewSamples(p, stored.TypeCalls)
	if err != nil {
		return err
	}
	engine := busiestEngine(p)
	s.Keep = func(sample *pprof.Sample) bool { return stacks.Label(sample, stored.LabelEngine) == engine }
	for sample, value := range s.All() {
		edge := s.Edge(sample)
		of := flameCall{r.process(sample), r.frame(flameFrame{name: edge.Caller.Name, kind: kindManaged}),
			r.frame(flameFrame{name: edge.Callee.Name, kind: kindManaged}), edge.Site}
		r.calls[of] += float64(value)
	}
	r.cutCalls(maxFlameCalls)
	return nil
}
