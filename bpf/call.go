package bpf

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/cilium/ebpf"
)

// Types of the page engine's object. Layouts and units: burstpage.bpf.h.
type (
	Page       = BurstVmprofPage
	PageGuest  = BurstBurstGuest
	BurstRate  = BurstBurstRate
	BurstCost  = BurstBurstCost
	BurstSite  = BurstBurstSite
	BurstProbe = BurstBurstProbe
)

// Probes of a guest with a page.
const (
	ProbeCall      = BurstBurstProbeBURST_CALL       // callee's id, return address
	ProbeThread    = BurstBurstProbeBURST_THREAD     // slot
	ProbeThreadEnd = BurstBurstProbeBURST_THREAD_END // slot
)

// Bounds of the page engine's kernel side.
const (
	MaxPageGuests = 256  // processes at once: MAX_PAGE_GUESTS
	PageSlots     = 60   // their threads: PAGE_SLOTS
	MaxBurstSites = 4096 // their probe sites: MAX_BURST_SITES
)

// Types of the listener's object. Layouts and units: listener.bpf.h.
type (
	CallWatch   = ListenerListenerWatch
	ListenerHit = ListenerListenerHit
)

// MaxListenerHits bounds the hits of a watch on entry points: MAX_LISTENER_HITS.
const MaxListenerHits = 256

// LoadListeners loads the program behind breakpoints on entry points next to o. The caller closes
// it before o.
func (o *Objects) LoadListeners() (*ListenerObjects, error) {
	spec, err := LoadListener()
	if err != nil {
		return nil, fmt.Errorf("read listener object: %w", err)
	}
	var l ListenerObjects
	if err := o.LoadBeside(spec, &l); err != nil {
		return nil, fmt.Errorf("load listener program: %w", err)
	}
	return &l, nil
}

// Types of the branch engine's object. Layouts and units: branch.bpf.h.
type (
	BranchCost = BranchBranchCost
	BranchRate = BranchBranchRate
)

// MaxBranches is how many calls a CPU's branch records hold at most: MAX_BRANCHES.
const MaxBranches = 32

// Types of the usdt engine's object. Layouts and units: usdt.bpf.h.
type (
	USDTProbe  = UsdtUsdtProbe
	USDTGuest  = UsdtUsdtGuest
	USDTNotice = UsdtUsdtNotice
	USDTRate   = UsdtUsdtRate
	USDTSite   = UsdtUsdtSite
	USDTEdge   = UsdtUsdtEdge
	USDTAction = UsdtUsdtAction
)

// What the kernel side does with a guest's calls: USDTGuest.Mode.
const (
	USDTBursts = uint32(UsdtUsdtModeUSDT_BURSTS)
	USDTExact  = uint32(UsdtUsdtModeUSDT_EXACT)
)

// How the calls at a site are read: USDTProbe.Dialect.
const (
	USDTArguments = uint32(UsdtUsdtDialectUSDT_ARGUMENTS)
	USDTPHP       = uint32(UsdtUsdtDialectUSDT_PHP)
)

// What the kernel side asks for.
const (
	USDTOpen = UsdtUsdtActionUSDT_OPEN
	USDTFull = UsdtUsdtActionUSDT_FULL
)

// Bounds of the usdt engine's kernel side.
const (
	MaxUSDTGuests = 4096 // processes at once: MAX_USDT_GUESTS
	MaxUSDTProbes = 64   // probe sites of all builds of interpreters: MAX_USDT_PROBES
)

// LoadUSDT loads the usdt engine's object next to o's. The caller closes it, before o.
func (o *Objects) LoadUSDT() (*UsdtObjects, error) {
	spec, err := LoadUsdt()
	if err != nil {
		return nil, fmt.Errorf("read usdt object: %w", err)
	}
	var usdt UsdtObjects
	if err := o.LoadBeside(spec, &usdt); err != nil {
		return nil, fmt.Errorf("load usdt programs: %w", err)
	}
	return &usdt, nil
}

// Named is who called whom. Its header is empty.
func (e *USDTEdge) Named() *NamedCall {
	return (*NamedCall)(unsafe.Pointer(&e.Names)) // the same struct of call.h, generated twice
}

// The generated structs of exact tracing under the names that the rest of the program uses.
// Layouts: exact.h.
type (
	ExactNode   = ExactExactNode
	ExactEdge   = ExactExactEdge
	ExactMethod = ExactExactMethod
	ExactThread = ExactExactThread
	NewMethod   = ExactNewMethod

	ExactAllocation  = ExactExactObjectsKey
	ExactAllocations = ExactExactObjects
)

// An ExactCounter counts something of exact tracing; enum exact_counter in exact.h says what, and
// which identities hold.
type ExactCounter = ExactExactCounter

// Counters of exact tracing.
const (
	ExactEntries  = ExactExactCounterEXACT_ENTRIES
	ExactExits    = ExactExactCounterEXACT_EXITS
	ExactNoThread = ExactExactCounterEXACT_NO_THREAD
	ExactNoNode   = ExactExactCounterEXACT_NO_NODE
	ExactTooDeep  = ExactExactCounterEXACT_TOO_DEEP
	ExactNoEdge   = ExactExactCounterEXACT_NO_EDGE
	ExactNoMethod = ExactExactCounterEXACT_NO_METHOD
	ExactNoRecord = ExactExactCounterEXACT_NO_RECORD
	ExactUnplaced = ExactExactCounterEXACT_UNPLACED
	ExactUnwound  = ExactExactCounterEXACT_UNWOUND
	ExactStray    = ExactExactCounterEXACT_STRAY
	ExactBefore   = ExactExactCounterEXACT_BEFORE

	ExactAllocated = ExactExactCounterEXACT_OBJECTS
	ExactUncounted = ExactExactCounterEXACT_NO_OBJECT

	exactCounterCount = ExactExactCounterEXACT_COUNTER_COUNT
)

// ExactCounts are all counters of exact tracing at one moment, summed over CPUs.
type ExactCounts [exactCounterCount]uint64

// ExactDepth is how many frames of a thread have their own context: EXACT_DEPTH.
const ExactDepth = 4096

// ExactLost in the node of an ExactAllocation says that the context itself found no room, and this
// is the deepest one known: EXACT_LOST.
const ExactLost = 1 << 31

// ExactOptions size the maps of exact tracing, which are allocated when it is loaded. 0 means the
// default.
type ExactOptions struct {
	PID     int  // ID of the one process that is traced
	NoEdges bool // only the tree
	Nodes   int  // contexts, 120 bytes each; 0 means DefaultExactNodes
	Edges   int  // edges of the call graph, 110 bytes each; 0 means DefaultExactEdges
	Threads int  // at once, 70 KB each; 0 means DefaultExactThreads
	Methods int  // methods in all class epochs, 80 bytes each; 0 means DefaultExactMethods

	Heap    *HotspotHeap // layout of its objects, to count them too; nil if they are not counted
	Objects int          // pairs of context and class, 90 bytes each; 0 means DefaultExactObjects
}

// Defaults of ExactOptions: 220 MB in all.
const (
	DefaultExactNodes   = 1 << 20
	DefaultExactEdges   = 1 << 18
	DefaultExactThreads = 512
	DefaultExactMethods = 1 << 18
	DefaultExactObjects = 1 << 20 // another 90 MB
)

// threadRecords is how many threads are remembered by name when they are gone, 100 bytes each.
const threadRecords = 1 << 14

// LoadExact loads the programs of exact tracing, with the maps that they share with o. They record
// once they are attached and the process is in o.Processes. The caller closes the result, before o.
func (o *Objects) LoadExact(opt ExactOptions) (*ExactObjects, error) {
	spec, err := LoadExact()
	if err != nil {
		return nil, fmt.Errorf("read object of exact tracing: %w", err)
	}
	if err := opt.apply(spec); err != nil {
		return nil, err
	}
	var objects ExactObjects
	if err := o.LoadBeside(spec, &objects); err != nil {
		return nil, fmt.Errorf("load programs of exact tracing: %w", err)
	}
	if opt.Heap != nil {
		if err := objects.Heaps.Update(uint32(opt.PID), opt.Heap, ebpf.UpdateAny); err != nil {
			objects.Close()
			return nil, fmt.Errorf("register the heap: %w", err)
		}
	}
	return &objects, nil
}

func (opt ExactOptions) apply(spec *ebpf.CollectionSpec) error {
	nodes := size(opt.Nodes, DefaultExactNodes)
	for name, entries := range map[string]uint32{
		"node_ids": nodes, "nodes": nodes + 1, "edges": size(opt.Edges, DefaultExactEdges),
		"threads": size(opt.Threads, DefaultExactThreads), "methods": size(opt.Methods, DefaultExactMethods),
		"thread_records": threadRecords, "allocations": opt.objects(),
	} {
		spec.Maps[name].MaxEntries = entries
	}
	err := errors.Join(
		spec.Variables["target"].Set(uint32(opt.PID)),
		spec.Variables["max_nodes"].Set(nodes+1), // number 0 is none
		spec.Variables["record_edges"].Set(!opt.NoEdges),
	)
	if err != nil {
		return fmt.Errorf("set constants: %w", err)
	}
	return nil
}

// objects is the size of the map of allocations.
func (opt ExactOptions) objects() uint32 {
	if opt.Heap == nil {
		return 1
	}
	return size(opt.Objects, DefaultExactObjects)
}

func size(n, otherwise int) uint32 {
	if n <= 0 {
		n = otherwise
	}
	return uint32(n)
}

// ReadCounts reads all counters of exact tracing. While calls are counted, sums of different
// counters can be off by those in flight.
func (o *ExactMaps) ReadCounts() (ExactCounts, error) {
	var c ExactCounts
	var perCPU []uint64
	for i := range c {
		if err := o.ExactCounters.Lookup(uint32(i), &perCPU); err != nil {
			return c, fmt.Errorf("read counter %d of exact tracing: %w", i, err)
		}
		for _, n := range perCPU {
			c[i] += n
		}
	}
	return c, nil
}
