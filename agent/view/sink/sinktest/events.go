package sinktest

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// An Event is a row of profile.Events with its stack, innermost frame first.
type Event struct {
	Frames []symbol.Frame
	Labels profile.EventLabels
	Events uint64
	Values [profile.MaxEventValues]float64
}

// EventsOf makes events of the thread http-1.
func EventsOf(kind profile.EventKind, list ...Event) *profile.Events {
	e := &profile.Events{Kind: kind, Tree: new(cct.Tree[symbol.Symbol])}
	for _, it := range list {
		var stack []symbol.Symbol
		for _, f := range it.Frames {
			stack = append(stack, symbol.Intern(f))
		}
		e.Rows = append(e.Rows, profile.EventRow{
			Context: e.Tree.Add(stack, it.Events), TID: 1240, Thread: "http-1",
			EventLabels: it.Labels, Events: it.Events, Values: it.Values,
		})
	}
	return e
}

// The frames of an allocation's or a lock's slow path in the VM.
var (
	Allocate = symbol.Frame{Function: "MemAllocator::allocate", Kind: symbol.KindNative, Mapping: Libjvm,
		Address: 0x7e00_0000_3000}
	Enter = symbol.Frame{Function: "ObjectMonitor::enter", Kind: symbol.KindNative, Mapping: Libjvm,
		Address: 0x7e00_0000_4000}
)

const Mib = 1 << 20

// ShopEvents is a window with events of every kind, whose numbers can be added up by hand.
func ShopEvents() *profile.Profile {
	type (
		stack  = []symbol.Frame
		labels = profile.EventLabels
		values = [profile.MaxEventValues]float64
	)
	const ms = float64(time.Millisecond)
	cart := "com.acme.Cart"
	allocations := EventsOf(profile.Allocations,
		Event{stack{Allocate, Checkout, CallStub, Run}, labels{Class: "char[]", Place: "young"}, 100,
			values{60000, 6 * Mib}},
		Event{stack{Allocate, Checkout, CallStub, Run}, labels{Class: "java.lang.String", Place: "young"}, 50,
			values{90000, 3 * Mib}},
		Event{stack{Allocate, Total, Checkout, CallStub, Run}, labels{Class: "byte[]", Place: "humongous"}, 1,
			values{1, 1 * Mib}},
	)
	allocations.Basis = []string{"one event for each buffer that a thread fills, weighted by its size"}
	locks := EventsOf(profile.Locks,
		Event{stack{Enter, Checkout, CallStub, Run}, labels{Class: cart, Place: "old", What: "block"}, 30,
			values{30, 30, 600 * ms}},
		Event{stack{Enter, Checkout, CallStub, Run}, labels{Class: cart, Place: "old", What: "spin"}, 20,
			values{20, 20, 1 * ms}},
		Event{stack{Enter, Total, Checkout, CallStub, Run}, labels{Class: "java.util.Hashtable", Place: "young",
			What: "park"}, 10, values{10, 10, 199 * ms}},
		Event{stack{Total, Checkout, CallStub, Run}, labels{Class: "java.util.Hashtable", What: "enter"}, 400,
			values{12000, 0, 0}},
		Event{stack{Run}, labels{Class: "java.lang.Object", What: "wait"}, 5, values{0, 0, 9000 * ms}},
	)
	probed := EventsOf(profile.Values,
		Event{stack{Checkout, CallStub, Run}, labels{Probe: "hotspot:object__alloc size", Value: "16-31"}, 6,
			values{60, 1200}},
		Event{stack{Total, Checkout, CallStub, Run}, labels{Probe: "hotspot:object__alloc size", Value: "8-15"}, 3,
			values{30, 300}},
		Event{stack{Total, Checkout, CallStub, Run}, labels{Probe: "hotspot:object__alloc size", Value: "128-255"}, 1,
			values{10, 2000}},
		Event{stack{Execute}, labels{Probe: "php:function__entry name", Value: "render"}, 2, values{20}},
		Event{stack{Execute}, labels{Probe: "php:function__entry name", Value: "main"}, 1, values{10}},
	)
	pauses := EventsOf(profile.Pauses,
		Event{nil, labels{What: "G1CollectForAllocation", Collector: "G1 Young Generation"}, 4, values{4, 80 * ms}},
		Event{nil, labels{What: "Cleanup", Collector: profile.UnnamedCollector}, 10, values{10, 20 * ms}},
	)
	faults := EventsOf(profile.Faults,
		Event{stack{Futex, Allocate, Checkout, CallStub, Run}, labels{Class: cart, Place: "young", Field: "items",
			Offset: 16}, 60, values{60}},
		Event{stack{Futex, Allocate, Checkout, CallStub, Run}, labels{Class: cart, Place: "young", Offset: 0}, 20,
			values{20}},
		Event{stack{Futex, Gc}, labels{Place: "native"}, 20, values{20}},
	)
	barriers := EventsOf(profile.Barriers,
		Event{stack{Checkout, CallStub, Run}, labels{Class: cart, Place: "old"}, 30, values{7680}},
		Event{stack{Checkout, CallStub, Run}, labels{Class: "java.lang.Object[]", Place: "humongous"}, 10,
			values{2560}},
		Event{stack{Total, Checkout, CallStub, Run}, labels{Place: "old"}, 20, values{5120}},
	)
	exceptions := EventsOf(profile.Exceptions,
		Event{stack{Checkout, CallStub, Run}, labels{Class: "java.lang.IllegalStateException"}, 30, values{30}},
		Event{stack{Total, Checkout, CallStub, Run}, labels{Class: "com.acme.Missing"}, 10, values{10}},
	)
	cycles := EventsOf(profile.Cycles,
		Event{stack{GetNode, Get, Total, Checkout, CallStub, Run}, labels{}, 90, values{9e9, 3e9}},
		Event{stack{Futex, Checkout, CallStub, Run}, labels{}, 10, values{1e9, 5e9}},
	)
	waits := EventsOf(profile.OffCPU,
		Event{stack{Futex, Checkout, CallStub, Run}, labels{Place: "blocked", What: "monitor"}, 40,
			values{120, 6000 * ms}},
		Event{stack{Futex, Checkout, CallStub, Run}, labels{Place: "runnable", What: "runnable"}, 30,
			values{150, 300 * ms}},
		Event{stack{Futex, Total, Checkout, CallStub, Run}, labels{Place: "blocked", What: "socket"}, 5,
			values{5, 3500 * ms}},
		Event{nil, labels{Place: "blocked", What: "unknown"}, 1, values{1, 200 * ms}},
	)
	wall := EventsOf(profile.Wall,
		Event{stack{GetNode, Get, Total, Checkout, CallStub, Run}, labels{Place: "running", What: "running"}, 90,
			values{900 * ms}},
		Event{stack{Futex, Checkout, CallStub, Run}, labels{Place: "blocked", What: "monitor"}, 40, values{6000 * ms}},
		Event{stack{Futex, CallStub, Run}, labels{Place: "blocked", What: "idle"}, 2, values{3000 * ms}},
		Event{nil, labels{Place: "blocked", What: "unknown"}, 1, values{100 * ms}},
	)
	return &profile.Profile{
		Start: time.Unix(1_700_000_000, 0), Duration: 10 * time.Second, Period: 10 * time.Millisecond,
		Event: "cpu-clock",
		Processes: []*profile.Process{
			{PID: 77, Comm: "bash", Service: "bash", Executable: Bash},
			{
				PID: 1234, Comm: "java", Runtime: "hotspot", Service: "shop.service", Executable: Java,
				Events: []*profile.Events{allocations, locks, probed, pauses, faults, cycles, waits, wall, barriers,
					exceptions},
			},
		},
		EventCounts: profile.EventCounts{
			Attempted: 910, Delivered: 905, Dropped: map[string]uint64{"ring_full": 5}, Folded: 902,
			Discarded: map[string]uint64{"malformed": 3}, Hits: 15000, Cost: 13 * time.Millisecond,
		},
		Comments: []string{"vmprof-agent 0.1.0"},
	}
}

// Only is a window in which nothing but one kind was recorded.
func Only(kind profile.EventKind) *profile.Profile {
	p := ShopEvents()
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
