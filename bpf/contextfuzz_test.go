//go:build linux && amd64

package bpf

import (
	"slices"
	"testing"
)

// Whatever is in a guest's memory and registers, and whichever records are lost: a context is
// within its bounds and makes sense in itself, and what is put together from several does, too.
func FuzzKernelContext(f *testing.F) {
	modes := []contextOptions{
		{mode: ModeChain}, {mode: ModePartial, confirm: 1}, {mode: ModePartial, confirm: 2},
		{mode: ModeChain, check: true}, {mode: ModePartial, confirm: 2, check: true},
	}
	full := newWalker(f)
	targets := []*target{newTarget(f, builds[1]), newTarget(f, builds[2])}
	const known = HotspotUnloadEvents | HotspotTLS | HotspotDeoptMH
	for i := range modes {
		f.Add(uint8(i<<1), uint8(known), uint8(0), []byte{})
		f.Add(uint8(i<<1|1), uint8(known), uint8(2), []byte{})
		f.Add(uint8(i<<1), uint8(HotspotTLS), uint8(0), []byte{7, 0, 0, 0, 0, 0, 0, 0})
		f.Add(uint8(i<<1|1), uint8(known), uint8(0), []byte{3, 1 + 4*3, 5, 0, 8, 0, 0, 0, 1, 0, 8, 0, 2, 0, 0, 0})
		f.Add(uint8(i<<1), uint8(known), uint8(4), []byte{3, 0, 60, 0, 0, 0, 0, 0})
	}
	f.Fuzz(func(t *testing.T, which, flags, lost uint8, changes []byte) {
		pinned(t) // both walkers have the same caches
		w := newContextWalker(t, modes[int(which>>1)%len(modes)])
		tg := targets[int(which)%len(targets)]
		tg.Flags = tg.Flags&^known | uint32(flags)&known
		w.attach(t, tg.fakeVM)
		w.forget(t, tg.fakeVM)
		if err := full.Processes.Put(tg.pid(), &tg.HotspotProcess); err != nil {
			t.Fatal(err)
		}
		defer func() { _ = full.Processes.Delete(tg.pid()) }()
		received := splicer{}
		take := func(r WalkTestRequest, compare bool) {
			t.Helper()
			r.Lost = uint32(lost & 1)
			lost >>= 1
			want := full.walk(t, r)
			got := w.run(t, r) // which checks that it is consistent
			user := got.User
			if w.mode == ModePartial {
				user = user[:got.Shared.Own]
				whole, ok := received.splice(got)
				if r.Lost != 0 {
					clear(received)
				}
				if !ok || len(whole.frames) >= MaxUserFrames+MaxKeptFrames || whole.end == EndKnown {
					t.Fatalf("received: %v; completed to %d frames, ended by %v", ok, len(whole.frames), whole.end)
				}
				if len(changes) < 8 && (!slices.Equal(whole.frames, want.User) || whole.end != want.End) {
					t.Fatalf("completed to %d frames, ended by %v; a walk has %d, %v", len(whole.frames), whole.end,
						len(want.User), want.End)
				}
			}
			if !compare {
				return
			}
			// A walk that stops early has begun like any other.
			if len(user) > len(want.User) || !slices.Equal(user, want.User[:len(user)]) || got.End != EndKnown &&
				got.End != want.End {
				t.Fatalf("%v, ended by %v; a walk has %v, %v", user, got.End, want.User, want.End)
			}
			if got.Flags&^(SampleDepths|SampleLink|SampleDrawn|SampleShared|SampleJavaFrames) != want.Flags&^SampleJavaFrames {
				t.Fatalf("flags %#x, of a walk %#x", got.Flags, want.Flags)
			}
		}
		req := tg.thread.addTo(tg.request())
		take(req, true)
		take(req, true)
		spoilt := req
		undo := tg.spoil(&spoilt, changes)
		defer undo()
		take(spoilt, false)
		take(spoilt, onlyStack(changes)) // Each has cached what it has seen of the code that changed.
		undo()
		take(req, onlyStack(changes))
		take(req, onlyStack(changes))
	})
}

// onlyStack says whether changes, as target.spoil takes them, are of registers and of the stack.
func onlyStack(changes []byte) bool {
	for ; len(changes) >= 8; changes = changes[8:] {
		if changes[0]%4 != 3 {
			return false
		}
	}
	return true
}
