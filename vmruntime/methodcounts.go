package vmruntime

// A MethodCounts is what a VM has counted in one method so far, as numbers only: MethodProfile says
// what they are of. Two readings of it differ by what happened between them.
type MethodCounts struct {
	Method uint64
	// Data is where the VM counts the method's calls, 0 if it does not do so yet. At another place
	// it began anew.
	Data uint64
	// Unreadable reports that the VM counts, but its numbers could not be read or make no sense.
	Unreadable bool
	// Invocations of the method are those since its calls are counted. The VM keeps 29 or 31 bits
	// of them.
	Invocations uint64
	Before      uint64 // invocations before its calls were counted, as far as the VM kept them
	Sites       []SiteCounts
}

// A SiteCounts is what was counted at one call.
type SiteCounts struct {
	BCI    int
	Others uint64 // calls that are in no row: all of a call that has none, else those of receivers beyond the rows
	Rows   []RowCount
}

// A RowCount is how many receivers of a class a call had.
type RowCount struct{ Klass, Count uint64 }
