package hotspot

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/versions"
	"github.com/vmprof-agent/vmprof-agent/cct"
)

// engine is the one whose calls are those that code really makes: others count inlined calls, too,
// or have no code.
const engine = "hotspot"

// evidence is what a profile says of one process. Methods are named as the VM has them.
type evidence struct {
	comm    string
	pid     int64
	others  int
	seconds float64
	cpu     float64 // CPU seconds a second

	limits  profile.InlineLimits
	callees map[string]callee
	sites   []site // hottest first
	several map[lineOf]bool
	total   float64 // calls whose number is known
	within  map[edge]profile.Interval
	known   map[edge]bool // the number of calls is: counted or estimated
	virtual map[place]virtual
	logical bool // inlined calls were estimated, too

	// CPU time in seconds; by names for people, as frames of inlined methods have them.
	edgeTime map[timeEdge]float64 // CPU time in code of a method that was called from there
	// ownTime is the CPU time in code around the calls of a method, stubs between it and its
	// callees included.
	ownTime  map[string]float64
	compiled map[string]*compiled // methods that are compiled by C2, and in use
}

type (
	edge  = cct.Edge[string, profile.Site]
	graph = cct.Graph[string, profile.Site]
	site  = cct.CallSite[string, profile.Site]
)

// A lineOf is a line of a method, by its name for people.
type lineOf struct {
	caller string
	line   int32
}

type timeEdge struct{ caller, callee string }

// A place is a call in a method's bytecode.
type place struct {
	caller string
	offset int32
}

// A virtual is the most frequent target of a call with receivers of three classes or more, by the
// VM's own counts.
type virtual struct {
	target  string
	share   float64 // share of the calls
	classes int     // at least
}

// A callee is a method that calls enter.
type callee struct {
	bytecode int
	entering float64 // seconds of CPU time in its prologues and epilogues
}

// A compiled is the code of a method.
type compiled struct {
	size    int             // bytes of the largest version
	inlined []string        // methods in it, by names for people
	touched map[string]bool // those that samples are in, or in what they call
	samples int64
	// approximate says that inlined methods may have no samples of their own: the JVM has no debug
	// information between safepoints.
	approximate bool
}

// read collects the evidence about a process, 0 for the one with the most CPU time, or calls if
// there is no CPU time.
func read(p *pprof.Profile, pid int64) (*evidence, error) {
	weights, calls := map[int64]int64{}, map[int64]bool{}
	callsAt, cpuAt, samplesAt := typeIndex(p, stored.TypeCalls), typeIndex(p, stored.TypeCPU),
		typeIndex(p, stored.TypeSamples)
	if callsAt < 0 {
		return nil, ErrNoCalls
	}
	by := callsAt
	if cpuAt >= 0 {
		by = cpuAt
	}
	for _, s := range p.Sample {
		id := pidOf(s)
		weights[id] += max(s.Value[by], 0)
		if s.Value[callsAt] > 0 && engineOf(s) == engine {
			calls[id] = true
		}
	}
	switch {
	case len(calls) == 0:
		return nil, ErrNoCalls
	case pid != 0 && !calls[pid]:
		return nil, fmt.Errorf("the profile has no estimated calls of process %d", pid)
	case pid == 0:
		for id := range calls {
			if pid == 0 || weights[id] > weights[pid] || weights[id] == weights[pid] && id < pid {
				pid = id
			}
		}
	}
	of := pprof.Profile{SampleType: p.SampleType, Comments: p.Comments, TimeNanos: p.TimeNanos,
		DurationNanos: p.DurationNanos}
	for _, s := range p.Sample {
		if pidOf(s) == pid && (s.Value[callsAt] == 0 || engineOf(s) == engine) {
			of.Sample = append(of.Sample, s)
		}
	}
	e := &evidence{pid: pid, others: len(calls) - 1, seconds: time.Duration(p.DurationNanos).Seconds(),
		callees: map[string]callee{}, virtual: map[place]virtual{},
		edgeTime: map[timeEdge]float64{}, ownTime: map[string]float64{}, compiled: map[string]*compiled{}}
	if !(e.seconds > 0) {
		return nil, fmt.Errorf("the profile does not say how long it was recorded")
	}
	if names := of.Sample[0].Label[stored.LabelComm]; len(names) > 0 {
		e.comm = stored.Printable(names[0])
	}
	e.readMetadata(&of)
	if err := e.readCalls(&of); err != nil {
		return nil, err
	}
	if cpuAt >= 0 {
		e.readVersions(&of)
		e.readTime(&of, cpuAt, samplesAt)
	}
	return e, nil
}

func typeIndex(p *pprof.Profile, name string) int {
	return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == name })
}

func pidOf(s *pprof.Sample) int64 {
	if values := s.NumLabel[stored.LabelPID]; len(values) > 0 {
		return values[0]
	}
	return 0
}

func engineOf(s *pprof.Sample) string {
	if values := s.Label[stored.LabelEngine]; len(values) > 0 {
		return values[0]
	}
	return ""
}

// readMetadata reads the limits of the VM's inliner and the sizes of methods, as far as the file
// has them.
func (e *evidence) readMetadata(p *pprof.Profile) {
	if m, err := stored.MetadataOf(p); err == nil {
		for _, in := range m.Inlining {
			if in.PID != e.pid {
				continue
			}
			e.limits = in.Limits
			for i := range in.Sites {
				s := &in.Sites[i]
				if len(s.Targets) > 0 && s.Calls > 0 {
					top := s.Targets[0]
					e.virtual[place{m.MethodName(s.Caller), s.Offset}] = virtual{m.MethodName(top.Method),
						float64(top.Calls) / float64(s.Calls), max(len(s.Targets), leastTargets)}
				}
			}
			for _, c := range in.Callees {
				e.callees[m.MethodName(c.Method)] = callee{c.Bytecode, c.Entering.Seconds()}
			}
		}
	}
	for _, limit := range []struct {
		value    *int
		standard int
	}{
		{&e.limits.FreqInlineSize, defaultFreqInlineSize},
		{&e.limits.InlineSmallCode, defaultInlineSmallCode},
		{&e.limits.TypeProfileMajorReceiverPercent, defaultMajorReceiver},
	} {
		if *limit.value == 0 {
			*limit.value = limit.standard
		}
	}
}

// readCalls reads the calls that code makes.
func (e *evidence) readCalls(p *pprof.Profile) error {
	all, err := stacks.CallsOf(p)
	if err != nil {
		return ErrNoCalls
	}
	g := new(graph)
	e.within, e.known, e.several = map[edge]profile.Interval{}, map[edge]bool{}, map[lineOf]bool{}
	offsets := map[lineOf]int32{}
	for _, c := range all {
		switch c.Basis {
		case profile.Inferred.String():
			e.logical = true
			continue
		case profile.Estimated.String(), profile.Counted.String(), profile.Unmeasured.String():
		default:
			continue
		}
		for from, calls := range c.Graph.Edges() {
			to := edge{Caller: from.Caller.SystemName, Site: from.Site, Callee: from.Callee.SystemName}
			within, ok := c.Intervals[from]
			if !ok {
				within = profile.Interval{Low: calls, High: calls}
			}
			if c.Basis == profile.Unmeasured.String() {
				calls = math.Sqrt(within.Low * within.High) // the stored number is the lower end
			} else {
				e.known[to] = true
				e.total += calls
			}
			line := lineOf{display(to.Caller), to.Site.Line}
			if offset, ok := offsets[line]; ok && offset != to.Site.Offset {
				e.several[line] = true
			}
			offsets[line] = to.Site.Offset
			g.Add(to, calls)
			e.within[to] = e.within[to].Add(within)
		}
	}
	e.sites = g.CallSites(func(a, b edge) int {
		return cmp.Or(strings.Compare(a.Caller, b.Caller), cmp.Compare(a.Site.Line, b.Site.Line),
			cmp.Compare(a.Site.Offset, b.Site.Offset),
			strings.Compare(a.Callee, b.Callee))
	})
	return nil
}

// readVersions reads which code of C2 is in use, and what was inlined there.
func (e *evidence) readVersions(p *pprof.Profile) {
	versions, err := versions.Read(p)
	if err != nil {
		return
	}
	for _, m := range versions.Methods {
		for _, v := range m.Versions {
			if !v.Known || v.PID != e.pid || !v.Optimized() || v.Ended() {
				continue
			}
			c := e.compiled[m.SystemName]
			if c == nil {
				c = &compiled{touched: map[string]bool{}}
				e.compiled[m.SystemName] = c
			}
			c.size = max(c.size, int(v.Size))
			c.inlined = add(c.inlined, v.Inlined...)
		}
	}
}

// readTime adds up where CPU time goes around calls.
func (e *evidence) readTime(p *pprof.Profile, cpuAt, samplesAt int) {
	var total float64
	for _, s := range p.Sample {
		seconds := time.Duration(s.Value[cpuAt]).Seconds()
		if seconds <= 0 || len(s.Location) == 0 {
			continue
		}
		total += seconds
		e.touch(s)
		leaf, system := names(s.Location[0])
		if !isCode(s.Location[0]) {
			// A stub, such as that of an interface call, belongs to the call that it is a part of.
			if len(s.Location) > 1 {
				caller, _ := names(s.Location[1])
				for _, name := range add(nil, caller...) {
					e.ownTime[name] += seconds
				}
			}
			continue
		}
		for _, name := range add(nil, leaf...) {
			e.ownTime[name] += seconds
		}
		if len(s.Location) > 1 {
			if caller, _ := names(s.Location[1]); len(caller) > 0 {
				e.edgeTime[timeEdge{caller[0], leaf[len(leaf)-1]}] += seconds
			}
		}
		c := e.compiled[system]
		if c == nil {
			continue
		}
		if samplesAt >= 0 {
			c.samples += s.Value[samplesAt]
		}
		c.approximate = c.approximate || len(s.Label[stored.LabelAttribution]) > 0
	}
	e.cpu = total / e.seconds
}

// touch notes which inlined methods a stack is in. One that only calls others has few samples of
// its own, and is not cold.
func (e *evidence) touch(s *pprof.Sample) {
	for _, l := range s.Location {
		list, system := names(l)
		if c := e.compiled[system]; c != nil && isCode(l) {
			for _, name := range list {
				c.touched[name] = true
			}
		}
	}
}

// isCode reports whether a location is in a method's code, compiled or not.
func isCode(l *pprof.Location) bool {
	return l.Mapping != nil && (strings.HasPrefix(l.Mapping.File, stored.MappingJIT) ||
		strings.HasPrefix(l.Mapping.File, stored.MappingInterpreter))
}

// names are the methods of a location for people, innermost first and at least one, and the last
// one as the VM has it.
func names(l *pprof.Location) (list []string, system string) {
	for _, line := range l.Line {
		if line.Function == nil {
			continue
		}
		_, name, _ := stored.SplitInlined(stored.Printable(line.Function.Name))
		list, system = append(list, name), stored.Printable(line.Function.SystemName)
	}
	if len(list) == 0 {
		list = []string{stored.Unnamed}
	}
	return list, system
}

// into returns the methods whose code, compiled by C2 and in use, contains calls of a method: its
// own, and others that it was inlined into.
func (e *evidence) into(caller string) (list []string) {
	for root, c := range e.compiled {
		if stable(root) && (root == caller || slices.Contains(c.inlined, display(caller))) {
			list = append(list, root)
		}
	}
	slices.Sort(list)
	return list
}

// refused is why C2 does not inline a callee, however hot the call is; "" if no limit is known to
// be the reason.
func (e *evidence) refused(name string) string {
	size := e.callees[name].bytecode
	switch c := e.compiled[name]; {
	case size == 0 || size > mostInlined:
		return ""
	case size > e.limits.FreqInlineSize:
		return fmt.Sprintf("it has %d bytes of bytecode, more than FreqInlineSize, %d", size, e.limits.FreqInlineSize)
	case c != nil && c.size > e.limits.InlineSmallCode:
		return fmt.Sprintf("its code has %d bytes, more than InlineSmallCode, %d", c.size, e.limits.InlineSmallCode)
	}
	return ""
}

// inlinedAlready reports whether estimated calls may be those of inlined code: counts do not say
// which.
func (e *evidence) inlinedAlready(caller, callee string) bool {
	if !e.logical {
		return false
	}
	for _, root := range e.into(caller) {
		if !slices.Contains(e.compiled[root].inlined, display(callee)) {
			return false
		}
	}
	return true
}

// sized returns a callee by its name for people, and the size of its bytecode: the largest of
// several that are overloaded.
func (e *evidence) sized(name string) (system string, size int) {
	for s, c := range e.callees {
		if display(s) == name && (c.bytecode > size || c.bytecode == size && s < system) {
			system, size = s, c.bytecode
		}
	}
	return system, size
}

// calls describes the calls of a site to a target.
func (e *evidence) calls(s *site, t cct.Target[string]) Calls {
	within := e.within[edge{Caller: s.Caller, Site: s.Site, Callee: t.Callee}]
	c := Calls{
		Caller: display(s.Caller), Site: s.Site, Callee: t.Callee,
		Rate: t.Weight / e.seconds, Low: within.Low / e.seconds, High: within.High / e.seconds,
		Target: s.Share(t), Targets: len(s.Targets),
		Several:    e.several[lineOf{display(s.Caller), s.Site.Line}],
		Unmeasured: !e.known[edge{Caller: s.Caller, Site: s.Site, Callee: t.Callee}],
	}
	if !c.Unmeasured {
		c.Of = t.Weight / e.total
	}
	c.spent, c.high = e.edgeTime[timeEdge{c.Caller, display(t.Callee)}], c.High
	if c.spent > 0 && c.High <= wide*c.Low {
		c.Time = c.spent / t.Weight
	}
	return c
}

// whole adds up the calls of a site to all targets: a test of the receiver's class changes what all
// of them cost.
func (e *evidence) whole(s *site) (spent, high float64) {
	for _, t := range s.Targets {
		c := e.calls(s, t)
		spent, high = spent+c.spent, high+c.high
	}
	return spent, high
}
