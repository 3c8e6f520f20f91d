//go:build linux && amd64

package bpf

import "testing"

// A thawing is libjvm's function thaw, called for a virtual thread that is to go on: it stands
// below the room that was made for the frames that will be copied.
type thawing struct {
	*fakeStack
	m    *mounted
	th   *fakeThread
	room uint64 // sp of the caller
}

// newThawing has all of the virtual thread's frames in its newest chunk. thaw has begun, and calls
// another function.
func newThawing(t *testing.T, l *fakeLoom) *thawing {
	m := l.onCarrier(t)
	m.yield(func(s *fakeStack) {
		s.compiled(l.typical(48), 0x40).compiled(l.typical(64), 0x48).compiled(l.typical(48), 0x50)
	})
	s := *m.fakeStack
	s.sp -= 800
	s.pc, s.bp = l.continuation.begin+0x20, poison
	th := l.newThread(m.mem.end())
	c := &thawing{&s, m, th, s.sp}
	s.native(libjvm)
	s.sp -= 600
	c.wrapper(20, m.entry)
	c.thaw(30, l.sp(m))
	s.native(libjvm + 0x400)
	return c
}

// sp is where the frames of the newest chunk begin.
func (l *fakeLoom) sp(m *mounted) uint64 {
	return m.chunk + uint64(l.ChunkStack) + 8*uint64(l.heap.int(m.chunk+uint64(l.ChunkSp)))
}

// wrapper puts a ContinuationWrapper into thaw's frame, that many words below the caller.
func (c *thawing) wrapper(words, entry uint64) {
	c.put(words, c.th.javaThread, entry, c.m.continuation, c.m.chunk)
}

// thaw puts a Thaw there, which found that the frames of the chunk begin at top.
func (c *thawing) thaw(words, top uint64) {
	c.put(words, c.th.javaThread, c.room-160, 0, 1, top, 0)
}

func (c *thawing) put(words uint64, values ...uint64) {
	for i, v := range values {
		c.mem.put64(c.room-8*words+8*uint64(i), v)
	}
}

// skip takes the innermost frame off the chunk, as thaw does before it copies it.
func (c *thawing) skip(l *fakeLoom, words uint32) {
	at := c.m.chunk + uint64(l.ChunkSp)
	l.heap.put32(at, l.heap.int(at)+words)
	l.heap.put64(c.m.chunk+uint64(l.ChunkPc), l.heap.word(l.sp(c.m)-8))
}

var thawingStacks = []struct {
	name string
	end  WalkEnd
	do   func(*fakeLoom, *thawing)
}{
	{"all is on the heap", EndRoot, func(*fakeLoom, *thawing) {}},
	{"an older one has left its words", EndRoot, func(l *fakeLoom, c *thawing) { c.thaw(60, l.sp(c.m)-64) }},
	{"a frame is off the heap", EndThaw, func(l *fakeLoom, c *thawing) { c.skip(l, 48/8) }},
	{"a frame is off the heap, and an older one has left its words", EndThaw, func(l *fakeLoom, c *thawing) {
		c.skip(l, 48/8)
		c.thaw(60, l.sp(c.m))
	}},
	{"all frames are off the heap", EndThaw, func(l *fakeLoom, c *thawing) {
		l.heap.put32(c.m.chunk+uint64(l.ChunkSp), l.heap.int(c.m.chunk+uint64(l.ChunkSize)))
	}},
	{"it has not looked at the chunk", EndThaw, func(l *fakeLoom, c *thawing) { c.thaw(30, 0) }},
	{"nobody knows the entry", EndThaw, func(l *fakeLoom, c *thawing) { c.wrapper(20, 0) }},
	{"the entry is below", EndThaw, func(l *fakeLoom, c *thawing) { c.wrapper(20, c.room-8*24) }},
	{"the entry is on no stack", EndThaw, func(l *fakeLoom, c *thawing) {
		l.meta.put64(c.th.javaThread+uint64(l.ThreadStackBase), c.m.entry)
	}},
	{"another thread's", EndThaw, func(l *fakeLoom, c *thawing) { c.put(30, c.th.javaThread+8) }},
	{"pc and sp are of two frames", EndThaw, func(l *fakeLoom, c *thawing) {
		l.heap.put64(c.m.chunk+uint64(l.ChunkPc), l.enter.begin)
	}},
	{"nothing is known of chunks", EndThaw, func(l *fakeLoom, _ *thawing) { l.Flags &^= HotspotChunks }},
}

// While the VM has not begun to copy frames back, they are where they were.
func TestKernelThawing(t *testing.T) {
	forLooms(t, func(t *testing.T, w *walker, l *fakeLoom) {
		before := l.HotspotProcess
		for _, c := range thawingStacks {
			t.Run(c.name, func(t *testing.T) {
				l.HotspotProcess = before
				s := newThawing(t, l)
				c.do(l, s)
				w.update(t, l.fakeVM)
				if c.end == EndThaw {
					s.innermost(2)
				}
				s.check(t, w, s.th.addTo(s.request()), c.end)
			})
		}
	})
}
