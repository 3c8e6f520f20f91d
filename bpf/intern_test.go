//go:build linux && amd64

package bpf

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cilium/ebpf"
)

// A knownFrames is what records that went out have told: frames by tag, innermost first, and names
// of threads.
type knownFrames struct {
	byTag map[uint64][]Frame
	names map[uint32][]byte
	epoch map[uint64]uint32 // by tag
}

// interned has the kernel side write a record of a stack, and returns the sample that it is
// together with what went out before, and how many of the user's frames the record has.
func (k *knownFrames) interned(t *testing.T, w *walker, r WalkTestRequest) (s Sample, own int) {
	t.Helper()
	ret, out := w.run(t, w.Intern, r)
	if ret != 0 {
		t.Fatalf("intern returned %d", ret)
	}
	raw, err := w.Samples.LookupBytes(uint32(0))
	if err != nil {
		t.Fatal(err)
	}
	s, own = k.complete(t, raw[:out.Len], r.Lost == 0)
	if s.Pid != r.Pid || s.Tid != r.Tid || s.ClassEpoch != r.Words || binary.NativeEndian.Uint64(s.Comm) != r.Begin {
		t.Errorf("of thread %d of %d in epoch %d named %q, want %d of %d in %d named %c", s.Tid, s.Pid, s.ClassEpoch,
			s.Comm, r.Tid, r.Pid, r.Words, rune(r.Begin))
	}
	return s, own
}

// complete returns the sample of a record. Unless that did not go out, others may refer to it.
func (k *knownFrames) complete(t *testing.T, raw []byte, out bool) (s Sample, own int) {
	t.Helper()
	var tag uint64
	var known []Frame
	switch Kind(raw) {
	case EventFullSample:
		if err := DecodeSample(raw, &s); err != nil {
			t.Fatal(err)
		}
		own, tag = len(s.User), s.Root
		if out {
			k.byTag[s.Root], k.epoch[s.Root] = nil, s.ClassEpoch
			k.names[s.Tid] = slices.Clone(s.Comm)
		}
	case EventShortSample:
		var short ShortSample
		if err := DecodeShort(raw, &short); err != nil {
			t.Fatal(err)
		}
		frames, ok := k.byTag[short.Base]
		if !ok {
			t.Fatalf("refers to frames that no record has: %#x", short.Base)
		}
		name, ok := k.names[short.Header.Tid]
		if !ok {
			t.Fatalf("refers to the name of thread %d, which no record has", short.Header.Tid)
		}
		own, tag, known = len(short.User), short.Base, frames
		s = Sample{
			Header: &short.Header, End: WalkEnd(short.End), Flags: short.Flags, User: slices.Concat(short.User, known),
			Kernel:     short.Kernel,
			ClassEpoch: k.epoch[short.Base], Comm: name,
		}
	default:
		t.Fatalf("record of kind %d", Kind(raw))
	}
	if out {
		k.learn(tag, len(known), s)
	}
	return s, own
}

func (k *knownFrames) learn(tag uint64, known int, s Sample) {
	epoch := k.epoch[tag]
	for callers := len(s.User) - 1; known < callers; {
		var own [SuffixStep]Frame
		for i := 0; i < len(own) && known < callers; i++ {
			own[i] = s.User[callers-known]
			known++
		}
		tag = SuffixTag(tag, own)
		k.byTag[tag], k.epoch[tag] = slices.Clone(s.User[len(s.User)-known:]), epoch
	}
}

// internedStack is a stack of native functions, outermost first.
func internedStack(t testing.TB, functions ...uint64) *fakeStack {
	vm := &fakeVM{}
	s := vm.newStack(t, 4096+64*len(functions))
	s.sp, s.bp, s.pc, s.frames = s.mem.end()-1024, 0, libc, []placedFrame{{native(libc), 0}}
	for _, f := range functions {
		s.native(libjvm + f<<4)
	}
	return s
}

func newKnownFrames(t *testing.T, seed *ebpf.Map) *knownFrames {
	t.Helper()
	if err := seed.Put(uint32(0), rand.Uint64()|1); err != nil {
		t.Fatal(err)
	}
	return &knownFrames{byTag: map[uint64][]Frame{}, names: map[uint32][]byte{}, epoch: map[uint64]uint32{}}
}

func checkInterned(t *testing.T, s *fakeStack, got Sample) {
	t.Helper()
	end := EndRoot
	if len(s.frames) == 1 {
		end = EndPointer
	}
	compare(t, got, s.want(), end)
}

// Of a stack that was sent, only what is new is sent again; nothing is taken to be known of a
// record that was lost, of another process, or of another epoch.
func TestKernelInterned(t *testing.T) {
	w := newWalker(t)
	k := newKnownFrames(t, w.SuffixSeed)
	usual := func(r *WalkTestRequest) { r.Pid, r.Tid, r.Begin = 3_000_000, 3_000_001, 'a' }
	with := func(change func(*WalkTestRequest)) func(*WalkTestRequest) {
		return func(r *WalkTestRequest) { usual(r); change(r) }
	}
	stack := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10} // and the root: 11 frames
	leaf := slices.Concat(stack[:9], []uint64{20})
	called := slices.Concat(stack, []uint64{30})
	other := slices.Concat(stack[:6], []uint64{31, 32, 33, 34}) // shares 7, of which 4 can be referred to
	for _, c := range []struct {
		name   string
		stack  []uint64
		own    int
		change func(*WalkTestRequest)
	}{
		{"new", stack, 11, usual},
		{"again", stack, 1, usual},
		{"another leaf", leaf, 1, usual},
		{"deeper", called, 4, usual}, // 8 of the 12 frames are known
		{"deeper again", called, 1, usual},
		{"another caller, lost", other, 7, with(func(r *WalkTestRequest) { r.Lost = 1 })},
		{"which was lost", other, 7, usual},
		{"and arrived", other, 1, usual},
		{"another thread", stack, 11, with(func(r *WalkTestRequest) { r.Tid++ })},
		{"another thread again", stack, 1, with(func(r *WalkTestRequest) { r.Tid++ })},
		{"another name, lost", stack, 11, with(func(r *WalkTestRequest) { r.Begin, r.Lost = 'b', 1 })},
		{"another name", stack, 11, with(func(r *WalkTestRequest) { r.Begin = 'b' })},
		{"another name again", stack, 1, with(func(r *WalkTestRequest) { r.Begin = 'b' })},
		{"the name before", stack, 11, usual},
		{"another epoch", stack, 11, with(func(r *WalkTestRequest) { r.Words = 1 })},
		{"another process", stack, 11, with(func(r *WalkTestRequest) { r.Pid++ })},
		{"another program", stack, 11, with(func(r *WalkTestRequest) { r.Exec++; r.Tid++ })},
		{"one frame", nil, 1, usual},
	} {
		s := internedStack(t, c.stack...)
		r := s.request()
		c.change(&r)
		got, own := k.interned(t, w, r)
		checkInterned(t, s, got)
		if own != c.own {
			t.Errorf("%s: %d frames in the record, want %d", c.name, own, c.own)
		}
	}
	k = newKnownFrames(t, w.SuffixSeed)
	r := internedStack(t, stack...).request()
	usual(&r)
	if _, own := k.interned(t, w, r); own != 11 {
		t.Errorf("after the seed has changed the record has %d frames", own)
	}
}

// Whatever is lost, and whichever tags others displace: all records refer to frames that went out,
// and are whole with them.
func TestKernelInternedRandomly(t *testing.T) {
	w := newWalker(t)
	k := newKnownFrames(t, w.SuffixSeed)
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 1000
	if testing.Short() {
		rounds = 200
	}
	stack := []uint64{1}
	var short int
	for range rounds {
		stack = stack[:max(len(stack)-random.IntN(12), 1)]
		for range random.IntN(12) {
			stack = append(stack, random.Uint64N(3))
		}
		if random.IntN(50) == 0 {
			for range random.IntN(900) {
				stack = append(stack, random.Uint64N(2))
			}
		}
		stack = stack[:min(len(stack), 1000)]
		s := internedStack(t, stack...)
		r := s.request()
		r.Pid, r.Tid = 4_000_000, 4_000_000+random.Uint32N(2)
		r.Begin = 'a' + random.Uint64N(50)/49
		r.Lost = random.Uint32N(4) / 3
		if random.IntN(20) == 0 {
			slot := random.Uint32N(w.KnownSuffixes.MaxEntries())
			if err := w.KnownSuffixes.Put(slot, [2]uint64{}); err != nil {
				t.Fatal(err)
			}
		}
		got, own := k.interned(t, w, r)
		checkInterned(t, s, got)
		if own < len(got.User) {
			short++
		}
	}
	if short < rounds/2 {
		t.Errorf("%d of %d records refer to others", short, rounds)
	}
}

// A sample of real ticks refers to no record that was lost. Nobody reads the ring until it is full,
// and again after that.
func TestKernelInternedLoss(t *testing.T) {
	o := load(t, Options{RingBytes: uint32(os.Getpagesize())})
	k := newKnownFrames(t, o.SuffixSeed)
	t.Cleanup(func() { _ = o.SuffixSeed.Put(uint32(0), uint64(0)) }) // others use the objects
	counts := func() Counts {
		c, err := o.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var short int
	for round := range 4 {
		before := counts()
		stop := tickMe(t, o.Tick, 1000)
		spin(t, func() bool { return counts()[SamplesDroppedRingFull] > before[SamplesDroppedRingFull]+20 })
		stop()
		c := counts()
		if attempted, delivered := c[SamplesAttempted], c[SamplesDelivered]; attempted != delivered+
			c[SamplesDroppedRingFull]+c[SamplesDroppedNoScratch] {
			t.Errorf("round %d: attempted %d, delivered %d, dropped %d", round, attempted, delivered,
				c[SamplesDroppedRingFull])
		}
		var drained, bytes uint64
		drain(t, o, func(raw []byte) {
			drained++
			bytes += uint64(len(raw))
			s, _ := k.complete(t, raw, true)
			if Kind(raw) == EventShortSample {
				short++
			}
			if s.Pid != uint32(os.Getpid()) || s.Comm[0] == 0 || s.Time == 0 {
				t.Errorf("%+v", s)
			}
		})
		if want := c[SamplesDelivered] - before[SamplesDelivered]; drained != want {
			t.Errorf("round %d: %d records in the ring, %d delivered", round, drained, want)
		}
		if want := c[RingBytes] - before[RingBytes]; bytes != want {
			t.Errorf("round %d: %d bytes in the ring, %d counted", round, bytes, want)
		}
	}
	if short == 0 {
		t.Error("no sample refers to another one")
	}
}
