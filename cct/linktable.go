package cct

import "math/bits"

// A spot is a method at a depth, the key by which Inoue and Nakatani distinguish contexts. Depth 0
// is unknown, so spots of depth 0 are never looked up: frames without a depth do not match each
// other by their methods alone.
type spot[M comparable] struct {
	method M
	depth  uint32
}

// A spotID is an index into linkTable.spots. noSpot is the caller of an outermost frame.
type spotID uint32

const noSpot spotID = 0

// A hopID is an index into linkTable.hops; 0 is none.
type hopID uint32

// A linkTable interns the links that a Chain has learned. A hop is a link without weight: a call
// from a spot, at a site, to another spot. Every context ends with a hop, and those that end with
// the same one differ further out.
type linkTable[M, S comparable] struct {
	spots   []spotRecord[M] // [noSpot] is a dummy
	hops    []hopRecord[S]  // [0] is a dummy
	spotIDs map[spot[M]]spotID
	hopIDs  map[hopKey[S]]hopID
	methods map[M]spotID // the head of the method's list of spots
}

type spotRecord[M comparable] struct {
	spot[M]
	callers hopID  // head of the list of hops to here
	callees hopID  // head of the list of hops from here
	sibling spotID // the next spot of the method
}

type hopKey[S comparable] struct {
	callee, caller spotID
	site           S
}

type hopRecord[S comparable] struct {
	hopKey[S]
	nextCaller hopID  // the next hop to callee
	nextCallee hopID  // the next hop from caller
	contexts   NodeID // head of the list of contexts that end with this hop: see learned.next
	count      uint32 // number of contexts
	walked     uint64 // weight of the walks that went over this hop
	calls      uint64 // weight from Call
	heaviest   NodeID // the context ending with this hop that was on top in most walks; Root: none was
	doubt      uint8  // walks that must still agree with heaviest until the hop is steady
}

// spot returns the id of a method at a depth, or noSpot if there is none or the depth is unknown.
func (t *linkTable[M, S]) spot(method M, depth uint32) spotID {
	if depth == 0 {
		return noSpot
	}
	return t.spotIDs[spot[M]{method, depth}]
}

// hop returns the id of a link's hop, or 0.
func (t *linkTable[M, S]) hop(callee spotID, site S, caller spotID) hopID {
	return t.hopIDs[hopKey[S]{callee, caller, site}]
}

// addSpot returns the id of a method at a depth, which it adds if necessary.
func (t *linkTable[M, S]) addSpot(method M, depth uint32) spotID {
	key := spot[M]{method, depth}
	if id, known := t.spotIDs[key]; known {
		return id
	}
	if t.spotIDs == nil {
		t.spotIDs, t.methods = make(map[spot[M]]spotID), make(map[M]spotID)
	}
	if len(t.spots) == 0 {
		t.spots = append(t.spots, spotRecord[M]{})
	}
	id := spotID(len(t.spots))
	t.spots = append(t.spots, spotRecord[M]{spot: key, sibling: t.methods[method]})
	t.spotIDs[key], t.methods[method] = id, id
	return id
}

// addHop returns the id of a hop, which it adds if necessary, or 0 if that would exceed limit.
func (t *linkTable[M, S]) addHop(callee spotID, site S, caller spotID, limit int) hopID {
	key := hopKey[S]{callee, caller, site}
	if id, known := t.hopIDs[key]; known {
		return id
	}
	if t.hopIDs == nil {
		t.hopIDs = make(map[hopKey[S]]hopID)
	}
	if len(t.hops) == 0 {
		t.hops = append(t.hops, hopRecord[S]{})
	}
	if t.len() >= limit {
		return 0
	}
	id := hopID(len(t.hops))
	t.hops = append(t.hops, hopRecord[S]{
		hopKey:     key,
		nextCaller: t.spots[callee].callers,
		nextCallee: t.spots[caller].callees,
	})
	t.spots[callee].callers, t.spots[caller].callees = id, id
	t.hopIDs[key] = id
	return id
}

// part returns the fraction of the hop's walks that belongs to a context which ends with it and has
// this walked weight.
func (h *hopRecord[S]) part(walked uint64) float64 {
	if h.walked == 0 {
		return 1 / float64(h.count)
	}
	return float64(walked) / float64(h.walked)
}

// len returns the number of hops.
func (t *linkTable[M, S]) len() int { return max(len(t.hops)-1, 0) }

// purge forgets everything and keeps the memory.
func (t *linkTable[M, S]) purge() {
	clear(t.spots) // to release what methods and sites point to
	clear(t.hops)
	clear(t.spotIDs)
	clear(t.hopIDs)
	clear(t.methods)
	t.spots, t.hops = t.spots[:0], t.hops[:0]
}

// raise adds weight to a sum, which saturates at its largest value instead of wrapping around.
func raise(sum *uint64, weight uint64) {
	total, carry := bits.Add64(*sum, weight, 0)
	*sum = total | -carry
}
