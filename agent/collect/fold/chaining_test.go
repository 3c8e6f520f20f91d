package fold

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A prediction that does not reach the root does not count.
func TestGuessOfAPart(t *testing.T) {
	q := newChaining(1, 1, newWalkRate(0))
	user, depths := foldtest.Frames("b:2@32 c:3@48")
	sample := &bpf.Sample{User: user, Depths: depths, Flags: bpf.SampleDepths | bpf.SampleDrawn, End: bpf.EndRoot,
		Attachment: 1}
	if q.learn(sample, guest.AppendStack(nil, sample, 1)); q.WalkRate.Draws != 1 || q.WalkRate.Right != 0 {
		t.Errorf("of %d draws %d were predicted from unknown contexts", q.WalkRate.Draws, q.WalkRate.Right)
	}
	if q.learn(sample, guest.AppendStack(nil, sample, 1)); q.WalkRate.Draws != 2 || q.WalkRate.Right != 1 {
		t.Errorf("of %d draws %d were guessed", q.WalkRate.Draws, q.WalkRate.Right)
	}
}

func TestPace(t *testing.T) {
	right := func(p *WalkRate, of100 int) (changes int) {
		for i := range drawsToJudge {
			if p.drawn(i*100 < of100*drawsToJudge, 30) {
				changes++
			}
		}
		return changes
	}
	for _, c := range []struct {
		name          string
		before        uint32
		right         int // predicted correctly of 100 walks
		want, changes int
	}{
		{"all right", 8, 100, 16, 1},
		{"just good enough", 8, goodGuesses, 16, 1},
		{"not good enough", 8, goodGuesses - 2, 8, 0}, // a draw is 2 of 100
		{"not bad enough", 8, badGuesses, 8, 0},
		{"just bad enough", 8, badGuesses - 2, 4, 1},
		{"all wrong", 8, 0, 4, 1},
		{"never more", maxEvery, 100, maxEvery, 0},
		{"never less", minEvery, 0, minEvery, 0},
		{"almost most", maxEvery - 1, 100, maxEvery, 1},
		{"almost least", minEvery + 1, 0, minEvery, 1},
	} {
		p := &WalkRate{Every: c.before}
		if changes := right(p, c.right); p.Every != uint32(c.want) || changes != c.changes {
			t.Errorf("%s: one in %d, then one in %d with %d changes, want %d with %d", c.name, c.before, p.Every,
				changes, c.want, c.changes)
		}
		if p.Draws != 0 || p.Right != 0 {
			t.Errorf("%s: %d of %d draws are counted twice", c.name, p.Right, p.Draws)
		}
	}
	p := newWalkRate(0)
	for _, c := range []struct{ right, want int }{{0, 3}, {0, 7}, {95, 7}, {100, 3}, {0, 7}, {0, 15}, {0, 31}, {0, 31},
		{100, 15}} {
		if right(p, c.right); int(p.Proof) != c.want {
			t.Errorf("links are trusted after %d more walks, want %d", p.Proof, c.want)
		}
	}
	p = newWalkRate(0)
	if p.Every != firstEvery {
		t.Errorf("the first rate is one in %d", p.Every)
	}
	for range 20 {
		right(p, 100)
	}
	if p.Every != maxEvery {
		t.Errorf("one in %d after many draws that are right", p.Every)
	}
	for range 20 {
		right(p, 0)
	}
	if p.Every != minEvery {
		t.Errorf("one in %d after many draws that are wrong", p.Every)
	}
	for range 20 * drawsToJudge {
		p.drawn(true, 900)
	}
	if p.Every != 4*900 {
		t.Errorf("one in %d after many draws of 900 frames", p.Every)
	}
	if p = newWalkRate(100); p.Every != 100 || right(p, 100)+right(p, 0) != 0 || p.Every != 100 {
		t.Errorf("a fixed rate changes to %d", p.Every)
	}
}

// Links that walks show in several contexts are walked until walks agree again.
func TestSettle(t *testing.T) {
	const tag = 0x1230 // without the bit
	walk := func(a *contextState, user string, known bool) {
		r := record{Identity: java, Attachment: 7, Flags: bpf.SampleDepths, User: user, LinkTag: tag}
		if known {
			r.LinkTag |= bpf.LinkSteady
		}
		a.feed(r)
	}
	a, _ := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.state().Joiner().Chaining(a.attach(7)).WalkRate.Proof = 0
	one, other := "d:1@16 c:2@32 b:3@48 a:4@64", "e:1@16 c:2@32 b:3@48 a:4@64"
	for _, known := range []bool{true, true} {
		walk(a, one, known)
	}
	walk(a, "e:1@16 c:2@32 x:3@48 a:4@64", true) // another link
	if len(a.known) != 0 {
		t.Fatalf("the kernel side received %v, but it has all of them", a.known)
	}
	walk(a, other, true)
	if steady, sent := a.known[tag]; steady || !sent {
		t.Fatalf("after two contexts: steady %v, sent %v", steady, sent)
	}
	clear(a.known)
	walk(a, other, false)
	walk(a, one, false)
	if len(a.known) != 0 {
		t.Errorf("the kernel side received them again: %v", a.known)
	}
	walk(a, one, true) // forgotten there: another link took the slot
	if steady, sent := a.known[tag]; steady || !sent {
		t.Errorf("the kernel side did not receive it again: steady %v, sent %v", steady, sent)
	}
	clear(a.known)
	for range 100 {
		walk(a, one, false)
	}
	if !a.known[tag] {
		t.Error("not steady after many walks that agree")
	}

	for _, opt := range []JoinOptions{{WalkEvery: 4}, {LeaveUnknown: true}} {
		opt.Contexts = profile.ContextChain
		a, _ = newContextState(t, opt)
		a.attach(7)
		walk(a, one, true)
		walk(a, other, true)
		if len(a.known) != 0 {
			t.Errorf("more is walked than users want: %v", a.known)
		}
	}
}

// drawn feeds walks of samples whose link was known.
func (a *contextState) drawn(user string, times int) {
	for range times {
		a.feed(record{Identity: java, Attachment: a.attachment(), Flags: bpf.SampleDepths | bpf.SampleDrawn,
			User: user})
	}
}

// How often a process is walked depends on the share of draws that were predicted correctly.
func TestDrawsSetTheRate(t *testing.T) {
	a, _ := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	slot := p.Slot.Load()
	a.walked("a:1@16 b:2@32 c:3@48", 3)
	a.drawn("a:1@16 b:2@32 c:3@48", drawsToJudge-1)
	if want := []bpf.ChainRate{{Every: firstEvery}}; !slices.Equal(a.rates[slot], want) {
		t.Errorf("sent %v, want %v", a.rates[slot], want)
	}
	a.drawn("a:1@16 b:2@32 c:3@48", 1)
	for i := range drawsToJudge { // each is predicted to be the one before
		a.drawn(fmt.Sprintf("a:%d@16 b:2@32 c:3@48", i+2), 1)
	}
	if want := []bpf.ChainRate{{Every: firstEvery}, {Every: 2 * firstEvery},
		{Every: firstEvery}}; !slices.Equal(a.rates[slot], want) {
		t.Errorf("sent %v, want %v", a.rates[slot], want)
	}
	if want := []bpf.ChainRate{{Every: firstEvery}}; !slices.Equal(a.rates[bpf.MaxAttached], want) {
		t.Errorf("processes without a VM: sent %v, want %v", a.rates[bpf.MaxAttached], want)
	}
}

func TestRateIsGiven(t *testing.T) {
	a, _ := newContextState(t, JoinOptions{Contexts: profile.ContextChain, WalkEvery: 33})
	p := a.attach(7)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.drawn("a:1@16 b:2@32 c:3@48", 3*drawsToJudge)
	want := []bpf.ChainRate{{Every: 33}}
	if !slices.Equal(a.rates[p.Slot.Load()], want) || !slices.Equal(a.rates[bpf.MaxAttached], want) {
		t.Errorf("sent %v, want %v of each", a.rates, want)
	}
}

// A chain that is full forgets everything, and the kernel side receives a new generation.
func TestFullChainAsksAgain(t *testing.T) {
	for _, attached := range []uint32{7, 0} {
		a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
		p := a.attach(attached)
		slot := uint32(bpf.MaxAttached)
		if attached != 0 {
			slot = p.Slot.Load()
		}
		a.walked("0:1@16 1:2@32 2:3@48", 1)
		p.Chaining.Chain.Limit = 10
		for i := range 9 {
			a.walked(fmt.Sprintf("0:1@16 1:%d@32 2:3@48", i+10), 1)
		}
		// Each context needs two, except the first; a stack may need one for each frame and one
		// above them. So the third finds no room, and so does every third from then on.
		if g := p.Chaining.Chain.Generation(); g != 3 {
			t.Fatalf("forgot %d times", g)
		}
		want := []bpf.ChainRate{{Every: firstEvery}, {Every: firstEvery, Generation: 1},
			{Every: firstEvery, Generation: 2}, {Every: firstEvery, Generation: 3}}
		if !slices.Equal(a.rates[slot], want) {
			t.Errorf("attached %d: sent %v, want %v", attached, a.rates[slot], want)
		}
		// Links fill it as well.
		p.Chaining.Chain.LinkLimit = 10
		for i := range 30 {
			a.linked(fmt.Sprintf("1:%d@32 2:3@48", i+100), 1)
		}
		if g := uint32(p.Chaining.Chain.Generation()); g < 4 || a.rates.last(slot) != (bpf.ChainRate{Every: firstEvery,
			Generation: g}) {
			t.Errorf("attached %d: forgot %d times, sent %v", attached, g, a.rates.last(slot))
		}
		// So do observed calls.
		before := p.Chaining.Chain.Generation()
		for i := range uint32(30) {
			a.state().Joiner().LearnCall(p, guest.RawFrame{Frame: foldtest.Method('2', 0), Kind: guest.RawExact},
				guest.RawFrame{Frame: foldtest.Method('1', 5), Kind: guest.RawReturn}, 100+i, 50)
		}
		if g := p.Chaining.Chain.Generation(); g == before || a.rates.last(slot).Generation != uint32(g) {
			t.Errorf("attached %d: forgot %d times, sent %v", attached, g, a.rates.last(slot))
		}
		a.placed(w)
	}
}

// Samples that wait when a chain is full are placed with what is known then.
func TestFullChainPlaces(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.walked("0:1@16 1:2@32 2:3@48", 1)
	a.linked("0:1@16 1:2@32 2:4@48", 5)
	p.Chaining.Chain.Limit = 6
	a.walked("0:1@16 1:9@32 2:3@48", 1)
	if g := p.Chaining.Chain.Generation(); g != 1 {
		t.Fatalf("forgot %d times", g)
	}
	a.linked("0:1@16 1:2@32 2:4@48", 3) // their contexts are forgotten
	var certain, unplaced uint64
	for path, n := range a.placed(w) {
		switch {
		case strings.HasPrefix(path, "unplaced"):
			unplaced += n
		case strings.HasPrefix(path, "certain"):
			certain += n
		}
	}
	if certain != 2+5 || unplaced != 3 {
		t.Errorf("%d certain, %d unplaced: %v", certain, unplaced, a.placed(w))
	}
}

// Processes without a VM share a rate: a change for one of them makes none forget.
func TestNativeProcessesShareRate(t *testing.T) {
	a, _ := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	draw := func(pid uint32, user string, times int) {
		for range times {
			a.feed(record{Identity: identity{PID: pid, Start: 5, Exec: 1}, Flags: bpf.SampleDepths | bpf.SampleDrawn,
				User: user})
		}
	}
	const user = "0:1@16 1:2@32 2:3@48"
	for pid := range uint32(2) {
		draw(pid+1, user, 1) // this cannot be predicted
		draw(pid+1, user, drawsToJudge/2)
	}
	draw(1, user, drawsToJudge)
	var every []uint32
	for _, r := range a.rates[bpf.MaxAttached] {
		if r.Generation != 0 {
			t.Errorf("sent %v: nobody has forgotten anything", r)
		}
		every = append(every, r.Every)
	}
	// Of the first 50 draws 48 are right, of the next 50 all are.
	if want := []uint32{firstEvery, 2 * firstEvery}; !slices.Equal(every, want) {
		t.Errorf("sent %v, want %v", every, want)
	}
	// If one of them forgets, the kernel side forgets the links of all. Processes with a VM are not
	// affected.
	p := a.state().Table[1]
	p.Chaining.Chain.Purge()
	draw(1, user, 1)
	p = a.state().Table[2]
	p.Chaining.Chain.Purge()
	draw(2, user, 1)
	if got := a.rates.last(bpf.MaxAttached); got != (bpf.ChainRate{Every: 2 * firstEvery, Generation: 2}) {
		t.Errorf("sent %v", got)
	}
	if len(a.rates) != 1 {
		t.Errorf("sent %v", a.rates)
	}
}

type refusingMap struct{}

func (refusingMap) Put(any, any) error { return errors.New("no") }

// A rate that cannot be set is not fatal.
func TestRateNotSet(t *testing.T) {
	a, _ := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	a.own(refusingMap{}, a.setSteady)
	w := a.openForTest()
	a.attach(7)
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.linked("b:2@32 c:4@48", 1)
	if got, want := a.placed(w), (map[string]uint64{"certain: a:1 b:2 c:3": 1,
		"certain: a:1 b:2 c:4": 1}); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// Another VM in a process gets another chaining. Samples that waited belong to the earlier one.
func TestAttachedAnew(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(0)
	a.walked("0:1@16 1:2@32 2:3@48", 1)
	a.linked("1:2@32 2:4@48", 2)
	native := p.Chaining.WalkRate
	a.attach(7)
	a.linked("1:2@32 2:4@48", 1)
	if c := p.Chaining; c.Attachment != 7 || c.Slot != 7 || c.Chain.Stats().Contexts != 0 ||
		*c.WalkRate != *newWalkRate(0) || c.WalkRate == native {
		t.Errorf("%+v after the VM was attached", c.Chain.Stats())
	}
	if got := a.rates[7]; !slices.Equal(got, []bpf.ChainRate{{Every: firstEvery}}) {
		t.Errorf("sent %v", got)
	}
	a.walked("a:1@16 b:2@32 c:3@48", 1)
	a.linked("b:2@32 c:4@48", 3)
	second := a.openForTest()
	a.linked("b:2@32 c:4@48", 1)
	a.attach(8)
	a.walked("d:1@16 b:2@32 c:3@48", 1) // where the other VM had a
	a.linked("b:2@32 c:4@48", 1)
	if p.Chaining.Attachment != 8 || len(a.rates[8]) != 1 {
		t.Errorf("attachment %d, sent %v", p.Chaining.Attachment, a.rates[8])
	}
	want := map[string]uint64{
		"certain: 0:1 1:2 2:3": 1, "certain: 0:1 1:2 2:4": 2, "unplaced: [known from before] 1:2 2:4": 1,
		"certain: a:1 b:2 c:3": 1, "certain: a:1 b:2 c:4": 4, "certain: d:1 b:2 c:3": 1, "certain: d:1 b:2 c:4": 1,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	want = map[string]uint64{"certain: a:1 b:2 c:4": 1, "certain: d:1 b:2 c:3": 1, "certain: d:1 b:2 c:4": 1}
	if got := a.placed(second); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A process that reuses a pid learns separately, and so does one after an exec.
func TestChainingOfReusedPID(t *testing.T) {
	for _, next := range []identity{{PID: 100, Start: 9, Exec: 1}, {PID: 100, Start: 5, Exec: 2}} {
		a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
		link := record{Flags: bpf.SampleDepths | bpf.SampleLink, End: bpf.EndKnown, User: "1:2@32 2:4@48"}
		link.Identity = java
		a.walked("0:1@16 1:2@32 2:3@48", 1)
		a.feed(link)
		link.Identity = next
		a.feed(link)
		want := map[string]uint64{"certain: 0:1 1:2 2:3": 1, "certain: 0:1 1:2 2:4": 1,
			"unplaced: [known from before] 1:2 2:4": 1}
		if got := a.placed(w); !maps.Equal(got, want) {
			t.Errorf("%v: got %v, want %v", next, got, want)
		}
	}
}

// A caughtCall is a call that a watch observed.
type caughtCall struct {
	callee, caller           bpf.Frame
	calleeDepth, callerDepth uint32
}

// learnCalls learns from calls that a watch observed in code of p's VM, as engines do.
func (a *contextState) learnCalls(p *Process, hits []caughtCall, classEpoch uint32) {
	for _, h := range hits {
		callee := guest.RawFrame{Frame: h.callee, Kind: guest.RawExact}
		a.state().Joiner().LearnCall(p, callee, CallSite(h.caller, classEpoch), h.calleeDepth, h.callerDepth)
	}
}

// Observed calls teach callers and callees.
func TestTeachCalls(t *testing.T) {
	a, w := newContextState(t, JoinOptions{Contexts: profile.ContextChain})
	p := a.attach(7)
	a.walked("a:1@16 B:2@32 c:3@48", 1)
	hit := func(callee byte, calleeDepth uint32, caller bpf.Frame, callerDepth uint32) caughtCall {
		return caughtCall{foldtest.Method(callee, 0), caller, calleeDepth, callerDepth}
	}
	a.learnCalls(p, []caughtCall{
		hit('d', 64, foldtest.Method('B', 5), 32), hit('e', 80, foldtest.Method('d', 6), 64),
		hit('f', 96, foldtest.Method('e', 7), 0), hit('f', 0, foldtest.Method('e', 7), 80), // its place is unknown
	}, 0)
	a.learnCalls(p, []caughtCall{hit('g', 64, foldtest.Method('B', 5), 32)}, 1) // another method by now
	for _, link := range []string{"d:6@64 e:1@80", "e:8@80 h:1@96", "e:7@80 f:1@96", "g:1@64 h:1@80"} {
		a.linked(link, 1)
	}
	want := map[string]uint64{
		"certain: a:1 B:2 c:3": 1, "certain: a:1 B:5 d:6 e:1": 1, "certain: a:1 B:5 d:6 e:8 h:1": 1,
		"certain: a:1 B:5 d:6 e:7 f:1":              1,
		"unplaced: [known from before] B:5 g:1 h:1": 1,
	}
	if got := a.placed(w); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if n := p.Chaining.Chain.Stats().Refused; n != 0 {
		t.Errorf("%d calls were refused", n)
	}
	b, _ := newContextState(t, JoinOptions{})
	p = b.attach(7)
	if b.learnCalls(p, []caughtCall{hit('d', 64, foldtest.Method('B', 5), 32)}, 0); p.Chaining != nil {
		t.Error("calls are chained though contexts are not")
	}
}
