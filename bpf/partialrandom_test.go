//go:build linux && amd64

package bpf

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// A player calls and returns at random, as threads do: mostly a little, sometimes much.
type player struct {
	*partial
	*rand.Rand
	blobs   []*blob
	methods []method
	sites   int // calls so far
	few     bool
}

const siteSpace = 8 // bytes between return addresses

func newPlayer(t *testing.T, opts contextOptions, few bool) *player {
	p := &player{partial: newPartial(t, opts, 1<<20), Rand: rand.New(rand.NewPCG(1, 2)), few: few}
	n := 400
	if few {
		n = 2
	}
	for range n {
		p.blobs = append(p.blobs, p.vm.typical(48+16*int32(p.IntN(12))))
	}
	if few {
		p.blobs = append(p.blobs, p.blobs[0])
		p.methods = []method{p.vm.newMethod(8)}
	} else {
		p.methods = []method{p.vm.newMethod(65535)}
	}
	return p
}

// site is where the next call comes from: never the same place twice, unless there are few.
func (p *player) site() int {
	p.sites++
	if p.few {
		return p.IntN(4)
	}
	return p.sites
}

func (p *player) random(native bool) {
	site := p.site()
	kind := p.IntN(10)
	switch {
	case native:
		p.call(func(s *fakeStack) { s.native(libjvm + 16*uint64(site)) })
	case kind < 3:
		m := p.methods[0]
		p.call(func(s *fakeStack) { s.interpreted(m, uint16(site)) })
	case kind < 4:
		p.call(func(s *fakeStack) {
			left := anchor{s.sp, s.pc, s.bp}
			s.unseen(libjvm)
			s.entry(left)
			s.compiled(p.compiledSite(site))
		})
	default:
		p.call(func(s *fakeStack) { s.compiled(p.compiledSite(site)) })
	}
}

func (p *player) compiledSite(site int) (*blob, uint64) {
	const perBlob = (0xe0 - 0x28) / siteSpace
	return p.blobs[site/perBlob%len(p.blobs)], 0x28 + siteSpace*uint64(site%perBlob)
}

// step changes the stack at random and leaves the thread in Java or in native code.
func (p *player) step() {
	for len(p.levels) > 1 && p.top().frames[len(p.top().frames)-1].Kind() == FrameNative {
		p.ret(1)
	}
	depth := len(p.levels) - 1
	calls, returns := p.IntN(4), p.IntN(4)
	switch p.IntN(40) {
	case 0:
		returns = depth
	case 1:
		calls += p.IntN(300)
	case 2:
		returns += p.IntN(300)
	case 3:
		calls, returns = 0, 0
	}
	p.ret(min(returns, depth))
	for range max(calls, 1-(len(p.levels)-1)) {
		if len(p.levels) < 1200 {
			p.random(false)
		}
	}
	p.th.enter(inJava, anchor{})
	if p.IntN(4) == 0 {
		s := p.top()
		p.th.enter(inNative, anchor{s.sp, s.pc, s.bp})
		for range 1 + p.IntN(4) {
			p.random(true)
		}
	}
}

// However a thread calls and returns, and whichever samples are lost, what user space puts together
// is the whole stack.
func TestKernelPartialRandom(t *testing.T) {
	everyConfirm(t, func(t *testing.T, opts contextOptions) {
		p := newPlayer(t, opts, false)
		full := newWalker(t)
		if err := full.Processes.Put(p.vm.pid(), &p.vm.HotspotProcess); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = full.Processes.Delete(p.vm.pid()) })
		var frames, shared, deepest int
		lost := false
		steps := 3000
		if testing.Short() {
			steps = 1000
		}
		for step := range steps {
			p.step()
			want := full.walk(t, p.request())
			if want.End != EndRoot && len(want.User) < MaxUserFrames {
				t.Fatalf("step %d: a walk of %d frames ended by %v", step, len(p.top().frames), want.End)
			}
			if p.IntN(20) == 0 {
				p.w.lose(t, p.request())
				lost = true
				continue
			}
			got := p.w.take(t, p.request())
			if lost && got.Shared.Base != 0 {
				t.Fatalf("step %d: built on a lost sample", step)
			}
			lost = false
			whole, ok := p.received.splice(got)
			if !ok {
				t.Fatalf("step %d: built on sample %d, which was not received", step, got.Shared.Base)
			}
			// What is shared may reach further than a walk.
			n := len(whole.frames)
			if n < len(want.User) || n > len(want.User) && len(want.User) < MaxUserFrames ||
				!slices.Equal(whole.frames, p.top().want()[:n]) || !slices.Equal(whole.frames[:len(want.User)],
				want.User) {
				t.Fatalf("step %d: completed to %d frames (%+v), a walk has %d", step, n, *got.Shared, len(want.User))
			}
			if n == len(p.top().frames) && whole.end != EndRoot || n < len(p.top().frames) && whole.end != EndDepth {
				t.Fatalf("step %d: completed to %d frames of %d, ended by %v", step, n, len(p.top().frames), whole.end)
			}
			if opts.check && !slices.Equal(got.User, want.User) {
				t.Fatalf("step %d: %d frames where contexts are checked, a walk has %d", step, len(got.User),
					len(want.User))
			}
			frames, shared, deepest = frames+n, shared+int(got.Shared.Frames), max(deepest, n)
		}
		t.Logf("%d frames, %d%% of them shared; deepest stack %d", frames, 100*shared/frames, deepest)
		if shared < frames/4 {
			t.Errorf("only %d of %d frames were shared", shared, frames)
		}
	})
}

// Where call sites are few, frames agree by chance. Checking contexts tells of each sample exactly
// what becomes of it without checks, and which share of them is wrong.
func TestKernelPartialChecked(t *testing.T) {
	if testing.Short() {
		t.Skip("shows nothing of the kernel")
	}
	for confirm := uint32(1); confirm <= 2; confirm++ {
		ship := newPlayer(t, contextOptions{confirm: confirm}, true)
		check := newContextWalker(t, contextOptions{mode: ModePartial, confirm: confirm, check: true})
		if err := check.Processes.Put(ship.vm.pid(), &ship.vm.HotspotProcess); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = check.Processes.Delete(ship.vm.pid()) })
		checked := splicer{}
		var samples, wrong int
		for step := range 3000 {
			ship.step()
			req := ship.request()
			got, all := ship.w.take(t, req), check.take(t, req)
			if got.Shared.Own != all.Shared.Own || got.Shared.Frames != all.Shared.Frames ||
				(got.Shared.Base == 0) != (all.Shared.Base == 0) || !slices.Equal(got.User, all.User[:got.Shared.Own]) {
				t.Fatalf("step %d: %+v, with checks %+v", step, *got.Shared, *all.Shared)
			}
			if want := ship.top().want(); !slices.Equal(all.User, want[:min(len(want), MaxUserFrames)]) {
				t.Fatalf("step %d: %d frames where contexts are checked, want %d", step, len(all.User), len(want))
			}
			whole, ok := ship.received.splice(got)
			same, ok2 := checked.splice(all)
			if !ok || !ok2 || !slices.Equal(whole.frames, same.frames) {
				t.Fatalf("step %d: completed to %d frames, with checks to %d", step, len(whole.frames),
					len(same.frames))
			}
			samples++
			if n := min(len(whole.frames), len(all.User)); !slices.Equal(whole.frames[:n], all.User[:n]) {
				wrong++
			}
		}
		t.Logf("%d must agree: %d of %d stacks are wrong", confirm, wrong, samples)
		if confirm == 1 && wrong == 0 {
			t.Error("no frames agreed by chance: nothing was tested")
		}
	}
}
