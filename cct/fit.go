package cct

// Fit says how well a link fits what a Chain has learned.
type Fit uint8

const (
	Unplaced  Fit = iota // nothing is known beyond the link
	Unique               // one context fits, as far as it is known: see Agreement.Whole
	Ambiguous            // several fit: they share the weight
	Fitted               // none fits; there are some if a part of the link is disregarded, which Basis names
)

var fits = [...]string{Unplaced: "unplaced", Unique: "unique", Ambiguous: "ambiguous", Fitted: "fitted"}

// String is the fit in one word.
func (f Fit) String() string { return fits[f] }

// Basis says what the candidates of a Placement rest upon.
type Basis uint8

const (
	// ByNothing: neither walks nor links know the place. Nearby depths are not tried: nothing would explain them.
	ByNothing Basis = iota
	// ByTooMany: there are more contexts than Place looks through.
	ByTooMany
	// ByLink: the leaf was seen below this caller, both at these depths.
	ByLink
	// ByCaller: the caller was seen at its depth, calling other methods or from other sites.
	ByCaller
	// ByPairs: links were chained, above a place where no walk was or beside what walks have found there.
	ByPairs
	// BySite: the leaf was seen at its depth below this caller and site, but not with the caller at this depth. As the
	// caller's frame has one size, the depth was not read right, or not at all. Fitted.
	BySite
	// ByLeaf: the caller is not known; the leaf was seen at its depth. This is the paper's own key. Fitted.
	ByLeaf
	// ByNeighbour: neither the caller is known nor was the leaf seen at this depth, but a caller or a callee of it was:
	// the registers are those from after its return or after its call (section 6.2 of the paper). Fitted.
	ByNeighbour
)

var bases = [...]string{
	ByNothing: "nothing", ByTooMany: "too many", ByLink: "link", ByCaller: "caller", ByPairs: "pairs", BySite: "site",
	ByLeaf: "leaf", ByNeighbour: "neighbour",
}

// String is the basis in one word.
func (b Basis) String() string { return bases[b] }
