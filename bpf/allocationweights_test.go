//go:build linux && amd64

package bpf

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
)

// A drawnObject is one of the sizes that a simulated thread allocates.
type drawnObject struct {
	size   uint64
	weight int // how many of a thread's objects have it, in proportion
}

// A simulatedThread allocates as threads of HotSpot do (MemAllocator::allocate_inside_tlab_slow in
// src/hotspot/share/gc/shared/memAllocator.cpp, ThreadLocalAllocBuffer::compute_size in
// threadLocalAllocBuffer.inline.hpp), and hits the probes where those would be hit.
type simulatedThread struct {
	*fakeAllocator
	random  *rand.Rand
	objects []drawnObject
	total   int    // sum of the weights
	desired uint64 // bytes of a buffer, without the object that it is begun for
	end     uint64 // bytes of the buffer
	free    uint64 // bytes of the buffer that are free
	limit   uint64 // what is left of a buffer that is given up at most
	// refills is what is learned from new buffers alone, as is often done: bytes by size of the
	// object that each was got for.
	refills map[uint64]float64
}

const wasteIncrement = 32 // bytes: TLABWasteIncrement is 4 words

// allocate allocates one object and returns its size.
func (s *simulatedThread) allocate() uint64 {
	n := s.random.IntN(s.total)
	i := 0
	for n >= s.objects[i].weight {
		n -= s.objects[i].weight
		i++
	}
	size := s.objects[i].size
	switch {
	case size <= s.free:
		s.free -= size
	case s.free > s.limit || size > s.desired*2:
		s.limit += wasteIncrement
		s.heap.mem.put64(s.thread+uint64(s.heap.TlabEnd), s.heap.mem.word(s.thread+uint64(s.heap.TlabStart))+s.end)
		s.beside.hit(arguments{s.klass, s.heap.mem.base, size, s.thread})
	default:
		s.end = s.desired + size
		s.free, s.limit = s.desired, s.desired/64 // TLABRefillWasteFraction
		s.refills[size] += float64(s.end)
		s.inBuffer.hit(arguments{s.klass, s.heap.mem.base, s.end, size, s.thread})
	}
	return size
}

// collect takes the buffer away.
func (s *simulatedThread) collect(t *testing.T, e *Epochs) {
	t.Helper()
	e.Collections++
	s.free, s.limit, s.end = 0, 0, 0
	if err := s.o.Epochs.Put(uint32(proberSlot), e); err != nil {
		t.Fatal(err)
	}
}

// What is told of allocations adds up to what was allocated, of every size: bytes and objects. The
// errors are those of chance.
func TestProbeAllocationWeights(t *testing.T) {
	mixed := []drawnObject{
		{16, 4000}, {24, 3500}, {64, 1500}, {120, 590}, {272, 300}, {4016, 80}, {8208, 20}, {32784, 9}, {524304, 1},
	}
	a := newFakeAllocator(t)
	for _, test := range []struct {
		name    string
		objects []drawnObject
		desired uint64
		buffers int // mean number of buffers for each that a collection takes away; 0: no collections
		every   uint32
		events  int
	}{
		{"small and middling", mixed[:7], 1 << 18, 0, 1, 8_000},
		{"all sizes", mixed, 1 << 18, 0, 1, 12_000},
		{"small buffers", mixed[:6], 1 << 15, 0, 1, 15_000},
		{"collections", mixed[:7], 1 << 18, 5, 1, 8_000},
		{"one in 3", mixed[:6], 1 << 15, 0, 3, 6_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			pinned(t)
			a.forget(t)
			a.rate(t, a.inBuffer, test.every)
			a.rate(t, a.beside, test.every)
			s := &simulatedThread{fakeAllocator: a, random: rand.New(rand.NewPCG(1, 2)), objects: test.objects,
				desired: test.desired, refills: map[uint64]float64{}}
			for _, o := range test.objects {
				s.total += o.weight
			}
			type sums struct{ objects, bytes, estimated, squares float64 }
			bySize, events, all := map[uint64]*sums{}, 0, 0.0
			for _, o := range test.objects {
				bySize[o.size] = &sums{}
			}
			gather := func() {
				for _, o := range a.observations(t) {
					weight := float64(o.seen.Values[1]) * float64(o.seen.Every)
					n := bySize[o.seen.Values[0]]
					n.estimated += weight
					n.squares += weight * weight
					all += weight
					events++
				}
			}
			var e Epochs
			until := uint64(0)
			allocated := uint64(0)
			for i := 0; events < test.events; i++ {
				size := s.allocate()
				bySize[size].objects++
				bySize[size].bytes += float64(size)
				allocated += size
				if test.buffers > 0 && allocated >= until {
					s.collect(t, &e)
					until = allocated + uint64(s.random.ExpFloat64()*float64(test.buffers)*float64(test.desired))
				}
				if i%200_000 == 0 { // some hundreds of events, and the ring has room for thousands
					gather()
				}
			}
			gather()
			if off := math.Abs(all/float64(allocated) - 1); off > 0.05 {
				t.Errorf("%d events stand for %.4g of %.4g bytes", events, all, float64(allocated))
			}
			refills := 0.0
			for _, o := range test.objects {
				n := bySize[o.size]
				// Weights differ little, so what is estimated of a size varies as the number of its
				// events does: of the sum of all, a share p has the variance p(1-p).
				p := n.bytes / float64(allocated)
				sigma := math.Sqrt(n.squares * (1 - p))
				off := (n.estimated - n.bytes*all/float64(allocated)) / sigma
				said := fmt.Sprintf("size %d: %.4g of %.4g bytes, %.4g of %.4g objects, %.1f standard errors off",
					o.size, n.estimated, n.bytes, n.estimated/float64(o.size), n.objects, off)
				t.Log(said)
				if math.Abs(off) > 4 || n.squares == 0 {
					t.Error(said)
				}
				refills += s.refills[o.size]
			}
			// Objects that are larger than what is given up of a buffer hardly ever are what a new
			// one is got for.
			const large = 32784
			n := bySize[large]
			if n == nil {
				return
			}
			if share, truth := s.refills[large]/refills, n.bytes/float64(allocated); share > truth/2 {
				t.Errorf("by new buffers alone objects of %d bytes are %.1f%% of all bytes, %.1f%% in truth: this "+
					"test can tell nothing", large, 100*share, 100*truth)
			}
		})
	}
}
