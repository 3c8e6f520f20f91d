package fold

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// EventSums are what a row of events adds up to.
type EventSums struct {
	Events uint64                          // observed
	Values [profile.MaxEventValues]float64 // as EventKind.Values says
}

// Add adds other sums.
func (s *EventSums) Add(o *EventSums) {
	s.Events += o.Events
	for i, v := range o.Values {
		s.Values[i] += v
	}
}

// times multiplies the values.
func (s *EventSums) times(factor float64) EventSums {
	out := *s
	for i := range out.Values {
		out.Values[i] *= factor
	}
	return out
}

// AllocationSums are the sums of an observed allocation of an object of size bytes that was drawn from bytes of objects, each as likely
// as it is large, and recorded for every of its kind. So it stands for as many objects of its size as make those bytes.
//
// A thread of HotSpot allocates in a buffer of its own and is not seen before it meets the buffer's end, with an object that
// does not fit into what is left. If that is little the thread gets a new buffer, otherwise the object is allocated outside
// and the buffer is kept (MemAllocator::allocate_inside_tlab_slow in src/hotspot/share/gc/shared/memAllocator.cpp). The kernel
// side records the first object at each end, whichever becomes of it. To let only new buffers count, as is often done,
// misses objects that are larger than what is given up of a buffer, as they rarely make for a new one; and to let every new
// buffer count those that come first after a collection, which are mostly small.
func AllocationSums(size, bytes uint64, every uint32) EventSums {
	s := EventSums{Events: 1}
	if size == 0 {
		return s
	}
	n := float64(every)
	s.Values[0], s.Values[1] = n*float64(bytes)/float64(size), n*float64(bytes)
	return s
}

func overflowed(n uint64) string {
	return fmt.Sprintf("%d events have no labels, because the table of labels was full", n)
}

// unclearWaits says that waits may be counted as what they are not.
func unclearWaits(sums *EventSums) string {
	all := time.Duration(sums.Values[profile.Locks.Main()])
	return fmt.Sprintf("%d waits of java.util.concurrent, %v together, count as waits for work, because the blocker of their threads is unknown: "+
		"some of them may have waited for locks", sums.Events, all.Round(max(all/100, time.Microsecond)))
}
