package estimate

import (
	"cmp"
	"math"
	"slices"
)

// A hearing is what all windows together heard.
type hearing struct {
	codes []heard         // by CodeID
	pairs map[pair]*joint // of codes in the same windows
}

// A pair is two codes.
type pair struct{ from, to CodeID }

func listen(in *Input) *hearing {
	h := &hearing{codes: make([]heard, len(in.Codes)), pairs: map[pair]*joint{}}
	for i := range in.Windows {
		h.add(in, &in.Windows[i])
	}
	return h
}

// minKnown is the part of a window that must not be hits for its time to be known.
const minKnown = 0.3

func (h *hearing) add(in *Input, w *Window) {
	if !sensible(w.Armed) || !sensible(w.Length) {
		return
	}
	codes := slices.Clone(w.Codes)
	slices.Sort(codes)
	codes = slices.DeleteFunc(slices.Compact(codes), func(c CodeID) bool { return !in.has(c) })
	hits, total := make(map[CodeID]float64, len(codes)), 0.
	for _, hit := range w.Hits {
		if sensible(hit.Count) && slices.Contains(codes, hit.Callee) {
			hits[hit.Callee] += hit.Count
			total += hit.Count
		}
	}
	free := max(w.Armed-total*in.HitCost, 0)
	// A window that is mostly hits is as good as full: its time is not known.
	full := w.Full || free < minKnown*w.Armed
	for _, c := range codes {
		h.codes[c].add(sound{length: w.Length, hits: hits[c], armed: w.Armed, free: free, full: full && hits[c] > total/4})
	}
	for _, from := range codes {
		for _, to := range codes {
			if from == to {
				continue
			}
			j := h.pairs[pair{from, to}]
			if j == nil {
				j = &joint{}
				h.pairs[pair{from, to}] = j
			}
			j.windows++
			j.entries += hits[from]
			before := j.calls
			for _, hit := range w.Hits {
				if hit.Caller == from && hit.Callee == to && sensible(hit.Count) {
					j.calls += hit.Count
				}
			}
			if j.calls > before {
				j.met++
			}
			if full {
				j.full++
				if j.most == 0 || total < j.most {
					j.most = total
				}
				continue
			}
			j.from += hits[from]
			j.to += hits[to]
			j.fromSq += hits[from] * hits[from]
			j.toSq += hits[to] * hits[to]
		}
	}
}

// equations are what was heard about rates.
func (h *hearing) equations() []equation {
	var equations []equation
	for c := range h.codes {
		code := &h.codes[c]
		if rate, variance, ok := code.rate(); ok {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(rate), variance: variance,
				freedom: hardly, evidence: Listened,
			})
			continue
		}
		if least := code.atLeast(); least > 0 {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(least), variance: 0.5,
				freedom: rarely, bound: atLeast, evidence: Listened,
			})
		}
		if most, variance := code.atMost(); most > 0 {
			equations = append(equations, equation{
				to: CodeID(c), from: VM, value: math.Log(most), variance: variance,
				freedom: rarely, bound: atMost, evidence: Listened,
			})
		}
	}
	for _, p := range h.order() {
		if ratio, variance, ok := h.pairs[p].ratio(); ok && p.from < p.to {
			equations = append(equations, equation{
				to: p.to, from: p.from, value: math.Log(ratio), variance: variance,
				freedom: often, evidence: Listened,
			})
		}
	}
	return equations
}

// order lists the pairs in the order of their codes.
func (h *hearing) order() []pair {
	pairs := make([]pair, 0, len(h.pairs))
	for p := range h.pairs {
		pairs = append(pairs, p)
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(a.to, b.to)) })
	return pairs
}
