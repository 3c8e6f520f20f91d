package estimate

import "math"

// outputVariance is that of the logarithm of the factor by which all of a code's calls differ from its profiles.
const outputVariance = 0.005

// Weights of what says how entries divide among callers, in numbers of samples.
const (
	// bodyWeight is what all samples in the callee's body count for. Time in the body may depend on the caller: many
	// samples of a wrong thing are not better than few.
	bodyWeight = 10
	// profileWeight is what the callers' rates and profiles count for.
	profileWeight = 8
	// smallShare is the variance of the logarithm of a share, per square of that logarithm.
	smallShare = 0.08
)

// divide sets how the entries of each code divide among the links into it, for rates exp(x): the mean of a Dirichlet
// distribution whose parameters are samples at the edges, samples in the body, and what the profiles say of the callers
// that they know.
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
		// Profiles divide what samples leave to the callers that they know, and all of it where there are no samples.
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
		}
	}
}

// variance is that of the logarithm of a callee's rate over its caller's, by a link.
func (n *network) variance(l *link) float64 {
	// That of a share is none if there is one caller. Small shares are less certain than their samples say: what is
	// wrong with a few of a large number is all of a small one.
	part := l.share * l.covered
	samples := n.spent[l.to].samples + profileWeight
	return max(1-part, 1e-3)/part/samples + smallShare*math.Log(part)*math.Log(part) + l.spread
}

// firm reports whether a link says something about rates.
func (l *link) firm() bool { return l.known() && l.from != l.to && l.share*l.covered > 1e-9 }

// equations are what the links say about the rates of callers and callees, with the present shares: the callee's rate
// times the share is the caller's rate times the calls per entry.
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
