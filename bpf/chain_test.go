//go:build linux && amd64

package bpf

import (
	"fmt"
	"testing"
)

// A chained is a thread of a VM whose contexts are taken as a chain does, and the process's rate of
// walks.
type chained struct {
	t  *testing.T
	w  *contextWalker
	vm *fakeVM
	th *fakeThread
	s  *fakeStack
}

// newChained has a stack of three frames: m, a and b, the one that is sampled.
func newChained(t *testing.T, opts contextOptions) *chained {
	t.Helper()
	opts.mode = ModeChain
	c := &chained{t: t, w: newContextWalker(t, opts), vm: newFakeVM(t, builds[1])}
	c.s = c.vm.newStack(t, 64<<10)
	c.th = c.vm.newThread(c.s.mem.end())
	c.w.attach(t, c.vm)
	c.w.forget(t, c.vm)
	c.s.entry(anchor{})
	return c
}

// outcome of taking a context.
type outcome uint8

const (
	walkedNew   outcome = iota // walked to the root, since the link was not known
	walkedDrawn                // walked by the luck of the draw
	linked
)

func (c *chained) request() WalkTestRequest { return c.th.addTo(c.s.request()) }

// expect checks what became of a context of c.s.
func (c *chained) expect(why string, got taken, want outcome) {
	c.t.Helper()
	frames, end := c.s.want(), EndRoot
	depths := c.s.wantDepths(c.s.mem.end())
	flags := SampleAttached | SampleJavaThread | SampleJavaFrames | SampleDepths
	switch want {
	case walkedDrawn:
		flags |= SampleDrawn
	case linked:
		flags |= SampleLink
		if !c.w.check {
			frames, depths, end = frames[:2], depths[:2], EndKnown
		}
	}
	if got.Flags != flags {
		c.t.Errorf("%s: flags %#x, want %#x", why, got.Flags, flags)
	}
	compare(c.t, got.Sample, frames, end)
	for i, d := range got.Depths {
		if i >= len(depths) || d != depths[i] {
			c.t.Errorf("%s: depths %v, want %v", why, got.Depths, depths)
			break
		}
	}
	if c.t.Failed() {
		c.t.Fatal(why)
	}
}

func (c *chained) take(why string, want outcome) {
	c.t.Helper()
	before := c.w.counter(c.t, SamplesLinked)
	c.expect(why, c.w.take(c.t, c.request()), want)
	counted := c.w.counter(c.t, SamplesLinked) - before
	if (counted == 1) != (want == linked) || counted > 1 {
		c.t.Errorf("%s: %d links counted", why, counted)
	}
}

// A link is walked once, and known then. What it is made of is the method that was sampled, the
// call site, and the depths of both.
func TestKernelLink(t *testing.T) {
	c := newChained(t, contextOptions{})
	vm := c.vm
	m, other := vm.newMethod(100), vm.newMethod(100)
	a, b, d := vm.typical(64), vm.typical(64), vm.typical(64)

	empty := *c.s
	on := func(build func(*fakeStack)) {
		*c.s = empty
		build(c.s)
	}
	base := func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x40).compiled(b, 0x40) }
	on(base)
	c.take("the first time", walkedNew)
	c.take("the second time", linked)
	c.take("the third time", linked)

	// The same link.
	for _, same := range []struct {
		name  string
		build func(*fakeStack)
	}{
		{"sampled at another pc of the method", func(s *fakeStack) {
			s.interpreted(m, 7).compiled(a, 0x40).compiled(b,
				0x80)
		}},
		{"another caller's caller", func(s *fakeStack) { s.interpreted(other, 7).compiled(a, 0x40).compiled(b, 0x40) }},
		{"called from elsewhere in the caller's caller", func(s *fakeStack) {
			s.interpreted(m, 9).compiled(a,
				0x40).compiled(b, 0x40)
		}},
	} {
		on(same.build)
		c.take(same.name, linked)
	}

	// Other links: each is walked once.
	for _, new := range []struct {
		name  string
		build func(*fakeStack)
	}{
		{"another method", func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x40).compiled(d, 0x40) }},
		{"another call site", func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x60).compiled(b, 0x40) }},
		{"another caller", func(s *fakeStack) { s.interpreted(m, 7).compiled(d, 0x40).compiled(b, 0x40) }},
		{"both deeper", func(s *fakeStack) {
			s.interpreted(m, 7).compiled(d, 0x40).compiled(a, 0x40).compiled(b,
				0x40)
		}},
		{"interpreted", func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x40).interpreted(other, 5) }},
		{"another interpreted method", func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x40).interpreted(m, 5) }},
		{"called by interpreted code", func(s *fakeStack) { s.compiled(a, 0x40).interpreted(m, 7).compiled(b, 0x40) }},
		{"from another bytecode", func(s *fakeStack) { s.compiled(a, 0x40).interpreted(m, 8).compiled(b, 0x40) }},
		{"sampled in a stub", func(s *fakeStack) {
			s.interpreted(m, 7).compiled(a, 0x40).called(vm.vtable.begin + 8)
			s.seen(s.stub(s.pc))
		}},
	} {
		on(new.build)
		c.take(new.name, walkedNew)
		c.take(new.name+", again", linked)
	}

	on(func(s *fakeStack) { s.interpreted(m, 7).compiled(a, 0x40).interpreted(other, 6) })
	c.take("another bytecode of the interpreted method", linked)
	on(func(s *fakeStack) {
		s.interpreted(m, 7).compiled(a, 0x40).called(vm.vtable.begin + 16)
		s.seen(s.stub(s.pc))
	})
	c.take("elsewhere in the stubs", linked)

	on(base)
	c.take("the first one, after all the others", linked)
}

// Only one of both depths differs.
func TestKernelLinkDepths(t *testing.T) {
	c := newChained(t, contextOptions{})
	m := c.vm.newMethod(100)
	b := c.vm.typical(64)
	empty := *c.s
	stack := func(above, between uint64) {
		*c.s = empty
		c.s.interpreted(m, 3).sp -= above // its expression stack
		c.s.interpreted(m, 7).sp -= between
		c.s.compiled(b, 0x40)
	}
	for _, new := range []struct {
		name           string
		above, between uint64
	}{
		{"the first", 0, 64}, {"the caller's", 32, 32}, {"the leaf's", 0, 96}, {"both, by as much", 32, 64},
		{"the leaf's, back", 0, 32},
	} {
		stack(new.above, new.between)
		c.take(new.name, walkedNew)
		c.take(new.name+", again", linked)
	}
	stack(0, 64)
	c.take("the first, in the end", linked)
}

// What user space has not received it does not know.
func TestKernelLinkLost(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	for range 3 {
		c.expect("lost", c.w.lose(t, c.request()), walkedNew)
	}
	c.take("after it was lost", walkedNew)
	c.expect("a link that is lost", c.w.lose(t, c.request()), linked)
	c.take("after a link was lost", linked)
}

// When user space forgets what it learned, it asks for it again.
func TestKernelLinkGeneration(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	c.w.setRate(t, c.vm, ChainRate{Generation: 1000})
	c.take("in one generation", walkedNew)
	c.take("in one generation, again", linked)
	c.w.setRate(t, c.vm, ChainRate{Generation: 1001})
	c.take("in the next", walkedNew)
	c.take("in the next, again", linked)
	c.w.setRate(t, nil, ChainRate{Generation: 1002})
	c.take("processes without a VM in another", linked)

	// What a tag is made of must not cancel out.
	top := *c.s
	for i := range uint32(64) {
		other := c.vm.typical(64)
		*c.s = top
		c.s.pc, c.s.frames = other.returnTo(0x80), append(top.frames[:2:2],
			placedFrame{other.jit(other.begin + 0x80), top.frames[2].cfa})
		c.w.setRate(t, c.vm, ChainRate{Generation: 1001 ^ a.id ^ other.id})
		c.take(fmt.Sprintf("method %d in a generation that differs in as many bits", i), walkedNew)
	}
}

// Of samples whose link is known, one in so many is walked.
// What user space says of a link holds until it says something else.
func TestKernelLinkSteady(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	tag := c.w.take(t, c.request()).LinkTag
	if tag&LinkSteady == 0 {
		t.Fatalf("the tag of a new link is %#x", tag)
	}
	set := func(steady bool) {
		t.Helper()
		if err := c.w.SetSteady(tag, steady); err != nil {
			t.Fatal(err)
		}
	}
	c.take("known", linked)
	set(false)
	for range 3 {
		got := c.w.take(t, c.request())
		c.expect("of several contexts", got, walkedNew)
		if got.LinkTag != tag&^LinkSteady {
			t.Fatalf("link tag %#x, want %#x without its bit", got.LinkTag, tag)
		}
	}
	c.w.setRate(t, c.vm, ChainRate{Generation: lastGeneration, Every: 1})
	c.take("no draw is needed", walkedNew)
	c.w.setRate(t, c.vm, ChainRate{Generation: lastGeneration})
	set(true)
	c.take("steady again", linked)
	set(false)
	c.w.forget(t, c.vm)
	c.take("forgotten", walkedNew)
	c.take("what was said of it, too", linked)
}

func TestKernelLinkDrawn(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	rate := ChainRate{Generation: 2000}
	set := func(every uint32) {
		rate.Every = every
		c.w.setRate(t, c.vm, rate)
	}
	set(1)
	c.take("unknown, each is walked", walkedNew)
	for range 100 {
		c.take("each is walked", walkedDrawn)
	}
	set(0)
	for range 100 {
		c.take("none is walked", linked)
	}

	// Binomial: 4,000 draws of 1/4 are 1,000 +- 27; seven times that is never seen.
	set(4)
	const takes = 4000
	var drawn int
	for range takes {
		if c.w.take(t, c.request()).Flags&SampleDrawn != 0 {
			drawn++
		}
	}
	if drawn < takes/4-7*27 || drawn > takes/4+7*27 {
		t.Errorf("%d of %d drawn, want a quarter", drawn, takes)
	}
	set(1)
	c.expect("a drawn one that is lost", c.w.lose(t, c.request()), walkedDrawn)
	set(0)
	c.take("known all the same", linked)
}

// Where unknown links are left, they are walked as seldom as others, and known once they were.
func TestKernelLinkLeft(t *testing.T) {
	c := newChained(t, contextOptions{leave: true})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	c.take("unknown", linked)
	c.take("unknown, again", linked)
	rate := ChainRate{Generation: lastGeneration, Every: 1}
	c.w.setRate(t, c.vm, rate)
	c.take("each is walked", walkedDrawn)
}

// Stacks that are not longer than a link are whole, and so are those of which the link is not good
// for anything.
func TestKernelLinkWhole(t *testing.T) {
	c := newChained(t, contextOptions{})
	m := c.vm.newMethod(100)
	c.s.interpreted(m, 7)
	for range 3 {
		c.take("one frame", walkedNew)
	}
	c.s.interpreted(m, 8)
	for range 3 {
		c.take("two frames", walkedNew)
	}
	c.s.interpreted(m, 9)
	c.take("three frames", walkedNew)
	c.take("three frames, again", linked)
}

// Frames on another stack than the thread's have no depth. They are told apart by nothing.
func TestKernelLinkWithoutDepth(t *testing.T) {
	c := newChained(t, contextOptions{})
	m := c.vm.newMethod(100)
	c.s.interpreted(m, 7).interpreted(m, 8).interpreted(m, 9)
	th := c.vm.newThread(c.s.mem.base) // its stack ends below
	for range 3 {
		got := c.w.take(t, th.addTo(c.s.request()))
		compare(t, got.Sample, c.s.want(), EndRoot)
		if got.Flags&(SampleLink|SampleDrawn) != 0 || got.Depths[0] != 0 || got.Depths[1] != 0 {
			t.Errorf("flags %#x, depths %v", got.Flags, got.Depths)
		}
	}
}

// Every stack is there where contexts are checked; the flags are what they would have been.
func TestKernelLinkChecked(t *testing.T) {
	c := newChained(t, contextOptions{check: true})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80).compiled(a, 0x40)
	c.take("the first time", walkedNew)
	c.take("the second time", linked)
	c.w.setRate(t, c.vm, ChainRate{Generation: lastGeneration, Every: 1})
	c.take("drawn", walkedDrawn)
	c.w.forget(t, c.vm)
	c.expect("lost", c.w.lose(t, c.request()), walkedNew)
	c.take("after it was lost", walkedNew)
}

// Processes do not share links, and their rates are their own.
func TestKernelLinkPerProcess(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	c.take("one process", walkedNew)
	c.take("one process, again", linked)
	serial, generation := c.vm.Serial, lastGeneration
	for i := range uint32(64) {
		c.w.attach(t, c.vm) // a copy: everything is where it was
		c.w.setRate(t, c.vm, ChainRate{Generation: generation ^ serial ^ c.vm.Serial})
		c.take(fmt.Sprint("copy ", i), walkedNew)
		c.take(fmt.Sprint("copy, again ", i), linked)
	}
	c.w.attach(t, c.vm)
	c.w.setRate(t, c.vm, ChainRate{Generation: generation})
	c.take("another one", walkedNew)
	c.take("another one, again", linked)
	c.w.setRate(t, c.vm, ChainRate{Generation: generation, Every: 1})
	c.take("another one, each is walked", walkedDrawn)

	// Without a VM.
	s := nativeStack(t, 10)
	native := func(pid, exec uint32) taken {
		req := s.request()
		req.Pid, req.Exec, req.Fsbase = pid, exec, s.mem.end()
		return c.w.take(t, req)
	}
	c.w.forget(t, nil)
	for _, p := range []struct{ pid, exec uint32 }{{1 << 30, 0}, {1<<30 + 1, 0}, {1 << 30, 1}, {1<<30 + 1, 1}} {
		if got := native(p.pid, p.exec); got.Flags != SampleDepths || len(got.User) != 10 {
			t.Errorf("process %v: flags %#x, %d frames", p, got.Flags, len(got.User))
		}
		if got := native(p.pid, p.exec); got.Flags != SampleDepths|SampleLink {
			t.Errorf("process %v, again: flags %#x", p, got.Flags)
		}
	}
}

// Threads of one process share links: depths are counted from each one's own base.
func TestKernelLinkPerThread(t *testing.T) {
	c := newChained(t, contextOptions{})
	a := c.vm.typical(64)
	c.s.compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	c.take("one thread", walkedNew)

	first := *c
	c.s = c.vm.newStack(t, 32<<10)
	c.th = c.vm.newThread(c.s.mem.end())
	c.s.entry(anchor{}).compiled(a, 0x40).compiled(a, 0x60).compiled(a, 0x80)
	c.take("another one, with its stack elsewhere", linked)
	first.take("the first one", linked)
}
