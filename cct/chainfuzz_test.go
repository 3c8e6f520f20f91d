package cct_test

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/cct"
)

type (
	byteFrame = cct.Activation[byte, byte]
	byteStack = []byteFrame
	byteLink  = cct.Link[byte, byte]
)

// A chainModel stores what a chain has learned as plain lists, and finds contexts in them by
// comparison.
type chainModel struct {
	contexts []byteStack // each with those of its callers, the leaf without its site
	calls    []byteLink
	marker   func(byte) bool // nil for none
}

func (m *chainModel) walk(stack byteStack) {
	for i := range stack {
		context := slices.Clone(stack[i:])
		context[0].Site = 0
		m.contexts = addStack(m.contexts, context)
	}
}

func addStack(stacks []byteStack, s byteStack) []byteStack {
	if slices.ContainsFunc(stacks, func(other byteStack) bool { return slices.Equal(s, other) }) {
		return stacks
	}
	return append(stacks, s)
}

func sameSpot(a, b byteFrame) bool { return a.Method == b.Method && a.Depth == b.Depth && a.Depth != 0 }

// chained reports whether links without walks lead to a spot.
func (m *chainModel) chained(to byteFrame) bool {
	return slices.ContainsFunc(m.calls, func(l byteLink) bool {
		return sameSpot(l.Leaf, to) && !slices.ContainsFunc(m.contexts, func(c byteStack) bool {
			return len(c) > 1 && sameSpot(c[0], l.Leaf) && c[1] == l.Caller
		})
	})
}

// walked reports whether a walk went through a spot.
func (m *chainModel) walked(at byteFrame) bool {
	return slices.ContainsFunc(m.contexts, func(c byteStack) bool { return sameSpot(c[0], at) })
}

// place returns the expected basis of a link's contexts and, unless links must be chained for them,
// the stacks.
func (m *chainModel) place(l byteLink) (basis cct.Basis, stacks []byteStack, chained bool) {
	var found []byteStack // the contexts whose callers the stacks have
	collect := func(head byteStack, match func(byteStack) bool, skip int) bool {
		for _, c := range m.contexts {
			if len(c) < skip || !match(c) {
				continue
			}
			context := slices.Clone(c[skip-1:])
			context[0].Site = 0
			n := len(found)
			if found = addStack(found, context); len(found) > n {
				stacks = append(stacks, slices.Concat(head, c[skip:]))
			}
		}
		return len(stacks) > 0
	}
	leaf, caller := byteStack{l.Leaf}, byteStack{l.Leaf, l.Caller}
	if l.Caller == (byteFrame{}) {
		switch {
		case m.chained(l.Leaf):
			return cct.ByLeaf, nil, true
		case collect(leaf, func(c byteStack) bool { return sameSpot(c[0], l.Leaf) }, 1):
			return cct.ByLeaf, stacks, false
		case l.Leaf.Depth == 0:
			return cct.ByNothing, nil, false
		}
		collect(leaf, func(c byteStack) bool {
			return len(c) > 1 && c[0].Method == l.Leaf.Method && c[0].Depth != 0 && c[1].Depth == l.Leaf.Depth
		}, 1)
		collect(leaf, func(c byteStack) bool {
			return c[1].Method == l.Leaf.Method && c[1].Depth != 0 && c[0].Depth == l.Leaf.Depth
		}, 2)
		if len(stacks) > 0 {
			return cct.ByNeighbour, stacks, false
		}
		if slices.ContainsFunc(m.calls, func(call byteLink) bool {
			return call.Leaf.Method == l.Leaf.Method && call.Caller.Depth == l.Leaf.Depth ||
				call.Caller.Method == l.Leaf.Method && call.Leaf.Depth == l.Leaf.Depth &&
					(m.chained(call.Caller) || m.walked(call.Caller))
		}) {
			return cct.ByNeighbour, nil, true
		}
		return cct.ByNothing, nil, false
	}
	switch {
	case collect(caller, func(c byteStack) bool {
		return sameSpot(c[0], l.Leaf) && c[1] == l.Caller && l.Caller.Depth != 0
	}, 2):
		return cct.ByLink, stacks, false
	case m.chained(l.Caller):
		return cct.ByPairs, nil, true
	case collect(caller, func(c byteStack) bool { return sameSpot(c[0], l.Caller) }, 1):
		return cct.ByCaller, stacks, false
	case collect(caller, func(c byteStack) bool {
		return sameSpot(c[0], l.Leaf) && c[1].Method == l.Caller.Method && c[1].Site == l.Caller.Site
	}, 2):
		return cct.BySite, stacks, false
	}
	return cct.ByNothing, nil, false
}

// cut reports whether the outermost frame beyond the first known ones is a marker, and returns the
// callers before it.
func (m *chainModel) cut(s byteStack, known int) (callers byteStack, cut bool) {
	callers = s[known:]
	if m.marker == nil || !m.marker(s[len(s)-1].Method) {
		return callers, false
	}
	if len(callers) > 0 {
		callers = callers[:len(callers)-1]
	}
	return callers, true
}

// absorb removes the stacks that another one contains.
func (m *chainModel) absorb(stacks []byteStack, known int) (kept []byteStack) {
	for i, s := range stacks {
		callers, cut := m.cut(s, known)
		absorbed := false
		for j, other := range stacks {
			beside, alsoCut := m.cut(other, known)
			absorbed = absorbed || cut && i != j && len(callers) <= len(beside) &&
				slices.Equal(callers, beside[:len(callers)]) &&
				(!alsoCut || len(callers) < len(beside) || j < i)
		}
		if !absorbed {
			kept = append(kept, s)
		}
	}
	return kept
}

// agreement compares whole stacks; the first known frames are those of the link.
func (m *chainModel) agreement(stacks []byteStack, known int, same func(a, b byteFrame) bool) cct.Agreement {
	first, cut := m.cut(stacks[0], known)
	agreed := cct.Agreement{Levels: len(first), Whole: !cut}
	for _, s := range stacks[1:] {
		callers, cut := m.cut(s, known)
		n := 0
		for n < min(len(first), len(callers)) && same(first[n], callers[n]) {
			n++
		}
		agreed.Levels = min(agreed.Levels, n)
		agreed.Whole = agreed.Whole && !cut && n == len(first) && n == len(callers)
	}
	agreed.Levels += known - 1
	return agreed
}

const (
	fuzzWalk  = 0x40 // or 0; 3 bits of weight, 3 of the number of frames that follow
	fuzzCall  = 0x80 // 6 bits of weight; leaf and caller follow
	fuzzPlace = 0xc0 // leaf and caller follow
)

// FuzzChain teaches a chain from bytes and compares each placement with lists. A frame is a byte:
// two bits of method, one of site, three of depth, so that depths are often equal, unknown or in
// the wrong order. The first byte is the limit and whether method 3 is a marker.
func FuzzChain(f *testing.F) {
	f.Add([]byte{0, fuzzWalk | 3, 0x38, 0x10, 0x09, fuzzCall, 0x20, 0x18, fuzzPlace, 0x38, 0x10, fuzzPlace, 0x38, 0})
	f.Add([]byte{4, fuzzWalk | 4, 0x3a, 0x33, 0x29, 0x0b, fuzzWalk | 4, 0x3a, 0x33, 0x21, 0x08, fuzzPlace, 0x3a, 0x33})
	f.Add([]byte{0x80, fuzzWalk | 3, 0x18, 0x11, 0x03, fuzzWalk | 3, 0x18, 0x11, 0x08, fuzzPlace, 0x18, 0x11})
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) <= 400 {
			checkChain(t, data, nil)
		}
	})
}

// The same with random bytes, which gets deeper than a fuzzer does in seconds.
func TestChainRandom(t *testing.T) {
	placed := make(map[cct.Basis]int)
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 9))
		data := make([]byte, 300)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		data[0] &= 0x80 | byte(r.Uint32()&r.Uint32()) // often not limited
		checkChain(t, data, placed)
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	for basis := cct.ByNothing; basis <= cct.ByNeighbour; basis++ {
		if placed[basis] < 100 && basis != cct.ByTooMany {
			t.Errorf("%d placements by %v are too few", placed[basis], basis)
		}
	}
}

// checkChain executes data, and counts the bases of placements unless placed is nil.
func checkChain(t *testing.T, data []byte, placed map[cct.Basis]int) {
	t.Helper()
	next := func() (b byte) {
		if len(data) > 0 {
			b, data = data[0], data[1:]
		}
		return b
	}
	frame := func() byteFrame {
		b := next()
		return byteFrame{Method: b & 3, Site: b >> 2 & 1, Depth: uint32(b >> 3 & 7)}
	}
	link := func() byteLink {
		l := byteLink{Leaf: frame(), Caller: frame()}
		l.Leaf.Site = 0
		return l
	}
	var c cct.Chain[byte, byte]
	var m chainModel
	first := next()
	if first&0x80 != 0 {
		m.marker = func(method byte) bool { return method == 3 }
	}
	c.Marker = m.marker
	if c.Limit = int(first & 0x3f); c.Limit > 0 {
		c.LinkLimit = c.Limit
	}
	for len(data) > 0 {
		op, generation := next(), c.Generation()
		var stack byteStack
		var calls []byteLink
		learned, want := false, false
		switch op & 0xc0 {
		case fuzzPlace:
			l := link()
			basis := checkPlacement(t, &c, &m, l)
			if placed != nil {
				placed[basis]++
			}
		case fuzzCall:
			calls = []byteLink{link()}
			learned, want = c.Call(calls[0], uint64(op&0x3f)), calls[0].Leaf.Depth != 0 && calls[0].Caller.Depth != 0
		default:
			for range op & 7 {
				stack = append(stack, frame())
			}
			learned, want = c.Walk(stack, uint64(op>>3&7)), len(stack) > 0 && (c.Limit == 0 || len(stack) <= c.Limit)
		}
		if learned != want {
			t.Fatalf("learned = %v of %v, %v with limit %d", learned, stack, calls, c.Limit)
		}
		if c.Generation() != generation {
			m.contexts, m.calls = nil, nil
		}
		if learned {
			m.walk(stack)
			m.calls = append(m.calls, calls...)
		}
		stats := c.Stats()
		if stats.Contexts != len(m.contexts) || stats.Shared > stats.Contexts || c.Limit > 0 &&
			max(stats.Contexts, stats.Links) > c.Limit {
			t.Fatalf("%+v of %d contexts, limit %d", stats, len(m.contexts), c.Limit)
		}
	}
}

// checkPlacement compares the basis and the contexts of a link's placement with the model, and
// returns the basis.
func checkPlacement(t *testing.T, c *cct.Chain[byte, byte], m *chainModel, l byteLink) cct.Basis {
	t.Helper()
	p := c.Place(l)
	var stacks []byteStack
	var sum float64
	for i, to := range p.Candidates {
		sum += to.Share
		if to.Share < 0 || to.Share > 1 || i > 0 && i+1 < cct.MaxCandidates && to.Share > p.Candidates[i-1].Share {
			t.Fatalf("Place(%v): share %v of %+v", l, to.Share, p)
		}
		stacks = append(stacks, c.Stack(nil, l, to))
	}
	basis, want, chained := m.place(l)
	if p.Basis == cct.ByTooMany {
		return p.Basis // chains of links may branch at each level
	}
	if p.Basis != basis {
		t.Fatalf("Place(%v) rests on %v, want %v", l, p.Basis, basis)
	}
	if len(p.Candidates) > cct.MaxCandidates || (len(p.Candidates) > 0) != (p.Fit != cct.Unplaced) ||
		(p.Fit == cct.Unplaced) != (basis == cct.ByNothing) || len(p.Candidates) > 0 && math.Abs(sum-1) > 1e-9 {
		t.Fatalf("Place(%v) = %+v", l, p)
	}
	if fitted := basis >= cct.BySite; fitted != (p.Fit == cct.Fitted) || !fitted && p.Fit != cct.Unplaced &&
		(p.Fit == cct.Unique) != (len(stacks) == 1) {
		t.Fatalf("Place(%v) by %v is %v", l, basis, p.Fit)
	}
	if chained || len(stacks) == 0 {
		return p.Basis
	}
	known := 2
	if l.Caller == (byteFrame{}) {
		known = 1
	}
	want = m.absorb(want, known)
	sameMethod := func(a, b byteFrame) bool { return a.Method == b.Method }
	sameCall := func(a, b byteFrame) bool { return a.Method == b.Method && a.Site == b.Site }
	if callers, methods := m.agreement(want, known, sameCall), m.agreement(want, known,
		sameMethod); p.Callers != callers || p.Methods != methods {
		t.Fatalf("Place(%v): Callers, Methods = %v, %v, want %v, %v of %v", l, p.Callers, p.Methods, callers, methods,
			want)
	}
	if len(want) > cct.MaxCandidates {
		return p.Basis
	}
	if len(stacks) != len(want) {
		t.Fatalf("Place(%v): %d stacks %v\nwant %d %v", l, len(stacks), stacks, len(want), want)
	}
	for _, s := range stacks {
		// Of walks that are equal up to different markers, one remains.
		callers, cut := m.cut(s, known)
		if !slices.ContainsFunc(want, func(w byteStack) bool {
			other, alsoCut := m.cut(w, known)
			return slices.Equal(s, w) || cut && alsoCut && slices.Equal(callers, other)
		}) {
			t.Fatalf("Place(%v): %v is none of %v", l, s, want)
		}
	}
	return p.Basis
}
