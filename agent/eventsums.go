package agent

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// eventSums are what a row of events adds up to.
type eventSums struct {
	events uint64                          // observed
	values [profile.MaxEventValues]float64 // as EventKind.Values says
}

func (s *eventSums) add(o *eventSums) {
	s.events += o.events
	for i, v := range o.values {
		s.values[i] += v
	}
}

// times multiplies the values.
func (s *eventSums) times(factor float64) eventSums {
	out := *s
	for i := range out.values {
		out.values[i] *= factor
	}
	return out
}

// allocation is an observed allocation of an object of size bytes that was drawn from bytes of objects, each as likely as it
// is large, and was told of for every of its kind. So it stands for as many objects of its size as make those bytes.
//
// A thread of HotSpot allocates in a buffer of its own and is not seen before it meets the buffer's end, with an object that
// does not fit into what is left. If that is little the thread gets a new buffer, otherwise the object is allocated outside
// and the buffer is kept (MemAllocator::allocate_inside_tlab_slow in src/hotspot/share/gc/shared/memAllocator.cpp). The kernel
// side tells of the first object at each end, whichever becomes of it. To let only new buffers count, as is often done,
// misses objects that are larger than what is given up of a buffer, as they rarely make for a new one; and to let every new
// buffer count those that come first after a collection, which are mostly small.
func allocation(size, bytes uint64, every uint32) eventSums {
	s := eventSums{events: 1}
	if size == 0 {
		return s
	}
	n := float64(every)
	s.values[0], s.values[1] = n*float64(bytes)/float64(size), n*float64(bytes)
	return s
}

func overflowed(n uint64) string {
	return fmt.Sprintf("%d events are without labels: there was no room for more kinds of them", n)
}

// unclearWaits says that waits may be counted as what they are not.
func unclearWaits(sums *eventSums) string {
	all := time.Duration(sums.values[profile.Locks.Main()])
	return fmt.Sprintf("%d waits of java.util.concurrent, %v together, count as waits for work, as it is not known what their threads were parked for: "+
		"some of them may have waited for locks", sums.events, all.Round(max(all/100, time.Microsecond)))
}
