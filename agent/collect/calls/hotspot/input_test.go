package hotspot

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/estimate"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A countingVM is a VM with three methods: run calls step twice, step calls leaf once. All are
// compiled, and nothing was inlined. Method m is at address m, its code at codeLow + 0x100 * m,
// with version m; each calls at bytecode 7.
type countingVM struct {
	vmruntime.CallCounter        // no other method is called
	gone                  uint32 // version that can no longer be read
}

const (
	codeLow = 0x7f0000000000
	run     = 1
	step    = 2
	leaf    = 3
)

func (v *countingVM) compilation(m uint64) vmruntime.Compilation {
	begin := codeLow + 0x100*m
	return vmruntime.Compilation{
		Begin: begin, End: begin + 0x100, Entry: begin, VerifiedEntry: begin + 0x10, Method: m, Version: uint32(m),
		Level: 4, EntryBCI: -1, InUse: true,
	}
}

func (v *countingVM) Compilation(s vmruntime.Site) (vmruntime.Compilation, error) {
	if s.Version == v.gone {
		return vmruntime.Compilation{}, vmruntime.ErrStale
	}
	return v.compilation(uint64(s.Version)), nil
}

func (v *countingVM) Current(methods []uint64) (map[uint64]vmruntime.Compilation, error) {
	current := map[uint64]vmruntime.Compilation{}
	for _, m := range methods {
		if uint32(m) != v.gone {
			current[m] = v.compilation(m)
		}
	}
	return current, nil
}

func (v *countingVM) InlineTree(c vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	return &vmruntime.InlineTree{Nodes: []vmruntime.InlineNode{{Parent: -1, BCI: -1, Method: c.Method,
		Calls: []int{7}}}}, nil
}

func (v *countingVM) PassingTree(c vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	return v.InlineTree(c)
}

func (v *countingVM) Scopes(s vmruntime.Site) ([]vmruntime.Scope, error) {
	return []vmruntime.Scope{{Method: uint64(s.Version), BCI: 7}}, nil
}

func (v *countingVM) AtEdge(s vmruntime.Site) (bool, error) { return s.PC&0xff < 0x20, nil }

func (v *countingVM) Profiles(methods []uint64) (map[uint64]*vmruntime.MethodProfile, error) {
	calls := map[uint64]vmruntime.CallCount{
		run:  {BCI: 7, Kind: vmruntime.StaticCall, Count: 2000, Target: step},
		step: {BCI: 7, Kind: vmruntime.StaticCall, Count: 2000, Target: leaf},
	}
	read := map[uint64]*vmruntime.MethodProfile{}
	for _, m := range methods {
		p := &vmruntime.MethodProfile{Method: m, Bytecode: int(100 * m), Counted: true, Invocations: 1000 * m}
		if c, ok := calls[m]; ok {
			p.Calls = []vmruntime.CallCount{c}
		}
		read[m] = p
	}
	return read, nil
}

func compiledAt(m uint64, offset uint64) bpf.Frame {
	return bpf.Frame(uint64(bpf.FrameJIT)<<60 | m<<32 | (0x100*m + offset))
}

// inputOf is the input for an estimate in which run was sampled, and observed by breakpoints.
func inputOf(t *testing.T, vm *countingVM) *input {
	t.Helper()
	g := &guest.VM{Kernel: &bpf.HotspotProcess{CodeLow: codeLow, CodeHigh: codeLow + 0x10000}}
	in := emptyInput(g, vm, 0)
	in.Input = estimate.Input{Duration: 10, CPU: 10, Period: 0.01, HitCost: 1e-5}
	var top fold.TopEdges
	top.Add([]guest.RawFrame{{Frame: compiledAt(run, 0x80), Kind: guest.RawExact}}, 990)
	top.Add([]guest.RawFrame{{Frame: compiledAt(step, 0x80), Kind: guest.RawExact},
		{Frame: compiledAt(run, 0x40), Kind: guest.RawReturn}}, 10)
	window := observedWindow{entries: []bpf.Frame{compiledAt(run, 0x10)}, hits: map[observedHit]int{},
		length: 20 * time.Millisecond, ran: 20 * time.Millisecond}
	window.hits[observedHit{callee: compiledAt(run, 0x10)}] = 20
	windows := make([]observedWindow, 30)
	for i := range windows {
		windows[i] = window
	}
	in.observe(top, windows)
	var reading reading
	if err := in.readProfiles(&reading, time.Second); err != nil {
		t.Fatal(err)
	}
	return in
}

// leaf has neither a sample nor a hit: its calls follow from the code of step and from its
// counters.
func TestEstimateOfUnsampledCalls(t *testing.T) {
	in := inputOf(t, &countingVM{})
	rates := map[[2]uint64]float64{}
	for _, c := range estimate.Estimate(&in.Input, estimate.Options{}).Calls {
		key := [2]uint64{0, in.methods[c.Callee]}
		if c.Caller.Method != estimate.NoMethod {
			key[0] = in.methods[c.Caller.Method]
		}
		rates[key] += c.Rate
	}
	runs, steps, leaves := rates[[2]uint64{0, run}], rates[[2]uint64{run, step}], rates[[2]uint64{step, leaf}]
	if runs < 800 || runs > 1300 {
		t.Errorf("run is called %.0f times a second, 1000 were observed", runs)
	}
	if steps < 1.5*runs || steps > 2.7*runs || leaves < 0.7*steps || leaves > 1.4*steps {
		t.Errorf("%.0f runs, %.0f steps, %.0f leaves: want 2 steps a run, and a leaf a step", runs, steps, leaves)
	}
	if lost := in.lost.String(); lost != "" {
		t.Errorf("estimated %s", lost)
	}
}

// A code that is never at the top of a stack has its caller from further down. Of many such calls
// those in most stacks are kept.
func TestCallersBelowTheTop(t *testing.T) {
	in := inputOf(t, &countingVM{})
	before := len(in.Edges)
	call := func(callee, caller uint64) fold.TopEdge {
		return fold.TopEdge{At: guest.RawFrame{Frame: compiledAt(callee, 0x80)},
			From: guest.RawFrame{Frame: compiledAt(caller, 0x40)}}
	}
	top := fold.TopEdges{Below: map[fold.TopEdge]uint64{
		call(leaf, run):  2 * maxBelow,
		call(step, leaf): 1, // it is sampled
	}}
	in.addBelow(top)
	if len(in.Edges) != before+1 || in.methods[in.Codes[in.Edges[before].Callee].Method] != leaf ||
		in.methods[in.Codes[in.Edges[before].Caller].Method] != run {
		t.Errorf("%+v", in.Edges[before:])
	}
	for site := range uint64(2 * maxBelow) {
		e := call(leaf, step)
		e.From.Frame += bpf.Frame(site)
		top.Below[e] = site
	}
	in = inputOf(t, &countingVM{})
	if in.addBelow(top); len(in.Edges) != before+maxBelow ||
		in.methods[in.Codes[in.Edges[before].Caller].Method] != run {
		t.Errorf("%d calls", len(in.Edges)-before)
	}
}

// The extent of calls is the time of the callees that have a number, of all sampled time.
func TestExtentOfCalls(t *testing.T) {
	in := inputOf(t, &countingVM{})
	x := in.extent(estimate.Estimate(&in.Input, estimate.Options{}), 10*time.Millisecond)
	if x.There != 1e10 || x.Observed != x.There || len(x.Missed) != 0 {
		t.Errorf("all is estimated: %+v", x)
	}
	in.lost.gone = 1000
	for i := range in.Codes {
		in.Codes[i].Loop = in.methods[in.Codes[i].Method] == step // its calls are of no code
	}
	x = in.extent(&estimate.Result{Calls: []estimate.Call{{Callee: in.method(run)},
		{Callee: in.method(step), Basis: profile.Unmeasured}}}, 10*time.Millisecond)
	if x.There != 2e10 || x.Observed != 9.9e9 || len(x.Missed) != 2 || x.Missed[1].Amount != 1e8 {
		t.Errorf("%+v", x)
	}
}

// An estimate reports what its input lacked.
func TestEstimateLosses(t *testing.T) {
	in := inputOf(t, &countingVM{gone: run})
	if len(in.Windows) != 0 || in.lost.windows != 30 || in.lost.code != 1 {
		t.Errorf("with %d windows, lost %+v", len(in.Windows), in.lost)
	}
	if got := in.lost.String(); !strings.Contains(got, "1 compilations that are gone, 30 windows of such") {
		t.Errorf("lost: %s", got)
	}
	if got := (losses{}).String(); got != "" {
		t.Errorf("nothing is lost: %s", got)
	}
}

// Samples fade together with the time that they cover: rates stay the same.
func TestFadingKeepsRates(t *testing.T) {
	var top fold.TopEdges
	top.Add([]guest.RawFrame{{Frame: compiledAt(run, 0x80), Kind: guest.RawExact}}, 100)
	top.Span = time.Second
	before := top.All / top.Span.Seconds()
	top.Fade(0.2)
	if after := top.All / top.Span.Seconds(); after < 0.999*before || after > 1.001*before {
		t.Errorf("%.1f samples a second became %.1f", before, after)
	}
}

// The sizes of callees and the time in their prologues come along with the calls.
func TestCallees(t *testing.T) {
	in := inputOf(t, &countingVM{})
	in.Edges[len(in.Edges)-1].AtEdge = 4 // number of samples, 10 ms each
	in.vm = &namingVM{}
	in.profiles[step].Calls[0].Receivers = []vmruntime.Receiver{{Target: leaf, Count: 1400}, {Target: run, Count: 300}}
	out, err := in.inlining(estimate.Estimate(&in.Input, estimate.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	sizes, entering := map[string]int{}, time.Duration(0)
	for _, c := range out.Callees {
		sizes[c.Method] = c.Bytecode
		entering += c.Entering
	}
	if len(sizes) != 3 || sizes["a.M2()V"] != 200 || sizes["a.M3()V"] != 300 || entering != 40*time.Millisecond {
		t.Errorf("%+v", out.Callees)
	}
	if len(out.Sites) != 1 || out.Sites[0].Caller != "a.M2()V" || out.Sites[0].Offset != 7 ||
		out.Sites[0].Calls != 2000 ||
		!slices.Equal(out.Sites[0].Targets, []profile.VirtualTarget{{Callee: "a.M3()V", Calls: 1400},
			{Callee: "a.M1()V", Calls: 300}}) {
		t.Errorf("%+v", out.Sites)
	}
}

// A namingVM names method n a.Mn.
type namingVM struct{ countingVM }

func (*namingVM) Names(places []vmruntime.Scope) ([]vmruntime.Frame, error) {
	frames := make([]vmruntime.Frame, len(places))
	for i, p := range places {
		if p.Method != 0 {
			frames[i] = vmruntime.Frame{Function: fmt.Sprintf("a.M%d", p.Method), Signature: "()V"}
		}
	}
	return frames, nil
}
