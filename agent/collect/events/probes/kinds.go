package probes

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

// An eventPlan is the set of probes in a libjvm that report one thing. It needs all of them.
type eventPlan struct {
	kind   profile.EventKind
	of     string // what they report, for people
	exact  bool   // they count every event, and are attached only if exact counts are asked for
	ends   bool   // they report threads and VMs that end, not events: all the time, whatever that costs
	probes []plannedProbe
	waits  *ebpf.Map // waits for locks that have begun and not ended, by thread
}

// A plannedProbe is a program and the place for it.
type plannedProbe struct {
	name      string
	program   *ebpf.Program
	find      findSites
	configure configureSite // or nil
	rare      bool          // few events pass it
	// optional is what is not recorded where there is no place for it; "": the plan is then not
	// attached at all.
	optional string
}

// A configureSite finds the location of the value that a site reports.
type configureSite = func(f *probesite.Finder, s probesite.Site) (setting, error)

// A setting sends that location to the kernel side, under the site's cookie. It replaces the
// setting of an earlier owner of the cookie.
type setting = func(cookie uint32) error

type findSites = func(*probesite.Finder) ([]probesite.Site, error)

// Functions of libjvm.
const (
	functionInBuffer    = "AllocTracer::send_allocation_in_new_tlab"
	functionOutside     = "AllocTracer::send_allocation_outside_tlab"
	functionObject      = "SharedRuntime::dtrace_object_alloc"
	functionRemove      = "Threads::remove"
	functionExit        = "before_exit"
	functionEnter       = "ObjectMonitor::enter"
	functionTrySpin     = "ObjectMonitor::TrySpin"
	functionLightweight = "LightweightSynchronizer::enter" // JDK 24 and 25; the next later
	functionSynchronize = "ObjectSynchronizer::enter"
	functionBlock       = "ObjectMonitor::enter_with_contention_mark" // JDK 24 and later
	functionRelease     = "ObjectMonitor::exit_epilog"                // JDK 24 and later; the next before
	functionEpilog      = "ObjectMonitor::ExitEpilog"
	functionBarrier     = "G1BarrierSetRuntime::write_ref_field_post_entry" // up to JDK 25
	functionEnqueue     = "G1DirtyCardQueueSet::enqueue"
	functionTrace       = "JVM_FillInStackTrace" // (JNIEnv*, jobject): the native method of java.lang.Throwable
)

// Variables of libjvm: when a safepoint began, and when it ended
// (src/hotspot/share/runtime/safepoint.hpp).
const (
	clockBegin = "_ZN16SafepointTracing29_last_safepoint_begin_time_nsE"
	clockEnd   = "_ZN16SafepointTracing27_last_safepoint_end_time_nsE"
)

// eventPlans returns all plans for a library. Probes at an end come before those at the beginning,
// so that every observed beginning has an end.
func eventPlans(o *bpf.ProbeObjects, f *probesite.Finder) []eventPlan {
	plans := []eventPlan{
		{kind: profile.Allocations, of: "allocations", probes: []plannedProbe{
			{name: functionInBuffer, program: o.AllocationInBuffer, find: entries(functionInBuffer)},
			{name: functionOutside, program: o.AllocationOutside, find: entries(functionOutside)},
		}},
		{kind: profile.Allocations, of: "allocations of threads that end", ends: true, probes: []plannedProbe{
			{name: functionRemove, program: o.ThreadRemoved, find: entries(functionRemove)},
			{name: functionExit, program: o.VmEnds, find: entries(functionExit)},
		}},
		{kind: profile.Allocations, of: "exact counts of allocations", exact: true, probes: []plannedProbe{
			{name: functionObject, program: o.ObjectAllocated, find: objectEntries(false)},
			{name: functionObject, program: o.ObjectAllocatedBy, find: objectEntries(true)},
		}},
		monitorPlan(o, f),
		parkPlan(o, f),
		{kind: profile.Barriers, of: "write barriers", probes: []plannedProbe{
			{name: functionBarrier, program: o.CardEnqueued, find: barriers},
		}},
		{kind: profile.Exceptions, of: "exceptions", probes: []plannedProbe{
			{name: functionTrace, program: o.ExceptionCreated, find: entriesWith(functionTrace, 2)},
		}},
		{kind: profile.Pauses, of: "pauses", probes: []plannedProbe{
			{name: "hs_private:safepoint__end", program: o.SafepointEnd, find: notes("hs_private", "safepoint__end"),
				configure: clockSite(o, clockEnd)},
			{name: "hotspot:vmops__begin", program: o.OperationBegin, find: notes("hotspot", "vmops__begin"),
				configure: nameSite(o)},
			{name: "hotspot:mem__pool__gc__begin", program: o.ManagerBegin,
				find: notes("hotspot", "mem__pool__gc__begin"), configure: nameSite(o)},
			{name: "hotspot:gc__begin", program: o.CollectionBegin, find: notes("hotspot", "gc__begin")},
			{name: "hs_private:safepoint__begin", program: o.SafepointBegin,
				find: notes("hs_private", "safepoint__begin"), configure: clockSite(o, clockBegin)},
		}},
	}
	return append(plans, virtualPlans(o, f)...)
}

// LockProbes returns why waits for monitors, and those of java.util.concurrent, cannot be recorded
// in JVMs with this libjvm; file was opened with bytes. It reads the file's code, which takes some
// 0.3 s.
func LockProbes(file *elffile.File, bytes io.ReaderAt) (monitors, parks error) {
	finder, none := probesite.New(file, bytes), &bpf.ProbeObjects{}
	why := func(plan eventPlan) error { return (&attachedPlan{eventPlan: plan}).find(finder) }
	return why(monitorPlan(none, finder)), why(parkPlan(none, finder))
}

// monitorPlan observes the function that acquires monitors which compiled code and the interpreter
// could not acquire themselves.
func monitorPlan(o *bpf.ProbeObjects, f *probesite.Finder) eventPlan {
	p := eventPlan{kind: profile.Locks, of: "waits for monitors", waits: o.Entering}
	switch {
	case f.Has(functionLightweight):
		p.probes = withVirtual(o, f, lightweightProbes(o, functionLightweight))
	case f.Has(functionBlock):
		p.probes = withVirtual(o, f, lightweightProbes(o, functionSynchronize))
	case f.Has(functionEnter):
		p.probes = []plannedProbe{
			{name: functionEnter + ", end", program: o.MonitorEntered,
				find: monitorReturns(probesite.MonitorEntry{Function: functionEnter}), configure: returnSite(o)},
			{name: "spinning", program: o.MonitorSpun, find: spins(
				probesite.Calls{Callee: functionTrySpin, In: functionEnter, Conditional: true, Stores: true},
			)},
			{name: functionEnter, program: o.MonitorEnter, find: entriesWith(functionEnter, 1)},
		}
	default:
		p.probes = unnamedMonitorProbes(o, f)
	}
	p.probes = append([]plannedProbe{{
		name: functionRelease, program: o.MonitorReleased, find: firstEntryWith(1, functionRelease, functionEpilog),
		optional: "who has monitors for which threads wait",
	}}, p.probes...)
	return p
}

// lightweightProbes are those of a function with a handle of the object.
func lightweightProbes(o *bpf.ProbeObjects, function string) []plannedProbe {
	return []plannedProbe{
		{name: function + ", end", program: o.MonitorEntered,
			find: monitorReturns(probesite.MonitorEntry{Function: function, Handle: true}), configure: returnSite(o)},
		{name: "spinning", program: o.MonitorSpun, find: spins(
			probesite.Calls{Callee: "ObjectMonitor::try_spin", In: functionEnter, Conditional: true, Stores: true},
			probesite.Calls{Callee: "ObjectMonitor::spin_enter", Conditional: true, Stores: true},
			probesite.Calls{Callee: "LightweightSynchronizer::fast_lock_spin_enter", Conditional: true, Stores: true},
		)},
		{name: functionBlock, program: o.MonitorBlocks, find: entriesWith(functionBlock, 1)},
		{name: function, program: o.LightweightEnter, find: entriesWith(function, 1)},
	}
}

// unnamedMonitorProbes are those of a libjvm without symbols. The spinning code is not found there:
// a thread is known to have waited only if it slept.
func unnamedMonitorProbes(o *bpf.ProbeObjects, f *probesite.Finder) []plannedProbe {
	entry, err := f.MonitorEntry()
	if err != nil {
		failed := func(*probesite.Finder) ([]probesite.Site, error) {
			return nil, fmt.Errorf("the library has no symbol %s, and the search for the function failed: %w",
				functionEnter, err)
		}
		return []plannedProbe{{name: functionEnter, find: failed}}
	}
	begin := o.MonitorEnter
	if entry.Handle {
		begin = o.LightweightEnter
	}
	return []plannedProbe{
		{name: entry.Function + ", end", program: o.MonitorSlept, find: monitorReturns(entry),
			configure: returnSite(o)},
		{name: entry.Function, program: begin, find: entriesWith(entry.Function, 1)},
	}
}

// parkPlan uses the VM's probes around Parker::park, or that function itself if the VM was built
// without them.
func parkPlan(o *bpf.ProbeObjects, f *probesite.Finder) eventPlan {
	const end, begin = "thread__park__end", "thread__park__begin"
	p := eventPlan{kind: profile.Locks, of: "waits of java.util.concurrent", waits: o.Parked, probes: []plannedProbe{
		unparkProbe(o),
		{name: "hotspot:" + end, program: o.ParkEnd, find: notes("hotspot", end)},
		{name: "hotspot:" + begin, program: o.ParkBegin, find: notes("hotspot", begin)},
	}}
	if _, err := f.Notes("hotspot", end); !errors.Is(err, probesite.ErrNotFound) {
		return p
	}
	function, err := f.ParkEntry()
	if err != nil {
		failed := func(*probesite.Finder) ([]probesite.Site, error) {
			return nil, fmt.Errorf("the library has no USDT probe hotspot:%s, and the search for Parker::park "+
				"failed: %w", end, err)
		}
		p.probes = []plannedProbe{{name: "Parker::park", find: failed}}
		return p
	}
	p.probes = []plannedProbe{
		unparkProbe(o),
		{name: function + ", end", program: o.ParkEnd, find: returns(probesite.Calls{Callee: function, Stores: true})},
		{name: function, program: o.ParkBegin, find: entriesWith(function, 0)},
	}
	return p
}

// unparkProbe is at the native method by which a thread that leaves a lock wakes one that waits for
// it.
func unparkProbe(o *bpf.ProbeObjects) plannedProbe {
	find := func(f *probesite.Finder) ([]probesite.Site, error) {
		name, err := f.UnparkEntry()
		if err != nil {
			return nil, err
		}
		return f.EntriesWith(name, 3)
	}
	return plannedProbe{name: "Unsafe.unpark", program: o.Unparks, find: find,
		optional: "who has locks of java.util.concurrent for which threads wait"}
}

// barriers finds where a thread whose queue of dirty cards is full is about to get another one.
func barriers(f *probesite.Finder) ([]probesite.Site, error) {
	sites, err := f.Towards(functionEnqueue, functionBarrier)
	if err != nil {
		return nil, fmt.Errorf("this needs JDK 17 to 25, and a libjvm with symbols, as Debian's and Eclipse "+
			"Temurin's have: %w", err)
	}
	return sites, nil
}

func entries(function string) findSites {
	return func(f *probesite.Finder) ([]probesite.Site, error) { return f.Entries(function) }
}

func entriesWith(function string, arguments int) findSites {
	return func(f *probesite.Finder) ([]probesite.Site, error) { return f.EntriesWith(function, arguments) }
}

// firstEntryWith is entriesWith for the first of these functions that exists.
func firstEntryWith(arguments int, functions ...string) findSites {
	return func(f *probesite.Finder) (sites []probesite.Site, err error) {
		for _, function := range functions {
			if sites, err = f.EntriesWith(function, arguments); !errors.Is(err, probesite.ErrNotFound) {
				break
			}
		}
		return sites, err
	}
}

func notes(provider, name string) findSites {
	return func(f *probesite.Finder) ([]probesite.Site, error) { return f.Notes(provider, name) }
}

func returns(c probesite.Calls) findSites {
	return func(f *probesite.Finder) ([]probesite.Site, error) {
		r, err := f.AfterCalls(c)
		return r.Sites, err
	}
}

// monitorReturns finds where threads have acquired a monitor. Functions jump to
// ObjectMonitor::enter at their end. From JDK 24 on, the VM's own ObjectLocker jumps likewise to
// functions with a handle, from many places that are not worth a probe each: its waits are missed.
// So are calls from JNI in some builds.
func monitorReturns(entry probesite.MonitorEntry) findSites {
	return returns(probesite.Calls{Callee: entry.Function, Tails: !entry.Handle, Stores: true, Joins: true})
}

// returnSite finds the distance of a site from the return address of the call before it.
func returnSite(o *bpf.ProbeObjects) configureSite {
	const call = 5 // bytes, with a distance of 32 bits
	return func(_ *probesite.Finder, s probesite.Site) (setting, error) {
		distance := int64(0) // threads that pass have waited
		if s.Call != 0 {
			distance = int64(s.Address-s.Call-call) + 1
		}
		return func(cookie uint32) error { return o.ReturnSites.Put(cookie, distance) }, nil
	}
}

// spins finds where the result of spinning is known. Ways of spinning that are not functions of
// their own in a build are missed: waits that ended by them count as blocked.
func spins(ways ...probesite.Calls) findSites {
	return func(f *probesite.Finder) (sites []probesite.Site, err error) {
		for _, way := range ways {
			r, wayErr := f.AfterCalls(way)
			sites = append(sites, r.Sites...)
			err = errors.Join(err, wayErr)
		}
		if len(sites) > 0 {
			err = nil
		}
		return sites, err
	}
}

// objectEntries finds the overloads with the object as their second parameter, after the thread, or
// as the first.
func objectEntries(thread bool) findSites {
	return func(f *probesite.Finder) (sites []probesite.Site, err error) {
		all, err := f.Entries(functionObject)
		for _, s := range all {
			if strings.Contains(s.Function, "EP10JavaThread") == thread {
				sites = append(sites, s)
			}
		}
		return sites, err
	}
}

// nameSite locates a name, a probe's first argument, and its length in bytes, the second:
// hotspot:vmops__begin(name, length, mode) of an operation, mem__pool__gc__begin(name, length, ...)
// of a memory manager (src/hotspot/share/runtime/vmThread.cpp, services/memoryService.cpp).
func nameSite(o *bpf.ProbeObjects) configureSite {
	return func(_ *probesite.Finder, s probesite.Site) (setting, error) {
		if len(s.Args) < 2 {
			return nil, attach.ErrOperand
		}
		name, err := attach.Operand(s.Args[0])
		if err != nil {
			return nil, err
		}
		length, err := attach.Operand(s.Args[1])
		if err != nil {
			return nil, err
		}
		return func(cookie uint32) error { return o.NameSites.Put(cookie, bpf.NameSite{Name: name, Len: length}) }, nil
	}
}

// clockSite finds the variable in which the VM keeps the time. If the file has no symbols, or the
// VM is older than the variable, the time of the hit is used.
func clockSite(o *bpf.ProbeObjects, variable string) configureSite {
	return func(f *probesite.Finder, s probesite.Site) (setting, error) {
		distance := int64(0) // unknown
		at, err := f.Variable(variable)
		if err == nil {
			distance = int64(at - s.Address)
		} else if !errors.Is(err, elffile.ErrNotFound) {
			return nil, err
		}
		return func(cookie uint32) error { return o.ClockSites.Put(cookie, distance) }, nil
	}
}
