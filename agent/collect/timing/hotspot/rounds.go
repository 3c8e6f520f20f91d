package hotspot

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of what is timed of loops.
const (
	maxLoops      = 16   // loops of one compilation; inner ones behind outer ones
	maxPlaces     = 8    // alternatives of a loop
	maxShapes     = 64   // methods of one compilation whose loops are looked for
	maxBlocks     = 4096 // blocks of these methods together: loops that are nested have a list of their blocks each
	maxLoopNames  = 1 << 10
	maxPlans      = 5  // attempts to find the loops of a compilation
	maxMoves      = 64 // different values by which a counter grew in a round
	knownRounds   = 16 // number of rounds that tell how many iterations a round has
	leastPortion  = 0.5
	shortEvery    = 16 // windows of a compilation in which loops have a turn that are too short to be timed, or silent
	silentWindows = 1  // windows without a hit after which a place is tried seldom
	idleEvery     = 32 // turns of a compilation whose places are all silent
	countedCalls  = 20 // calls that are counted before iterations per call are stated
)

// A loopCode is a loop in one compilation.
type loopCode struct {
	number  uint32  // as timings have it
	perCall float64 // iterations in an invocation while the VM counted; 0: not known
	places  []*loopPlace
	why     string // why it cannot be timed
	slower  bool   // places were left out, as breakpoints there would make code slower
}

// A loopPlace is where a loop is watched: each iteration, or each so many of them, passes one of
// the addresses.
type loopPlace struct {
	inside  []uint64 // one, or all copies of it
	outside []uint64 // addresses in the same frame, but not in the loop: the entry of the method first, if entered
	entered bool
	counter *bpf.TimingOperand // nil: a round has one iteration
	step    int                // step of the counter
	next    uint64             // address of the instruction behind the first of inside; 0 if not known
	what    string             // the addresses are, for people

	callers callers
	windows int               // windows since the last survey
	silent  int               // surveys without arrivals, in a row
	rounds  float64           // rounds in a window, lately
	moves   map[int64]float64 // rounds by how much the counter grew
	hits    float64           // hits of inside while calls were counted
	calls   float64
	longest time.Duration // round
	wait    time.Duration // time limit for ends of rounds
	short   bool          // rounds are shorter than timing them
}

// planLoops finds where the loops of a compilation can be timed.
func (g *guest) planLoops(c *vmruntime.Compilation) ([]*loopCode, error) {
	reader, ok := g.process.vm.(vmruntime.SafepointReader)
	if !ok {
		return nil, fmt.Errorf("safepoints of %s: %w", g.process.method, vmruntime.ErrUnknown)
	}
	points, err := reader.Safepoints(*c)
	if err != nil {
		return nil, err
	}
	p := planner{guest: g, code: c, version: g.version(c), groups: map[loopKey]*loopGroup{},
		shapes: map[uint64]*shapes{}}
	own, err := p.shapesOf(c.Method)
	if err != nil {
		return nil, err
	}
	for i := range own.loops { // also those that have no safepoint
		p.group(c.Method, "", i)
	}
	for i := range points {
		p.sort(&points[i])
	}
	var list []*loopCode
	for _, group := range p.order {
		if len(list) < maxLoops {
			list = append(list, p.loop(group))
		}
	}
	return list, nil
}

// A planner sorts safepoints of a compilation by loops.
type planner struct {
	guest   *guest
	code    *vmruntime.Compilation
	groups  map[loopKey]*loopGroup
	order   []*loopGroup // as loops come in the code
	version *version
	shapes  map[uint64]*shapes
	blocks  int // blocks of all shapes
}

// A loopKey is a copy of a loop: where its method was inlined, and which one of it.
type loopKey struct {
	method uint64
	path   string
	loop   int
}

// A loopGroup is what a compilation has of a loop.
type loopGroup struct {
	loopKey
	shapes *shapes
	polls  []*vmruntime.Safepoint         // polls at the ends of iterations
	calls  map[int][]*vmruntime.Safepoint // calls of each iteration, by bytecode index
}

// shapesOf reads the loops of a method once.
func (p *planner) shapesOf(method uint64) (*shapes, error) {
	if s, ok := p.shapes[method]; ok {
		return s, nil
	}
	if len(p.shapes) >= maxShapes {
		return nil, fmt.Errorf("loops of more than %d methods: %w", maxShapes, vmruntime.ErrUnknown)
	}
	reader, ok := p.guest.process.vm.(vmruntime.FlowReader)
	if !ok {
		return nil, fmt.Errorf("control flow: %w", vmruntime.ErrUnknown)
	}
	flow, err := reader.Flow(method)
	if err != nil {
		return nil, err
	}
	if p.blocks += len(flow.Blocks); p.blocks > maxBlocks {
		return nil, fmt.Errorf("loops of methods with more than %d basic blocks: %w", maxBlocks, vmruntime.ErrUnknown)
	}
	s := shapesOf(flow)
	p.shapes[method] = s
	return s, nil
}

func (p *planner) group(method uint64, path string, loop int) *loopGroup {
	key := loopKey{method, path, loop}
	g := p.groups[key]
	if g == nil {
		g = &loopGroup{loopKey: key, shapes: p.shapes[method], calls: map[int][]*vmruntime.Safepoint{}}
		p.groups[key] = g
		p.order = append(p.order, g)
	}
	return g
}

// sort adds a safepoint to its loop, if it is in one.
func (p *planner) sort(s *vmruntime.Safepoint) {
	at := s.Scopes[0]
	shapes, err := p.shapesOf(at.Method)
	if err != nil {
		return // what was inlined there went away
	}
	block := shapes.block(at.BCI)
	if block < 0 {
		return
	}
	path := fmt.Sprint(s.Scopes[1:])
	if len(s.Scopes) == 1 {
		path = ""
	}
	if s.Kind == vmruntime.PollSafepoint {
		if loop := shapes.closes(block); loop >= 0 {
			g := p.group(at.Method, path, loop)
			g.polls = append(g.polls, s)
		}
		return
	}
	if shapes.every(block) {
		g := p.group(at.Method, path, shapes.in[block])
		g.calls[at.BCI] = append(g.calls[at.BCI], s)
	}
}

// loop says where to watch a loop, or why that is no use.
func (p *planner) loop(of *loopGroup) *loopCode {
	shape := &of.shapes.loops[of.loopKey.loop]
	l := &loopCode{number: p.guest.engine.loopNumber(p.guest.process, of.method, shape.head),
		perCall: of.shapes.perCall(of.loopKey.loop)}
	counters := of.shapes.counters(of.loopKey.loop)
	for _, s := range of.polls {
		if counter, step := counterAt(counters, s); counter != nil {
			p.add(l, of, &loopPlace{inside: []uint64{s.PC}, counter: counter, step: step, what: "poll"})
		}
	}
	// C1 copies no loop, and has a poll at each jump back.
	if n := len(of.polls); p.code.Tier == vmruntime.TierC1 && n > 0 && n < watch.MaxAddresses && len(l.places) == 0 {
		p.add(l, of, &loopPlace{inside: addresses(of.polls), what: "poll"})
	}
	for _, bci := range slices.Sorted(maps.Keys(of.calls)) {
		copies, counted := of.calls[bci], false
		for _, s := range copies {
			if counter, step := counterAt(counters, s); counter != nil {
				counted = true
				p.add(l, of, &loopPlace{inside: []uint64{s.PC}, counter: counter, step: step, what: "call"})
			}
		}
		if !counted && len(copies) < watch.MaxAddresses && p.always(of.method, bci) {
			p.add(l, of, &loopPlace{inside: addresses(copies), what: "call"})
		}
	}
	switch {
	case len(l.places) > 0:
	case l.slower:
		l.why = p.guest.engine.timer.slowed()
	case len(of.polls)+len(of.calls) > 0:
		l.why = "no counter shows how many iterations a poll or a call in its code stands for; time invocations, " +
			"without --loops"
	default:
		l.why = "its code has no poll, and no call in each iteration; time invocations, without --loops"
		if p.code.Tier == vmruntime.TierC2 && len(counters) > 0 {
			l.why += ", or start the JVM with -XX:+UseCountedLoopSafepoints -XX:LoopStripMiningIter=1000"
		}
	}
	return l
}

// always reports whether a call that the code makes is made whenever the bytecode calls. C2 may
// inline methods of some receivers, and call for the others only.
func (p *planner) always(method uint64, bci int) bool {
	if p.code.Tier == vmruntime.TierC1 {
		return true
	}
	profiles, err := p.guest.process.vm.Profiles([]uint64{method})
	if err != nil || profiles[method] == nil {
		return false
	}
	call := profiles[method].Call(bci)
	return call != nil && (call.Kind == vmruntime.StaticCall || call.Kind == vmruntime.SpecialCall)
}

func addresses(list []*vmruntime.Safepoint) (all []uint64) {
	for _, s := range list {
		all = append(all, s.PC)
	}
	return all
}

// add adds a place, with the addresses that say that the loop was left: the method's entry, and the
// end of an iteration of the loop around.
func (p *planner) add(l *loopCode, of *loopGroup, place *loopPlace) {
	if len(l.places) >= maxPlaces {
		return
	}
	if p.code.EntryBCI < 0 && p.code.VerifiedEntry != 0 {
		place.entered = true
		place.outside = append(place.outside, p.code.VerifiedEntry)
	}
	around := p.groups[loopKey{of.method, of.path, of.shapes.loops[of.loopKey.loop].Parent}]
	if around != nil && len(around.polls) > 0 {
		place.outside = append(place.outside, around.polls[0].PC)
	}
	place.outside = place.outside[:min(len(place.outside), watch.MaxAddresses-len(place.inside))]
	place.wait, place.moves = firstWait, map[int64]float64{}
	code := make([]byte, longestInstruction)
	if err := p.guest.process.memory.Read(place.inside[0], code); err == nil {
		place.next, _ = secondInstruction(place.inside[0], code)
	}
	if v := p.version; besideAny(v.tight, place.inside, place.outside) {
		if p.code.Tier == vmruntime.TierC1 {
			l.slower = true
			return
		}
		v.suspect = true
	}
	l.places = append(l.places, place)
}

// registers are the registers of amd64 by number.
var registers = [...]elffile.Reg{
	elffile.RAX, elffile.RCX, elffile.RDX, elffile.RBX, elffile.RSP, elffile.RBP, elffile.RSI, elffile.RDI,
	elffile.R8, elffile.R9, elffile.R10, elffile.R11, elffile.R12, elffile.R13, elffile.R14, elffile.R15,
}

// counterAt is where one of the counters of a loop is at a safepoint; nil if none is anywhere.
func counterAt(counters []loopCounter, s *vmruntime.Safepoint) (*bpf.TimingOperand, int) {
	if runtime.GOARCH != "amd64" {
		return nil, 0
	}
	for _, c := range counters {
		if c.local >= len(s.Locals) {
			continue
		}
		o := elffile.Operand{Size: -4}
		switch at := s.Locals[c.local]; {
		case at.Kind == vmruntime.LocalRegister && int(at.Register) < len(registers):
			o.Kind, o.Reg = elffile.OperandReg, registers[at.Register]
		case at.Kind == vmruntime.LocalStack:
			o.Kind, o.Reg, o.Disp = elffile.OperandMem, elffile.RSP, int64(at.Offset)
		default:
			continue
		}
		if k, err := attach.Operand(o); err == nil {
			kernel := bpf.TimingOperand(k)
			return &kernel, c.step
		}
	}
	return nil, 0
}

// best is the place that had most rounds in a window; one that was not tried comes first.
func (l *loopCode) best() *loopPlace {
	return slices.MaxFunc(l.places, func(a, b *loopPlace) int {
		return cmp.Compare(a.worth(), b.worth())
	})
}

// idle reports whether no thread passed any place lately.
func (l *loopCode) idle() bool { return l.best().silent >= silentWindows }

func (p *loopPlace) worth() float64 {
	switch {
	case p.silent >= silentWindows:
		return -float64(p.silent)
	case p.rounds == 0:
		return bpf.MaxTimed
	}
	return p.rounds
}

// window is the next window of a place; pairs says whether to measure the cost of a timing.
func (p *loopPlace) window(pairs bool) window {
	w := window{mode: bpf.TimeRounds, limit: timedPerWindow, admit: admitTime, wait: max(leastWait, p.wait),
		threads: p.callers.someThreads(maxThreads)}
	switch {
	case len(w.threads) == 0 || p.windows >= surveyEvery:
		p.windows = 0
		return window{mode: bpf.TimeCallers, addresses: p.inside, limit: timedPerWindow, admit: admitTime}
	case pairs && p.next != 0:
		w.mode, w.addresses, w.wait = bpf.TimePairs, []uint64{p.inside[0], p.next}, 0
	default:
		w.addresses, w.places, w.counter = slices.Concat(p.inside, p.outside), len(p.inside), p.counter
	}
	p.windows++
	return w
}

// take takes over a window of rounds: those that have the usual number of iterations, and how many
// that is. The others went across the end of the loop, or had what is left at its end.
func (p *loopPlace) take(r *result) (list []*bpf.Timed, runs uint32) {
	list = make([]*bpf.Timed, 0, len(r.Timed))
	for i := range r.Timed {
		list = append(list, &r.Timed[i])
	}
	p.count(r)
	if p.counter == nil {
		return list, 1
	}
	for _, t := range list {
		if moved := int64(t.Ra) / int64(p.step); moved > 0 && int64(t.Ra)%int64(p.step) == 0 && moved <= math.MaxInt32 {
			if _, known := p.moves[moved]; known || len(p.moves) < maxMoves {
				p.moves[moved]++
			}
		}
	}
	usual := p.usual()
	if usual == 0 {
		return nil, 0
	}
	list = slices.DeleteFunc(list, func(t *bpf.Timed) bool { return int64(t.Ra) != usual*int64(p.step) })
	return list, uint32(usual)
}

// count learns from a window how often the place is passed.
func (p *loopPlace) count(r *result) {
	const weight = 1. / 4
	p.rounds += (float64(len(r.Timed)) - p.rounds) * weight
	for i := range r.Timed {
		p.longest = max(p.longest, time.Duration(r.Timed[i].Ns))
	}
	if p.entered {
		for i, n := range r.Hits {
			switch {
			case i < len(p.inside):
				p.hits += float64(n)
			case i == len(p.inside):
				p.calls += float64(n)
			}
		}
	}
	switch {
	case r.Open > 0:
		p.wait = min(max(2*p.wait, leastWait), longestWait)
	case len(r.Timed) > 0:
		p.wait = min(max(waitTimes*p.longest, leastWait), longestWait)
	}
	if r.Started == 0 {
		p.windows = surveyEvery // other threads
	}
}

// usual is the number of iterations that most rounds have; 0 if that is not known.
func (p *loopPlace) usual() (runs int64) {
	if p.counter == nil {
		return 1
	}
	sum := 0.
	for moved, n := range p.moves {
		sum += n
		if n > p.moves[runs] || n == p.moves[runs] && moved < runs {
			runs = moved
		}
	}
	if sum < knownRounds || p.moves[runs] < leastPortion*sum {
		return 0
	}
	return runs
}

// describe says for people what rounds of a loop are; "" if that is not known yet.
func (l *loopCode) describe() string {
	if l.why != "" {
		return "is not timed: " + l.why
	}
	p := l.best()
	runs := p.usual()
	if runs == 0 || p.rounds == 0 {
		return ""
	}
	text := "one iteration"
	if runs > 1 {
		text = thousands(float64(runs)) + " iterations"
	}
	if p.what == "call" {
		text += " from one return of a call to the next"
	} else {
		text += " between two polls"
	}
	if p.counter != nil {
		text += ", by its counter"
	}
	var calls []string
	if p.calls >= countedCalls {
		calls = append(calls, fmt.Sprintf("about %s now", thousands(float64(runs)*p.hits/p.calls)))
	}
	if l.perCall > 0 {
		calls = append(calls, fmt.Sprintf("%s as of warm-up", thousands(l.perCall)))
	}
	if len(calls) > 0 {
		text += "; iterations per call: " + strings.Join(calls, ", ")
	}
	return text
}

// thousands writes 12345.6 as 12,346, and what is less than 100 with a digit more.
func thousands(x float64) string {
	if x < 100 {
		return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
	}
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// loopNumber is the number of a loop in timings, from 1: the same in all compilations and
// processes.
func (e *Engine) loopNumber(p *process, method uint64, head int) uint32 {
	name, line := fmt.Sprintf("%s, bytecode %d", p.method, head), ""
	if frames, err := p.vm.Names([]vmruntime.Scope{{Method: method, BCI: head}}); err == nil &&
		frames[0].Function != "" {
		f := &frames[0]
		name = fmt.Sprintf("%s%s, bytecode %d", f.Function, f.Signature, head)
		if f.File != "" && f.Line > 0 {
			line = fmt.Sprintf("%s:%d, ", f.File, f.Line)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if i := slices.Index(e.loops, name); i >= 0 {
		return uint32(i + 1)
	}
	if len(e.loops) == maxLoopNames { // the last one stands for all others
		return maxLoopNames
	}
	e.loops, e.lines = append(e.loops, name), append(e.lines, line)
	return uint32(len(e.loops))
}

// loopTimings are timings of a window of rounds.
func loopTimings(
	of timing.Region, v timing.Version, list []*bpf.Timed, runs uint32, trap time.Duration,
) []timing.Timing {
	timings := make([]timing.Timing, len(list))
	for i, t := range list {
		d := duration(t, trap)
		timings[i] = timing.Timing{Region: of, Version: v, Thread: int(t.Tid), Duration: d, Part: d, Runs: runs}
	}
	return timings
}
