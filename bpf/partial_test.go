//go:build linux && amd64

package bpf

import (
	"fmt"
	"slices"
	"testing"
)

// A splicer completes partial walks of a thread as user space does, but forgets nothing.
type splicer map[uint32]spliced // by serial

type spliced struct {
	frames []Frame
	end    WalkEnd
}

// splice returns the whole stack that s stands for. ok is false if the sample that has the rest was
// not received.
func (sp splicer) splice(s taken) (whole spliced, ok bool) {
	whole = spliced{slices.Clone(s.User[:s.Shared.Own]), s.End}
	if s.Shared.Base != 0 {
		base, ok := sp[s.Shared.Base]
		if !ok || int(s.Shared.Frames) > len(base.frames) {
			return whole, false
		}
		whole.frames = append(whole.frames, base.frames[len(base.frames)-int(s.Shared.Frames):]...)
		whole.end = base.end
	}
	sp[s.Shared.Serial] = whole
	return whole, true
}

// A partial is a thread of a VM whose stack is walked partially. What is on the stack comes and
// goes as a running thread has it.
type partial struct {
	t        *testing.T
	w        *contextWalker
	vm       *fakeVM
	th       *fakeThread
	levels   []fakeStack // as the stack was after each call
	received splicer
	serial   uint32 // serial of the last sample that was received
}

func newPartial(t *testing.T, opts contextOptions, size int) *partial {
	t.Helper()
	opts.mode = ModePartial
	p := &partial{t: t, w: newContextWalker(t, opts), vm: newFakeVM(t, builds[1]), received: splicer{}}
	s := p.vm.newStack(t, size)
	p.th = p.vm.newThread(s.mem.end())
	p.w.attach(t, p.vm)
	s.entry(anchor{})
	p.levels = []fakeStack{*s}
	return p
}

func (p *partial) top() *fakeStack { return &p.levels[len(p.levels)-1] }

// call lets the innermost frame make a call.
func (p *partial) call(f func(*fakeStack)) {
	s := *p.top()
	f(&s)
	p.levels = append(p.levels, s)
}

// compiled calls compiled code, innermost last.
func (p *partial) compiled(b *blob, offs ...uint64) {
	for _, off := range offs {
		p.call(func(s *fakeStack) { s.compiled(b, off) })
	}
}

// ret returns from n calls.
func (p *partial) ret(n int) { p.levels = p.levels[:len(p.levels)-n] }

func (p *partial) request() WalkTestRequest { return p.th.addTo(p.top().request()) }

// take checks how much of the stack is shared: want frames of it, those that were the outermost of
// the last sample's.
func (p *partial) take(why string, want int) {
	p.t.Helper()
	if p.serial%keptSeries == 0 {
		want = 0
	}
	got := p.w.take(p.t, p.request())
	p.expect(why, got, want)
	p.serial = got.Shared.Serial
}

func (p *partial) expect(why string, got taken, want int) {
	p.t.Helper()
	stack := p.top().want()
	own, base := stack[:len(stack)-want], uint32(0)
	if want > 0 {
		base = p.serial
	}
	if int(got.Shared.Own) != len(own) || int(got.Shared.Frames) != want || got.Shared.Base != base {
		p.t.Errorf("%s: %d frames of its own, %d of %d; want %d, %d of %d", why, got.Shared.Own, got.Shared.Frames,
			got.Shared.Base,
			len(own), want, base)
	}
	end := EndRoot
	if p.w.check {
		own = stack
	} else if want > 0 {
		end = EndKnown
	}
	compare(p.t, got.Sample, own, end)
	whole, ok := p.received.splice(got)
	if !ok || whole.end != EndRoot || !slices.Equal(whole.frames, stack) {
		p.t.Errorf("%s: received: %v; completed to %d frames, ended by %v, want these %d", why, ok, len(whole.frames),
			whole.end, len(stack))
	}
	if p.t.Failed() {
		p.t.Fatal(why)
	}
}

// confirming are numbers of levels that must agree. An old kernel in an emulator takes seconds to
// verify the program for each, which shows no more of that kernel: there, with -short, it is the
// default alone.
func confirming() []uint32 {
	if testing.Short() {
		return []uint32{DefaultConfirmLevels}
	}
	return []uint32{1, 2, 3}
}

// everyConfirm runs a test for all numbers of levels that must agree, without and with checks.
func everyConfirm(t *testing.T, f func(t *testing.T, opts contextOptions)) {
	for _, confirm := range confirming() {
		t.Run(fmt.Sprint(confirm), func(t *testing.T) { f(t, contextOptions{confirm: confirm}) })
	}
	t.Run("checked", func(t *testing.T) { f(t, contextOptions{confirm: 2, check: true}) })
}

// A walk ends where it has met frames of the thread's previous one, as many as must agree.
func TestKernelPartial(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		k := int(opts.confirm)
		a, b := p.vm.typical(64), p.vm.typical(96)
		m, n := p.vm.newMethod(100), p.vm.newMethod(100)
		p.compiled(a, 0x40, 0x48, 0x50, 0x58, 0x60, 0x68, 0x70, 0x78)
		const depth = 8
		shared := p.w.counter(t, SamplesPartial)
		p.take("the first time", 0)
		p.take("the same", depth-1-k)
		p.take("the same, a third time", depth-1-k)

		top := p.levels[depth]
		p.levels[depth].pc++
		p.levels[depth].frames = slices.Clone(top.frames)
		p.levels[depth].frames[depth-1].Frame++
		p.take("sampled at another pc", depth-1-k)
		p.levels[depth] = top

		p.compiled(b, 0x40)
		p.take("one call deeper: what was the leaf has moved on", depth-1-k)
		p.take("and again", depth-k)
		p.compiled(b, 0x48, 0x50, 0x58)
		p.take("three calls deeper", depth-k)
		p.ret(5)
		p.take("five returns", depth-2-k)
		p.compiled(b, 0x60, 0x68)
		p.take("two calls elsewhere", depth-2-k)
		if got, want := p.w.counter(t, SamplesPartial)-shared, uint64(8); got != want {
			t.Errorf("%d samples counted that share frames, want %d", got, want)
		}

		p.call(func(s *fakeStack) { s.interpreted(m, 7) })
		p.call(func(s *fakeStack) { s.interpreted(n, 9) })
		p.call(func(s *fakeStack) { s.interpreted(m, 11) })
		p.take("interpreted callees", depth+1-1-k)
		p.take("and again", depth+4-1-k)
		p.ret(1)
		p.call(func(s *fakeStack) { s.interpreted(m, 12) })
		p.take("another bytecode of the leaf", depth+4-1-k)
		p.call(func(s *fakeStack) {
			left := anchor{s.sp, s.pc, s.bp}
			s.unseen(libc)
			s.entry(left).compiled(a, 0x80)
		})
		p.call(func(s *fakeStack) { s.compiled(a, 0x88) })
		p.call(func(s *fakeStack) { s.compiled(a, 0x90) })
		p.take("Java through native", depth+3-k)
		p.take("and again", depth+6-k)
		p.ret(len(p.levels) - 1 - 1)
		p.take("back to the first frame", 0)
	})
}

// Short stacks: frames are shared where there are any beyond those that must agree.
func TestKernelPartialShort(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		a := []uint64{0x40, 0x48, 0x50, 0x58, 0x60, 0x68}
		for depth := 1; depth <= len(a); depth++ {
			p := newPartial(t, opts, 64<<10)
			p.compiled(p.vm.typical(64), a[:depth]...)
			p.take("the first time", 0)
			for range 3 {
				p.take(fmt.Sprintf("%d frames again", depth), max(0, depth-1-int(opts.confirm)))
			}
		}
	})
}

// Native frames are shared like others, above Java and without it.
func TestKernelPartialNative(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		k := int(opts.confirm)
		p.compiled(p.vm.typical(64), 0x40, 0x48, 0x50, 0x58)
		p.th.enter(inNative, p.top().here())
		calls := func(pcs ...uint64) {
			for _, pc := range pcs {
				p.call(func(s *fakeStack) { s.native(pc) })
			}
		}
		calls(libjvm)
		p.take("the first time", 0)
		p.take("one function above Java", 5-1-k)
		calls(libjvm+64, libjvm+128, libjvm+192)
		p.take("four functions", 4-k)
		p.take("four functions again", 8-1-k)
		p.ret(3)
		p.take("one function again", 4-k)

		// Of a leaf call it is known only in the end which frames there are.
		p.ret(1)
		p.th.enter(inJava, anchor{})
		p.call(func(s *fakeStack) { s.native(libc) })
		p.call(func(s *fakeStack) { s.native(libc + 64) })
		for range 2 {
			p.take("leaf call, whose native frames are taken as they are", 4-k)
		}
		java := p.levels[len(p.levels)-3]
		p.call(func(s *fakeStack) {
			s.sp, s.bp, s.pc = s.sp-64, poison, libc+128
			s.frames = java.below(native(s.pc))
		})
		for range 2 {
			p.take("leaf call without frame pointers", 4-k)
		}
		p.levels[len(p.levels)-1].bp = java.mem.end() - 8
		p.take("leaf call with any rbp", 4-k)
	})
}

// In native code that Java called without an anchor, rbp may still be that of the native code that
// called Java: what it leads to is above the thread's Java frames, as the previous sample had it
// when there were none.
func TestKernelPartialLeafCall(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		s := p.top()
		s.sp, s.pc, s.bp, s.frames = s.mem.end()-2048, libc, 0, []placedFrame{{native(libc), 0}}
		for i := range uint64(6) {
			s.native(libjvm + 64*i)
		}
		p.th.enter(inNative, anchor{})
		p.call(func(s *fakeStack) { s.native(libc + 64) })
		p.take("before the first call of Java", 0)
		p.ret(1)

		s = p.top()
		s.frames = nil
		s.entry(anchor{})
		rbp := s.bp
		p.th.enter(inJava, anchor{})
		p.compiled(p.vm.typical(64), 0x40, 0x48, 0x50, 0x58, 0x60)
		java := *p.top()
		p.call(func(s *fakeStack) {
			s.called(libc)
			s.sp, s.bp = s.sp-64, rbp
			s.frames = java.below(native(libc))
		})
		p.take("leaf call", 0)
		p.take("the same", 6-1-int(opts.confirm))
	})
}

// A frame is the previous one's only where it stands at the same place.
func TestKernelPartialPlaces(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPartial(t, opts, 64<<10)
		k := int(opts.confirm)
		a, b, c := p.vm.typical(64), p.vm.typical(64), p.vm.typical(96)
		above := []uint64{0x40, 0x48, 0x50, 0x58}
		below := []uint64{0x60, 0x68, 0x70, 0x78, 0x80}
		p.compiled(a, above...)
		p.compiled(b, 0x40)
		p.compiled(a, below...)
		p.take("the first time", 0)
		p.take("the same", 10-1-k)

		p.ret(6)
		p.compiled(c, 0x40)
		p.compiled(a, below...)
		p.take("the same calls below a frame that is larger", 4-k)

		p.ret(6)
		p.compiled(a, below...)
		p.take("and with that frame left out", 4-k)
	})
}

// That frames agree by chance cannot be ruled out; it takes as many in a row as must agree.
func TestKernelPartialByChance(t *testing.T) {
	for _, confirm := range confirming() {
		for same := 0; same <= 4; same++ {
			p := newPartial(t, contextOptions{confirm: confirm}, 64<<10)
			a, b, c := p.vm.typical(64), p.vm.typical(64), p.vm.typical(64)
			p.compiled(a, 0x40, 0x48, 0x50, 0x58, 0x60)
			build := func(other *blob) {
				p.compiled(other, 0x40)
				for i := range same {
					p.compiled(a, 0x68+8*uint64(i))
				}
				p.compiled(a, 0xa0)
			}
			build(b)
			p.take("the first time", 0)
			p.ret(same + 2)
			build(c) // as large as b
			if same < int(confirm) {
				p.take("too few frames agree", 5-int(confirm))
				continue
			}
			got := p.w.take(t, p.request())
			whole, ok := p.received.splice(got)
			right := p.top().want()
			wrong := slices.Clone(right)
			wrong[1+same] = b.jit(b.begin + 0x40)
			if !ok || !slices.Equal(whole.frames, wrong) {
				t.Errorf("%d must agree, %d do: got %v, want %v", confirm, same, whole.frames, wrong)
			}
		}
	}
}

// A walk that failed is not built on: the next one may come further.
func TestKernelPartialTruncated(t *testing.T) {
	for _, c := range brokenStacks {
		t.Run(c.name, func(t *testing.T) {
			p := newPartial(t, contextOptions{confirm: confirming()[0]}, 64<<10)
			p.call(func(s *fakeStack) { c.build(s) })
			a := p.vm.typical(64)
			p.compiled(a, 0x40, 0x48, 0x50, 0x58)
			for range 3 {
				got := p.w.take(t, p.request())
				if got.Shared.Base != 0 || got.End != c.end {
					t.Errorf("%+v, ended by %v, want %v", *got.Shared, got.End, c.end)
				}
				compare(t, got.Sample, p.top().want(), c.end)
			}
		})
	}
}

// Where a chain of frame pointers ends is where it will end the next time: what is known of it is
// how it ended, too.
func TestKernelPartialNativeEnds(t *testing.T) {
	w := newContextWalker(t, contextOptions{mode: ModePartial})
	for i, test := range nativeStacks {
		t.Run(test.name, func(t *testing.T) {
			s := nativeStack(t, test.depth)
			if test.spoil != nil {
				test.spoil(s)
			}
			received := splicer{}
			req := s.request()
			req.Tid = 500 + uint32(i)
			want := Sample{User: s.want(), End: test.end}
			for n := range 3 {
				got := w.take(t, req)
				whole, ok := received.splice(got)
				if !ok || whole.end != want.End || !slices.Equal(whole.frames, want.User) {
					t.Errorf("take %d: received: %v, %d frames, ended by %v; want %d, %v",
						n, ok, len(whole.frames), whole.end, len(want.User), want.End)
				}
				share := len(want.User)
				if share = max(0, share-1-DefaultConfirmLevels); n > 0 && int(got.Shared.Frames) != share {
					t.Errorf("take %d: %d frames shared, want %d", n, got.Shared.Frames, share)
				}
			}
		})
	}
}

// One in so many samples is walked whole, whatever is kept.
func TestKernelPartialSeries(t *testing.T) {
	p := newPartial(t, contextOptions{confirm: 2}, 64<<10)
	a := p.vm.typical(64)
	p.compiled(a, 0x40, 0x48, 0x50, 0x58, 0x60)
	all := len(p.top().want())
	whole := 0
	for range 3 * keptSeries {
		got := p.w.take(t, p.request())
		if got.Shared.Base == 0 {
			whole++
			if int(got.Shared.Own) != all || got.End != EndRoot {
				t.Errorf("%d frames of %d, ended by %v", got.Shared.Own, all, got.End)
			}
		}
	}
	if whole != 3 {
		t.Errorf("%d samples of %d are whole, want 3", whole, 3*keptSeries)
	}
}

// Of a stack the innermost levels are kept, and what is further out is shared with them; a walk
// goes as deep as any other does.
func TestKernelPartialDeep(t *testing.T) {
	for _, check := range []bool{false, true} {
		p := newPartial(t, contextOptions{confirm: 2, check: check}, 1<<20)
		const k = 2
		kept := func(depth int) int { return depth - 1 - k }
		a := p.vm.typical(64)
		grow := func(depth int) {
			for i := len(p.levels) - 1; i < depth; i++ {
				p.compiled(a, 0x40+8*uint64(i%16))
			}
		}
		for _, depth := range []int{keptLevels - 1, keptLevels, keptLevels + 1, keptLevels + 2, 1000, MaxUserFrames} {
			grow(depth)
			before := len(p.received)
			shared := kept(depth)
			if before > 0 {
				// What was the leaf is not shared.
				got := p.w.take(t, p.request())
				whole, ok := p.received.splice(got)
				if !ok || !slices.Equal(whole.frames, p.top().want()) {
					t.Fatalf("%d frames: completed to %d, received %v", depth, len(whole.frames), ok)
				}
				p.serial = got.Shared.Serial
			} else {
				p.take(fmt.Sprintf("%d frames", depth), 0)
			}
			p.take(fmt.Sprintf("%d frames again", depth), shared)
		}

		// What is further out than the innermost levels that were kept is not known once they are
		// left.
		for p.serial%keptSeries != 1 { // after which none is walked whole for a while
			p.take("as deep as a walk goes", kept(MaxUserFrames))
		}
		const low = MaxUserFrames - keptLevels
		for depth := MaxUserFrames - 15; depth > low+1+k; depth -= 15 {
			p.ret(len(p.levels) - 1 - depth)
			p.take(fmt.Sprintf("back to %d frames", depth), kept(depth))
		}
		p.ret(len(p.levels) - 1 - low)
		p.take("nothing is kept of these", 0)
		p.take("now it is", kept(low))
		grow(low + 100)
		p.take("and again what is above", kept(low))
		grow(MaxUserFrames)
		p.take("as deep as before", kept(low+100))

		// Deeper than a walk goes, what is shared goes further.
		grow(MaxUserFrames + 100)
		for range 3 {
			got := p.w.take(t, p.request())
			whole, ok := p.received.splice(got)
			if !ok || !slices.Equal(whole.frames, p.top().want()) || whole.end != EndRoot && !check {
				t.Fatalf("completed to %d frames, received %v, ended by %v", len(whole.frames), ok, whole.end)
			}
			p.serial = got.Shared.Serial
		}
		grow(3000) // nothing that is kept is within reach
		for range 3 {
			got := p.w.take(t, p.request())
			whole, ok := p.received.splice(got)
			want := p.top().want()
			if !ok || len(whole.frames) < MaxUserFrames || !slices.Equal(whole.frames, want[:len(whole.frames)]) ||
				whole.end != EndDepth {
				t.Fatalf("completed to %d frames, received %v, ended by %v", len(whole.frames), ok, whole.end)
			}
		}
		p.ret(2900)
		got := p.w.take(t, p.request())
		if whole, ok := p.received.splice(got); !ok || !slices.Equal(whole.frames, p.top().want()) ||
			whole.end != EndRoot {
			t.Errorf("completed to %d frames, received %v, ended by %v", len(whole.frames), ok, whole.end)
		}
	}
}
