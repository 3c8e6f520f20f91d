package estimate

import "math"

// A network is the codes of an input and who calls whom.
type network struct {
	cpu      float64 // seconds that the guest's threads took in the window
	calls    []call
	links    []link
	into     [][]int32  // by callee: indexes of links
	spent    []spent    // by CodeID
	output   []CodeID   // by CodeID: the unknown that calls out of the code depend on
	scale    CodeID     // the unknown by which all rates that follow from the time of calls are too low together
	unknowns int        // codes, outputs that are unknowns of their own, and scale
	evidence []Evidence // by CodeID, after solve
}

// A spent is how much time a code took: samples.
type spent struct{ samples, atEdge float64 }

// A link is all calls of one code by another.
type link struct {
	from, to        CodeID
	samples, atEdge float64
	// perEntry is how often from calls to per entry by its profiles, as far as they know; 0 if they do not. spread is
	// the variance of its logarithm.
	perEntry, spread float64
	covered          float64 // part of the calls that perEntry is about, 0 to 1
	share            float64 // of the entries into to
	calls            []int32 // indexes of calls
	profile          float64 // perEntry before observations
}

func newNetwork(in *Input, frequencies frequencies) *network {
	n := &network{into: make([][]int32, len(in.Codes)), spent: make([]spent, len(in.Codes))}
	n.calls = collect(in)
	n.calls = append(n.calls, unseen(in, frequencies, n.calls)...)
	attribute(in, frequencies, n.calls)
	samples := 0.
	for i := range n.calls {
		c := &n.calls[i]
		samples += c.samples
		n.spent[c.callee].samples += c.samples
		n.spent[c.callee].atEdge += c.atEdge
	}
	switch {
	case in.CPU > 0:
		n.cpu = in.CPU
	case samples > 0:
		n.cpu = samples * in.Period
	default:
		n.cpu = in.Duration
	}
	n.link()
	n.connect()
	return n
}

// link gathers calls into links, in the order of the first call of each.
func (n *network) link() {
	type key struct{ from, to CodeID }
	at := map[key]int32{}
	for i := range n.calls {
		c := &n.calls[i]
		k := key{c.caller, c.callee}
		j, ok := at[k]
		if !ok {
			j = int32(len(n.links))
			at[k] = j
			n.links = append(n.links, link{from: c.caller, to: c.callee})
			n.into[c.callee] = append(n.into[c.callee], j)
		}
		l := &n.links[j]
		l.calls = append(l.calls, int32(i))
		l.samples += c.samples
		l.atEdge += c.atEdge
		if c.perEntry > 0 {
			l.perEntry += c.perEntry
			l.covered += c.samples
		}
	}
	for i := range n.links {
		l := &n.links[i]
		l.profile = l.perEntry
		if l.samples > 0 {
			l.covered /= l.samples
		} else {
			l.covered = 1
		}
	}
}

// known reports whether what calls make of the callee's rate follows from the caller's.
func (l *link) known() bool { return l.from != VM && l.perEntry > 0 && l.covered > 0 }

// inflow is how many entries a second a link makes by the rate of its caller.
func (n *network) inflow(l *link, x []float64) float64 {
	return l.perEntry * math.Exp(x[n.output[l.from]])
}

// connect gives an unknown of its own to the output of each code that several links lead out of. When a profile is
// of another phase, it is usually wrong about all of them by the same factor: one branch of the method was taken more
// often then. So it is one thing that is wrong, and not as many as there are links.
func (n *network) connect() {
	n.unknowns = len(n.into)
	links := make([]int, len(n.into))
	for i := range n.links {
		if l := &n.links[i]; l.from != VM && l.from != l.to {
			links[l.from]++
		}
	}
	n.output = make([]CodeID, len(n.into))
	for c := range n.output {
		n.output[c] = CodeID(c)
		if links[c] > 1 {
			n.output[c] = CodeID(n.unknowns)
			n.unknowns++
		}
	}
	n.scale = CodeID(n.unknowns)
	n.unknowns++
}
