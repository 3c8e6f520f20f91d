package sink_test

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
)

// An event is a row of profile.Events with its stack, innermost frame first.
type event struct {
	frames []symbolize.Frame
	labels profile.EventLabels
	events uint64
	values [profile.MaxEventValues]float64
}

// eventsOf makes events of the thread http-1.
func eventsOf(kind profile.EventKind, list ...event) *profile.Events {
	e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbolize.Symbol])}
	for _, it := range list {
		var stack []symbolize.Symbol
		for _, f := range it.frames {
			stack = append(stack, symbolize.Intern(f))
		}
		e.Rows = append(e.Rows, profile.EventRow{
			Context: e.Tree.Add(stack, it.events), TID: 1240, Thread: "http-1",
			EventLabels: it.labels, Events: it.events, Values: it.values,
		})
	}
	return e
}

// The frames of an allocation's or a lock's slow path in the VM.
var (
	allocate = symbolize.Frame{Function: "MemAllocator::allocate", Kind: symbolize.KindNative, Mapping: libjvm, Address: 0x7e00_0000_3000}
	enter    = symbolize.Frame{Function: "ObjectMonitor::enter", Kind: symbolize.KindNative, Mapping: libjvm, Address: 0x7e00_0000_4000}
)

const mib = 1 << 20

// shopEvents is a window with events of every kind, whose numbers can be added up by hand.
func shopEvents() *profile.Profile {
	type (
		stack  = []symbolize.Frame
		labels = profile.EventLabels
		values = [profile.MaxEventValues]float64
	)
	const ms = float64(time.Millisecond)
	cart := "com.acme.Cart"
	allocations := eventsOf(profile.Allocations,
		event{stack{allocate, checkout, callStub, run}, labels{Class: "char[]", Place: "young"}, 100, values{60000, 6 * mib}},
		event{stack{allocate, checkout, callStub, run}, labels{Class: "java.lang.String", Place: "young"}, 50, values{90000, 3 * mib}},
		event{stack{allocate, total, checkout, callStub, run}, labels{Class: "byte[]", Place: "humongous"}, 1, values{1, 1 * mib}},
	)
	allocations.Basis = []string{"one event for each buffer that a thread fills, weighted by its size"}
	locks := eventsOf(profile.Locks,
		event{stack{enter, checkout, callStub, run}, labels{Class: cart, Place: "old", What: "block"}, 30, values{30, 30, 600 * ms}},
		event{stack{enter, checkout, callStub, run}, labels{Class: cart, Place: "old", What: "spin"}, 20, values{20, 20, 1 * ms}},
		event{stack{enter, total, checkout, callStub, run}, labels{Class: "java.util.Hashtable", Place: "young", What: "park"}, 10, values{10, 10, 199 * ms}},
		event{stack{total, checkout, callStub, run}, labels{Class: "java.util.Hashtable", What: "enter"}, 400, values{12000, 0, 0}},
		event{stack{run}, labels{Class: "java.lang.Object", What: "wait"}, 5, values{0, 0, 9000 * ms}},
	)
	probed := eventsOf(profile.Values,
		event{stack{checkout, callStub, run}, labels{Probe: "hotspot:object__alloc size", Value: "16-31"}, 6, values{60, 1200}},
		event{stack{total, checkout, callStub, run}, labels{Probe: "hotspot:object__alloc size", Value: "8-15"}, 3, values{30, 300}},
		event{stack{total, checkout, callStub, run}, labels{Probe: "hotspot:object__alloc size", Value: "128-255"}, 1, values{10, 2000}},
		event{stack{execute}, labels{Probe: "php:function__entry name", Value: "render"}, 2, values{20}},
		event{stack{execute}, labels{Probe: "php:function__entry name", Value: "main"}, 1, values{10}},
	)
	pauses := eventsOf(profile.Pauses,
		event{nil, labels{What: "G1CollectForAllocation", Collector: "G1 Young Generation"}, 4, values{4, 80 * ms}},
		event{nil, labels{What: "Cleanup", Collector: profile.UnnamedCollector}, 10, values{10, 20 * ms}},
	)
	faults := eventsOf(profile.Faults,
		event{stack{futex, allocate, checkout, callStub, run}, labels{Class: cart, Place: "young", Field: "items", Offset: 16}, 60, values{60}},
		event{stack{futex, allocate, checkout, callStub, run}, labels{Class: cart, Place: "young", Offset: 0}, 20, values{20}},
		event{stack{futex, gc}, labels{Place: "native"}, 20, values{20}},
	)
	cycles := eventsOf(profile.Cycles,
		event{stack{getNode, get, total, checkout, callStub, run}, labels{}, 90, values{9e9, 3e9}},
		event{stack{futex, checkout, callStub, run}, labels{}, 10, values{1e9, 5e9}},
	)
	return &profile.Profile{
		Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond, Event: "cpu-clock",
		Processes: []*profile.Process{
			{PID: 77, Comm: "bash", Service: "bash", Executable: bash},
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", Service: "shop.service", Executable: java,
				Events: []*profile.Events{allocations, locks, probed, pauses, faults, cycles},
			},
		},
		EventCounts: profile.EventCounts{
			Attempted: 910, Delivered: 905, Dropped: map[string]uint64{"ring_full": 5}, Folded: 902,
			Discarded: map[string]uint64{"malformed": 3}, Hits: 15000, Cost: 13 * time.Millisecond,
		},
		Comments: []string{"vmprof-agent 0.1.0"},
	}
}

// only is a window in which nothing but one kind was recorded.
func only(kind profile.EventKind) *profile.Profile {
	p := shopEvents()
	for _, proc := range p.Processes {
		var kept []*profile.Events
		for _, e := range proc.Events {
			if e.Kind == kind {
				kept = append(kept, e)
			}
		}
		proc.Events = kept
	}
	return p
}
