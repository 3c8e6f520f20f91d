package profile

import (
	"maps"
	"math"
	"time"
)

// Counts accounts for every tick of a window. Two identities hold once the event stream is drained:
//
//	Attempted == Delivered + sum(Dropped)
//	Delivered == Folded + sum(Discarded)
type Counts struct {
	Attempted uint64            // samples that the BPF program started
	Delivered uint64            // samples that reached user space
	Dropped   map[string]uint64 // lost in the kernel, by cause: ring_full, unknown_cpu
	Folded    uint64            // samples in the trees
	Discarded map[string]uint64 // dropped in user space, by cause: Malformed, …
	Idle      uint64            // ticks on an idle CPU, which are not attempted
	Filtered  uint64            // ticks in processes that were not selected, which are not attempted
	Truncated map[string]uint64 // folded samples whose stack walk ended early, by reason
	Stale     uint64            // frames that could not be resolved against the code of their time
	Unknown   uint64            // frames without a name
}

// Causes for which user space discards a sample that it received: keys of Discarded.
const (
	Malformed  = "malformed"   // the record cannot be decoded
	EmptyStack = "empty_stack" // the record has no frame
	Failed     = "failed"      // the agent panicked while it handled the record
	NoWindow   = "no_window"   // no recording was open for the process
	// UnknownStack: the record refers to an earlier one that was lost in user space. None should.
	UnknownStack = "unknown_stack"
	Unobserved   = "unobserved" // an event that arrived after the slice of time in which it would have counted
)

// Add adds the counts of another window. The maps of o do not change, and c does not keep them.
func (c *Counts) Add(o Counts) {
	c.Attempted += o.Attempted
	c.Delivered += o.Delivered
	c.Dropped = addEach(c.Dropped, o.Dropped)
	c.Folded += o.Folded
	c.Discarded = addEach(c.Discarded, o.Discarded)
	c.Idle += o.Idle
	c.Filtered += o.Filtered
	c.Truncated = addEach(c.Truncated, o.Truncated)
	c.Stale += o.Stale
	c.Unknown += o.Unknown
}

// Part is the account of a part of the processes, which has so many of the samples in the trees.
// Nobody knows whose samples were lost or cut short: the part has its share of them, rounded.
func (c Counts) Part(folded uint64) Counts {
	if folded >= c.Folded {
		return c
	}
	share := float64(folded) / float64(c.Folded)
	of := func(n uint64) uint64 { return uint64(math.Round(float64(n) * share)) }
	each := func(counts map[string]uint64) map[string]uint64 {
		part := make(map[string]uint64, len(counts))
		for cause, n := range counts {
			part[cause] = of(n)
		}
		return part
	}
	part := Counts{
		Dropped: each(c.Dropped), Folded: folded, Discarded: each(c.Discarded), Truncated: each(c.Truncated),
		Stale: of(c.Stale), Unknown: of(c.Unknown), Idle: c.Idle, Filtered: c.Filtered,
	}
	part.Delivered = part.Folded + Sum(part.Discarded)
	part.Attempted = part.Delivered + Sum(part.Dropped)
	return part
}

// DroppedTotal is the number of samples lost in the kernel, over all causes.
func (c Counts) DroppedTotal() uint64 { return Sum(c.Dropped) }

// EventCounts accounts for the events of a window, all kinds together. Two identities hold once the
// event stream is drained:
//
//	Attempted == Delivered + sum(Dropped)
//	Delivered == Folded + sum(Discarded)
//
// Hits is at least Attempted. Most kinds sample one in N executions of a probe, and exact
// allocation counts (events.Options.ExactAllocations) add hits without records.
type EventCounts struct {
	Attempted uint64            // events that the BPF programs started to record
	Delivered uint64            // events that reached user space
	Dropped   map[string]uint64 // lost in the kernel, by cause: ring_full, …
	Folded    uint64            // events in Process.Events
	Discarded map[string]uint64 // dropped in user space, by cause: Malformed, …
	Hits      uint64            // executions of probes in the processes, recorded or not
	// Unattached counts hits of allocation and wait probes in processes whose VM was not attached
	// yet. Nothing is recorded for them.
	Unattached uint64
	// Waits counts the times that threads came back to a CPU, with OffCPU. Those without a record
	// are in WaitsThinned. WaitsRefused counts the times that a thread could not be followed,
	// because there were too many; its waits are not in Waits.
	Waits        uint64 `json:",omitempty"`
	WaitsThinned uint64 `json:",omitempty"`
	WaitsRefused uint64 `json:",omitempty"`
	// Wakers counts the records of who ended a wait that were begun, and WakersLost those of them
	// that were dropped.
	Wakers     uint64 `json:",omitempty"`
	WakersLost uint64 `json:",omitempty"`
	// WaitTime is the time that the waits stand for that were drawn for a record, and WaitTimeLost
	// that of the dropped ones among these.
	WaitTime     time.Duration `json:",omitempty"`
	WaitTimeLost time.Duration `json:",omitempty"`

	Cost time.Duration // CPU time that the hits took from the processes, from the measured cost of one hit
}

// Add adds the counts of another window. The maps of o do not change, and c does not keep them.
func (c *EventCounts) Add(o EventCounts) {
	c.Attempted += o.Attempted
	c.Delivered += o.Delivered
	c.Dropped = addEach(c.Dropped, o.Dropped)
	c.Folded += o.Folded
	c.Discarded = addEach(c.Discarded, o.Discarded)
	c.Hits += o.Hits
	c.Unattached += o.Unattached
	c.Waits += o.Waits
	c.WaitsThinned += o.WaitsThinned
	c.WaitsRefused += o.WaitsRefused
	c.Wakers += o.Wakers
	c.WakersLost += o.WakersLost
	c.WaitTime += o.WaitTime
	c.WaitTimeLost += o.WaitTimeLost
	c.Cost += o.Cost
}

// Lost is the number of events that were dropped in the kernel or could not be decoded.
func (c *EventCounts) Lost() uint64 { return c.Discarded[Malformed] + Sum(c.Dropped) }

// LostShare is Lost as a share of Attempted, 0 to 0.999.
func (c *EventCounts) LostShare() float64 {
	return min(float64(c.Lost())/float64(max(c.Attempted, 1)), 0.999)
}

// LostWaitShare is WaitTimeLost as a share of WaitTime, 0 to 0.999. It is not LostShare: records
// stand for unequal times, and many are lost while they stand for little, before the mean interval
// has risen.
func (c *EventCounts) LostWaitShare() float64 {
	return min(float64(c.WaitTimeLost)/float64(max(c.WaitTime, 1)), 0.999)
}

// Sum adds up counts by cause.
func Sum(byCause map[string]uint64) (n uint64) {
	for _, v := range byCause {
		n += v
	}
	return n
}

// Difference returns what was counted by cause between two readings of counters that never
// decrease.
func Difference(before, after map[string]uint64) map[string]uint64 {
	between := make(map[string]uint64, len(after))
	for cause, n := range after {
		between[cause] = n - before[cause]
	}
	return between
}

func addEach(sum, counts map[string]uint64) map[string]uint64 {
	if sum == nil {
		return maps.Clone(counts)
	}
	for cause, n := range counts {
		sum[cause] += n
	}
	return sum
}
