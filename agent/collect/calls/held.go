package calls

import (
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// MaxHeld is the maximum number of a burst's samples that wait for its end. Longer bursts are
// handed out in parts.
const MaxHeld = 4096

// Held are the samples of one burst that wait until it is known how many calls they stand for. The
// zero value holds none.
//
// A burst is handed out in parts if the end of a window cuts it, or if it has more than MaxHeld
// samples. Its parts together stand for as many calls as the burst in one piece would: each part
// stands for the burst's calls up to there, less those of earlier parts. If calls become rarer in
// the middle of a burst, the first part may already have stood for more than the whole burst; then
// the rest stands for nothing.
type Held struct {
	edges  []profile.Edge
	handed float64 // calls that earlier parts stood for
}

// Hold takes a sample.
func (h *Held) Hold(e profile.Edge) { h.edges = append(h.edges, e) }

// Len returns the number of waiting samples.
func (h *Held) Len() int { return len(h.edges) }

// Full reports whether a part must be handed out.
func (h *Held) Full() bool { return len(h.edges) >= MaxHeld }

// HandOut passes the waiting samples to add, as the next part of a burst that stands for total
// calls up to here.
func (h *Held) HandOut(total float64, add func(profile.Edge, float64)) {
	if len(h.edges) > 0 {
		h.part(max(0, total-h.handed)/float64(len(h.edges)), add)
	}
}

// HandOutSingly passes the waiting samples to add; each stands for one call.
func (h *Held) HandOutSingly(add func(profile.Edge, float64)) { h.part(1, add) }

func (h *Held) part(weight float64, add func(profile.Edge, float64)) {
	edges := h.edges
	h.edges = nil // first: if add panics, none is handed out twice
	h.handed += weight * float64(len(edges))
	for _, e := range edges {
		add(e, weight)
	}
}

// Drop discards the waiting samples and returns how many there were.
func (h *Held) Drop() int {
	n := len(h.edges)
	h.edges = nil
	return n
}

// Ticks returns how many ticks a burst answers up to a sample. The tick that began it counts for
// all of its samples: those yet to come keep their part of it.
func Ticks(ticks uint32, toCome, samples float64) float64 {
	if samples <= 0 {
		return float64(ticks)
	}
	return max(0, float64(ticks)-min(1, max(0, toCome/samples)))
}
