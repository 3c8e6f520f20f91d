package estimate

import (
	"container/heap"
	"math"
)

// A network is the codes of an input and the calls between them.
type network struct {
	cpu      float64 // CPU seconds of the process's threads in the window
	calls    []call
	links    []link
	into     [][]int32  // by callee: indexes of links
	spent    []spent    // by CodeID
	output   []CodeID   // by CodeID: the unknown that calls out of the code depend on
	scale    CodeID     // the unknown for the common error of all rates from the time of calls
	body     CodeID     // the unknown for the common error of all guesses from the time in bodies
	worker   CodeID     // the unknown for the common error of all rates from the time that known work takes
	work     []float64  // by CodeID: seconds per entry that the counted bytecode takes; 0 if unknown
	unknowns int        // codes, outputs that are unknowns of their own, scale, body and worker
	evidence []Evidence // by CodeID, after solve
}

// A spent is the time of a code, in samples.
type spent struct{ samples, atEdge float64 }

// A link is all calls of one code by another.
type link struct {
	from, to        CodeID
	samples, atEdge float64
	// perEntry is how often from calls to per entry according to its profiles; 0 if unknown. spread
	// is the variance of its logarithm.
	perEntry, spread float64
	covered          float64 // share of the calls that perEntry covers, 0 to 1
	share            float64 // share of the entries into to
	calls            []int32 // indexes of calls
	profile          float64 // perEntry before observations
	// counted is how many calls per second of CPU time the VM counted in the window, 0 if unknown;
	// noise is the variance of its logarithm.
	counted, noise float64
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
	rates, variances := in.made(n)
	for i := range n.links {
		n.links[i].counted, n.links[i].noise = rates[i]*in.Duration/n.cpu, variances[i]
	}
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

// known reports whether the link gives the callee's rate from the caller's.
func (l *link) known() bool { return l.counted > 0 || l.follows() }

// follows reports whether the caller's profiles give the callee's rate from the caller's.
func (l *link) follows() bool { return l.from != VM && l.perEntry > 0 && l.covered > 0 }

// inflow is the number of entries a second that a link makes at the rate of its caller.
func (n *network) inflow(l *link, x []float64) float64 {
	if l.counted > 0 {
		return l.counted
	}
	return l.perEntry * math.Exp(x[n.output[l.from]])
}

// connect gives an unknown of its own to the output of each code with several outgoing links. A
// profile from another phase is usually wrong about all of them by the same factor: one branch of
// the method was taken more often then. So that is one error, not one per link.
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
	n.scale, n.body, n.worker = CodeID(n.unknowns), CodeID(n.unknowns+1), CodeID(n.unknowns+2)
	n.unknowns += 3
}

// outputVariance is the variance of the logarithm of the factor by which all of a code's calls
// differ from its profiles.
const outputVariance = 0.005

// Weights of the sources for how entries divide among callers, in numbers of samples.
const (
	// bodyWeight is the weight of all samples in the callee's body together. Time in the body may
	// depend on the caller: many biased samples are no better than few.
	bodyWeight = 10
	// profileWeight is the weight of the callers' rates and profiles.
	profileWeight = 8
	// smallShare is the variance of the logarithm of a share, per square of that logarithm.
	smallShare = 0.08
)

// divide sets how the entries of each code divide among the links into it, for rates exp(x). The
// shares are the mean of a Dirichlet distribution. Its parameters are samples at the edges, samples
// in the body, and the counts of those callers that have profiles.
func (n *network) divide(x []float64, profiles bool) {
	for c := range n.into {
		n.divideAmong(n.into[c], n.spent[c], x, profiles)
	}
}

func (n *network) divideAmong(into []int32, t spent, x []float64, profiles bool) {
	body := 1.
	if b := t.samples - t.atEdge; b > bodyWeight {
		body = bodyWeight / b
	}
	sum, known, inflow := 0., 0., 0.
	for _, i := range into {
		l := &n.links[i]
		l.share = l.atEdge + body*(l.samples-l.atEdge)
		sum += l.share
		if profiles && l.known() {
			known += l.share
			inflow += n.inflow(l, x)
		}
	}
	if inflow > 0 {
		// Profiles divide what samples leave to the callers with profiles, and all of it without
		// samples.
		weight := 1.
		scale := 1.
		if sum > 0 {
			weight = profileWeight * known / sum
			scale = 1 + profileWeight/sum
		}
		for _, i := range into {
			if l := &n.links[i]; l.known() {
				l.share += weight * n.inflow(l, x) / inflow
			} else {
				l.share *= scale
			}
		}
	}
	total := 0.
	for _, i := range into {
		total += n.links[i].share
	}
	for _, i := range into {
		if total > 0 {
			n.links[i].share /= total
		} else { // only stacks show that there are such calls
			n.links[i].share = 1 / float64(len(into))
		}
	}
}

// variance is the variance of the logarithm of a callee's rate over its caller's, by a link.
func (n *network) variance(l *link) float64 {
	// With one caller, the share has no variance. Small shares are less certain than their samples
	// suggest: an error of a few calls in a large number is all of a small share.
	part := l.share * l.covered
	samples := n.spent[l.to].samples + profileWeight
	return max(1-part, 1e-3)/part/samples + smallShare*math.Log(part)*math.Log(part) + l.spread
}

// firm reports whether a link gives information about rates.
func (l *link) firm() bool { return l.follows() && l.from != l.to && l.share*l.covered > 1e-9 }

// equations adds what the links say about the rates of callers and callees, with the present
// shares: the callee's rate times the share is the caller's rate times the calls per entry.
func (n *network) equations(to []equation) []equation {
	for c, output := range n.output {
		if output != CodeID(c) {
			to = append(to, equation{
				to: output, from: CodeID(c), variance: outputVariance, freedom: rarely, evidence: Profiles,
			})
		}
	}
	for i := range n.links {
		l := &n.links[i]
		if l.counted > 0 && l.share > 1e-9 {
			others := 0. // few samples do not show how much other callers call
			if len(n.into[l.to]) > 1 {
				others = 1 / (1 + n.spent[l.to].samples)
			}
			to = append(to, equation{
				to: l.to, from: VM, value: near(logRatio(l.counted, l.share)), variance: l.noise +
					n.shareVariance(l.to, l.share) + others,
				freedom: often, evidence: Counter,
			})
		}
		if !l.firm() {
			continue
		}
		to = append(to, equation{
			to: l.to, from: n.output[l.from], value: near(logRatio(l.perEntry, l.share*l.covered)),
			variance: n.variance(l), freedom: often, evidence: Profiles,
		})
	}
	return to
}

// spread returns the variance of every code's rate if those of some are known: along the best path
// of links, each of which adds its own variance (Dijkstra, 1959). from is the code where that path
// begins, VM if there is none.
func (n *network) spread(start []float64) (variance []float64, from []CodeID) {
	variance, from = make([]float64, len(start)), make([]CodeID, len(start))
	links := make([][]int32, len(start))
	for i := range n.links {
		if l := &n.links[i]; l.firm() {
			links[l.from] = append(links[l.from], int32(i))
			links[l.to] = append(links[l.to], int32(i))
		}
	}
	q := &queue{}
	for c, v := range start {
		variance[c], from[c] = v, VM
		if !math.IsInf(v, 1) {
			from[c] = CodeID(c)
			heap.Push(q, step{CodeID(c), v})
		}
	}
	for q.Len() > 0 {
		s := heap.Pop(q).(step)
		if s.variance > variance[s.code] {
			continue
		}
		for _, i := range links[s.code] {
			l := &n.links[i]
			next := l.to
			if next == s.code {
				next = l.from
			}
			if v := s.variance + n.variance(l); v < variance[next] {
				variance[next], from[next] = v, from[s.code]
				heap.Push(q, step{next, v})
			}
		}
	}
	return variance, from
}

// A step is a code on the path, and the variance there.
type step struct {
	code     CodeID
	variance float64
}

// A queue is a heap with the least variance first (container/heap).
type queue []step

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].variance < q[j].variance }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(s any)        { *q = append(*q, s.(step)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	s := (*q)[last]
	*q = (*q)[:last]
	return s
}
