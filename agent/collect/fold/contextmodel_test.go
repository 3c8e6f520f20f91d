package fold

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A modelThread calls and returns at random.
type modelThread struct {
	tid   uint32
	stack []modelFrame // outermost first
}

// A modelFrame is a frame at depth, in bytes below the base of the stack.
type modelFrame struct {
	method byte
	place  uint64
	depth  uint32
}

// modelMethods are compiled, interpreted and native code.
const modelMethods = "abcXY12"

// A modelGuest is a process with threads. If its places distinguish contexts, every call site
// belongs to one context only, so that nothing coincides by chance.
type modelGuest struct {
	rand    *rand.Rand
	threads []*modelThread
	sites   map[string]uint64 // nil if call sites are few
}

func newModelGuest(r *rand.Rand, apart bool) *modelGuest {
	g := &modelGuest{rand: r}
	if apart {
		g.sites = map[string]uint64{}
	}
	for _, tid := range []uint32{100, 101, 101 + keptStacks} {
		g.threads = append(g.threads, &modelThread{tid: tid})
		g.call(g.threads[len(g.threads)-1])
	}
	return g
}

// run makes some calls and returns, and returns a thread to sample.
func (g *modelGuest) run() *modelThread {
	t := g.threads[g.rand.IntN(len(g.threads))]
	for range g.rand.IntN(4) {
		if n := len(t.stack); n > 1 && g.rand.IntN(12) < n {
			t.stack = t.stack[:n-1]
		} else {
			g.call(t)
		}
	}
	t.stack[len(t.stack)-1].place = 1 + g.rand.Uint64N(4) // somewhere in the leaf
	return t
}

func (g *modelGuest) call(t *modelThread) {
	callee := modelFrame{method: modelMethods[g.rand.IntN(len(modelMethods))], place: 1}
	callee.depth = 16 * (1 + uint32(strings.IndexByte(modelMethods, callee.method)%3)) // constant for each method
	if n := len(t.stack); n > 0 {
		caller := &t.stack[n-1]
		callee.depth += caller.depth
		caller.place = 5 + g.rand.Uint64N(3)
		if g.sites != nil {
			site := fmt.Sprint(t.path(), callee.method)
			if g.sites[site] == 0 {
				g.sites[site] = 100 + uint64(len(g.sites))
			}
			caller.place = g.sites[site]
		}
	}
	t.stack = append(t.stack, callee)
}

// path is the stack in the form of foldtest.Path.
func (t *modelThread) path() string {
	path := make([]string, len(t.stack))
	for i, f := range t.stack {
		path[i] = fmt.Sprintf("%c:%d", f.method, f.place)
	}
	return strings.Join(path, " ")
}

// user is its n innermost frames, as in a record.
func (t *modelThread) user(n int) string {
	var b strings.Builder
	for _, f := range t.stack[len(t.stack)-n:] {
		fmt.Fprintf(&b, "%c:%d@%d ", f.method, f.place, f.depth)
	}
	return b.String()
}

// A modelKernel takes samples by the rules of partial.bpf.h and chain.bpf.h.
type modelKernel struct {
	rand  *rand.Rand
	rates rateMap
	check bool
	kept  map[uint32]*modelKept // by tid, folded
	known [64]modelTag
}

const (
	modelKeptLevels = 256 // KEPT_LEVELS
	modelKeptFrames = bpf.MaxKeptFrames
	modelKeptSeries = 32 // KEPT_SERIES
	modelReach      = 16 // KEPT_REACH
	modelConfirm    = 2  // confirm_levels
)

// A modelKept is struct kept_stack.
type modelKept struct {
	tid, serial uint32
	levels      []modelFrame // outermost first
	low         int          // levels before it no longer exist
}

// A modelTag identifies the link that it is for, and its generation.
type modelTag struct {
	leaf, caller bpf.Frame
	depths       [2]uint32
	generation   uint32
	known        bool
}

// partial makes a partial walk. If the record is lost, later samples do not build on it.
func (k *modelKernel) partial(t *modelThread, busy, lost bool) record {
	n := len(t.stack)
	r := record{Identity: java, TID: t.tid, Attachment: 7, User: t.user(n)}
	if busy {
		return r
	}
	kept := k.kept[t.tid%keptStacks]
	if kept == nil {
		kept = &modelKept{}
		k.kept[t.tid%keptStacks] = kept
	}
	if kept.tid != t.tid {
		kept.tid, kept.levels = t.tid, nil
	}
	own, share, met := n, 0, 0
	left := max(len(kept.levels)-1, 0)
	if kept.serial%modelKeptSeries == 0 {
		left = 0
	}
	for i := 2; i <= n && left > 0; i++ {
		f := t.stack[n-i]
		for passed := 0; passed < modelReach && left > kept.low && kept.levels[left-1].depth > f.depth; passed++ {
			left--
		}
		if left <= kept.low || kept.levels[left-1] != f {
			met = 0
			continue
		}
		left--
		if met++; met >= modelConfirm && left > 0 {
			own, share = i, left
			break
		}
	}
	shared := bpf.SharedStack{Frames: uint32(share), Own: uint32(own)}
	if share > 0 {
		shared.Base = kept.serial
		if !k.check {
			r.User, r.End = t.user(own), bpf.EndKnown
		}
	}
	if kept.serial++; kept.serial == 0 {
		kept.serial = 1
	}
	shared.Serial = kept.serial
	r.Shared = &shared
	kept.levels = nil
	if !lost && n <= modelKeptFrames {
		kept.levels = slices.Clone(t.stack)
	}
	low := max(0, n-modelKeptLevels)
	if share > 0 {
		low = max(low, kept.low)
	}
	kept.low = low
	return r
}

// chain makes a link, or a walk.
func (k *modelKernel) chain(t *modelThread, lost bool) record {
	n := len(t.stack)
	r := record{Identity: java, TID: t.tid, Attachment: 7, Flags: bpf.SampleDepths, User: t.user(n)}
	if n <= 2 {
		return r
	}
	rate := k.rates.last(7)
	leaf, caller := t.stack[n-1], t.stack[n-2]
	tag := modelTag{foldtest.Method(leaf.method, 0), foldtest.Method(caller.method, caller.place),
		[2]uint32{leaf.depth, caller.depth}, rate.Generation, true}
	if leaf.method < 'A' {
		tag.leaf = foldtest.Method('0', 0)
	}
	slot := &k.known[(uint32(caller.place)*31+leaf.depth/16*7+uint32(leaf.method))%uint32(len(k.known))]
	switch {
	case *slot != tag:
		if !lost {
			*slot = tag
		}
	case rate.Every > 0 && k.rand.Uint32N(rate.Every) == 0:
		r.Flags |= bpf.SampleDrawn
	default:
		r.Flags |= bpf.SampleLink
		if !k.check {
			r.User, r.End = t.user(2), bpf.EndKnown
		}
	}
	return r
}

// A modelRun is many samples of a process, together with the results of walking every one of them.
type modelRun struct {
	*contextState
	guest    *modelGuest
	kernel   *modelKernel
	window   *Window
	contexts map[string]uint64 // right
	entered  map[string]uint64
	tops     map[string]uint64 // contexts cut to the leaf and its caller
	previous map[uint32][]modelFrame
	whose    map[uint32]uint32 // the thread whose previous stack is kept, by tid, folded

	gotContexts, gotEntered, gotTops map[string]uint64
	uncertain                        uint64 // samples
	linked, right                    uint64
}

func newModelRun(t *testing.T, seed uint64, opt JoinOptions, apart bool) *modelRun {
	a, w := newContextState(t, opt)
	a.attach(7)
	r := rand.New(rand.NewPCG(seed, 0))
	return &modelRun{
		contextState: a, window: w, guest: newModelGuest(r, apart),
		kernel:   &modelKernel{rand: r, rates: a.rates, check: opt.Check, kept: map[uint32]*modelKept{}},
		contexts: map[string]uint64{}, entered: map[string]uint64{}, tops: map[string]uint64{},
		previous: map[uint32][]modelFrame{}, whose: map[uint32]uint32{},
		gotContexts: map[string]uint64{}, gotEntered: map[string]uint64{}, gotTops: map[string]uint64{},
	}
}

func (r *modelRun) sample() {
	t := r.guest.run()
	lost, busy := r.guest.rand.IntN(20) == 0, r.guest.rand.IntN(20) == 0
	var rec record
	if r.opt.Contexts == profile.ContextPartial {
		rec = r.kernel.partial(t, busy, lost)
	} else {
		rec = r.kernel.chain(t, lost)
		busy = true // nobody counts entries
	}
	if lost {
		return
	}
	r.feed(rec)
	path := t.path()
	r.contexts[path]++
	r.tops[topOfPath(path)]++
	if r.opt.Contexts == profile.ContextPartial {
		r.enter(t, busy)
	}
}

// enter counts the frames that the thread's previous stack did not have, if that was kept.
func (r *modelRun) enter(t *modelThread, busy bool) {
	place := t.tid % keptStacks
	same := 0
	if before := r.previous[t.tid]; !busy && r.whose[place] == t.tid {
		for same < len(before) && same < len(t.stack) && before[same] == t.stack[same] {
			same++
		}
		// The same activation, at another place in its method; in native code only a leaf can be
		// recognised as the same.
		if same < len(before) && same < len(t.stack) && before[same].method == t.stack[same].method &&
			(t.stack[same].method >= 'A' || same == len(before)-1 && same == len(t.stack)-1) {
			same++
		}
	}
	if !busy {
		r.previous[t.tid], r.whose[place] = slices.Clone(t.stack), t.tid
	}
	fields := strings.Fields(t.path())
	for i := same + 1; i <= len(fields); i++ {
		r.entered[strings.Join(fields[:i], " ")]++
	}
}

// topOfPath returns the leaf and its caller.
func topOfPath(path string) string {
	f := strings.Fields(path)
	return strings.Join(f[max(0, len(f)-2):], " ")
}

// next closes the window and opens another.
func (r *modelRun) next() {
	second := r.openForTest()
	r.placed(r.window)
	for p, threads := range r.window.Processes {
		for _, t := range threads {
			for certainty := range t.Trees {
				for path, n := range contextsOf(&t.Trees[certainty]) {
					r.gotContexts[path] += n
					r.gotTops[topOfPath(path)] += n
					if certainty != int(profile.Certain) {
						r.uncertain += n
					}
				}
				for path, n := range enteredOf(&t.Trees[certainty]) {
					r.gotEntered[path] += n
				}
			}
		}
		c := r.owner.Contexts(p, threads, r.opt.Contexts, r.opt.Check)
		r.linked += c.Linked
		if c.Check != nil {
			r.right += c.Check.Right[2]
		}
	}
	r.release(r.window)
	r.window = second
}

func (r *modelRun) run(samples int) {
	for range samples {
		r.sample()
		if r.guest.rand.IntN(100) == 0 {
			r.next()
		}
	}
	r.next()
}

func sumOf(m map[string]uint64) (sum uint64) {
	for _, n := range m {
		sum += n
	}
	return sum
}

// differ lists the differences between two counts.
func differ(got, want map[string]uint64) string {
	var lines []string
	for _, m := range []map[string]uint64{got, want} {
		for path := range m {
			if got[path] != want[path] {
				lines = append(lines, fmt.Sprintf("%s: %d, want %d", path, got[path], want[path]))
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(slices.Compact(lines[:min(len(lines), 10)]), "\n")
}

const modelSamples = 2000

// modelSeeds are so many runs that differ; fewer under the race detector, where there is one
// goroutine.
func modelSeeds() uint64 {
	if testing.Short() {
		return 2
	}
	return 10
}

// If nothing coincides by chance, partial walks and links give exactly the results of full walks.
func TestModelExact(t *testing.T) {
	for _, mode := range []profile.ContextMode{profile.ContextPartial, profile.ContextChain} {
		for _, check := range []bool{false, true} {
			for seed := range modelSeeds() {
				r := newModelRun(t, seed, JoinOptions{Contexts: mode, Check: check}, true)
				r.run(modelSamples)
				if !maps.Equal(r.gotContexts, r.contexts) {
					t.Errorf("%v, seed %d: contexts:\n%s", mode, seed, differ(r.gotContexts, r.contexts))
				}
				if !maps.Equal(r.gotEntered, r.entered) {
					t.Errorf("%v, seed %d: entries:\n%s", mode, seed, differ(r.gotEntered, r.entered))
				}
				if r.uncertain != 0 || r.linked < modelSamples/10 || check && r.right != r.linked {
					t.Errorf("%v, seed %d: of %d samples %d are not certain, %d have links, of which %d are right",
						mode, seed,
						sumOf(r.contexts), r.uncertain, r.linked, r.right)
				}
				if t.Failed() {
					return
				}
			}
		}
	}
}

// For any coincidences, and however often the chain forgets, no sample is lost, and leaves have
// their callers.
func TestModelSums(t *testing.T) {
	for _, mode := range []profile.ContextMode{profile.ContextPartial, profile.ContextChain} {
		for seed := range modelSeeds() {
			r := newModelRun(t, seed, JoinOptions{Contexts: mode, WalkEvery: 3}, false)
			if mode == profile.ContextChain {
				r.sample()
				c := &r.state().Joiner().Chaining(r.state().Table[100]).Chain
				c.Limit, c.LinkLimit = 300, 500
			}
			r.run(modelSamples)
			if !maps.Equal(cutEnds(r.gotTops), r.tops) {
				t.Errorf("%v, seed %d: leaves and their callers:\n%s", mode, seed, differ(cutEnds(r.gotTops), r.tops))
			}
			if r.linked < modelSamples/10 {
				t.Errorf("%v, seed %d: %d samples have links", mode, seed, r.linked)
			}
			if mode == profile.ContextChain && (r.state().Table[100].Chaining.Chain.Generation() == 0 ||
				r.uncertain == 0) {
				t.Errorf("seed %d: forgot %d times, %d samples are not certain", seed,
					r.state().Table[100].Chaining.Chain.Generation(), r.uncertain)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// cutEnds removes the reasons why contexts end.
func cutEnds(tops map[string]uint64) map[string]uint64 {
	m := map[string]uint64{}
	for path, n := range tops {
		if i := strings.Index(path, "] "); i >= 0 {
			path = path[i+2:]
		}
		m[path] += n
	}
	return m
}
