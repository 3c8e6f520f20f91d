package bpf

// Types of the page engine's object. Layouts and units: burst.bpf.h.
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
