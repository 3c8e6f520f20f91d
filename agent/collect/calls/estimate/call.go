package estimate

import (
	"encoding/binary"
	"slices"
)

// A siteKey identifies a call site of a code: all places in the machine code that share one inline
// chain.
type siteKey struct {
	caller CodeID
	chain  string
}

func keyOf(caller CodeID, site []Place) siteKey {
	b := make([]byte, 0, 8*len(site))
	for _, p := range site {
		b = binary.LittleEndian.AppendUint32(b, uint32(p.Method))
		b = binary.LittleEndian.AppendUint32(b, uint32(p.BCI))
	}
	return siteKey{caller, string(b)}
}

// A call is all samples of one callee from one site. The machine code may contain the same call
// several times.
type call struct {
	caller, callee  CodeID
	site            []Place // empty if unknown
	samples, atEdge float64
	perEntry        float64 // calls per entry of the caller according to its profile; 0 if unknown
}

// collect merges the edges of an input into calls, in their order.
func collect(in *Input) []call {
	type key struct {
		site   siteKey
		callee CodeID
	}
	var list []call
	at := map[key]int{}
	for i := range in.Edges {
		e := &in.Edges[i]
		if !in.has(e.Callee) || !sensible(e.Samples) || !sensible(e.AtEdge) {
			continue
		}
		caller, site := e.Caller, e.Site
		if !in.has(caller) {
			caller, site = VM, nil
		}
		if !in.knows(site) {
			site = nil
		}
		k := key{keyOf(caller, site), e.Callee}
		j, ok := at[k]
		if !ok {
			j = len(list)
			at[k] = j
			list = append(list, call{caller: caller, callee: e.Callee, site: site})
		}
		list[j].samples += e.Samples
		list[j].atEdge += min(e.AtEdge, e.Samples)
	}
	return list
}

// has reports whether there is such a code.
func (in *Input) has(c CodeID) bool {
	return c >= 0 && int(c) < len(in.Codes) && in.knowsMethod(in.Codes[c].Method)
}

func (in *Input) knowsMethod(m MethodID) bool { return m >= 0 && int(m) < len(in.Methods) }

func (in *Input) knows(site []Place) bool {
	return !slices.ContainsFunc(site, func(p Place) bool { return !in.knowsMethod(p.Method) })
}

// sensible reports whether x can be a count.
func sensible(x float64) bool { return x >= 0 && finite(x) }

// attribute sets how often calls are made per entry of their callers. Calls of one site that its
// profile does not attribute share its remaining count in proportion to their samples.
func attribute(in *Input, frequencies frequencies, list []call) {
	sites := map[siteKey][]*call{}
	var order []siteKey
	for i := range list {
		c := &list[i]
		if c.caller == VM || len(c.site) == 0 || in.Codes[c.callee].Loop {
			continue
		}
		k := keyOf(c.caller, c.site)
		if sites[k] == nil {
			order = append(order, k)
		}
		sites[k] = append(sites[k], c)
	}
	for _, k := range order {
		group := sites[k]
		site := group[0].site
		frequency := frequencies[site[0]]
		entries, ok := frequencies.chain(site)
		if frequency == nil || !ok {
			continue
		}
		// If a method has several codes, they share the method's count.
		byMethod, rest := map[MethodID]float64{}, 0.0
		for _, c := range group {
			method := in.Codes[c.callee].Method
			byMethod[method] += c.weight()
			if frequency.calls(method) == 0 {
				rest += c.weight()
			}
		}
		for _, c := range group {
			method := in.Codes[c.callee].Method
			if calls := frequency.calls(method); calls > 0 {
				c.perEntry = entries * calls * c.weight() / byMethod[method]
			} else {
				c.perEntry = entries * frequency.rest() * c.weight() / rest
			}
		}
	}
}

// weight divides a total over several calls: samples at an edge are closer to the number of calls
// than other samples.
func (c *call) weight() float64 { return c.atEdge + 0.15*c.samples + 0.01 }

// unseen returns the calls that no timer sample shows, but that profiles count and the callers'
// code makes, to methods with code of their own. Wrappers of native methods are left out: if a
// compiler replaces a native method, its code still contains the call for the cases that the
// replacement cannot handle. Most call sites of a program are unsampled: a call takes some
// nanoseconds, and the next sample is milliseconds away. seen are the sampled calls.
func unseen(in *Input, f frequencies, seen []call) []call {
	u := unseenCalls{in: in, frequencies: f, entries: entryCodes(in, samplesOf(in, seen)), known: map[knownCall]bool{}}
	for i := range seen {
		if c := &seen[i]; c.caller != VM && len(c.site) > 0 {
			u.known[knownCall{keyOf(c.caller, c.site), in.Codes[c.callee].Method}] = true
		}
	}
	for c := range in.Codes {
		if id := CodeID(c); in.has(id) {
			u.code(id)
		}
	}
	return u.found
}

// maxUnseen bounds the number of added calls, about 100 bytes each.
const maxUnseen = 1 << 17

type unseenCalls struct {
	in          *Input
	frequencies frequencies
	entries     map[MethodID]CodeID
	known       map[knownCall]bool
	found       []call
}

// A knownCall is all calls of a method from one site.
type knownCall struct {
	siteKey
	callee MethodID
}

// samplesOf returns the samples of each code.
func samplesOf(in *Input, calls []call) []float64 {
	samples := make([]float64, len(in.Codes))
	for i := range calls {
		samples[calls[i].callee] += calls[i].samples
	}
	return samples
}

func (u *unseenCalls) code(id CodeID) {
	code := &u.in.Codes[id]
	if code.Tier == Native || code.Replaced {
		return
	}
	if code.Tier == Interpreted {
		u.sites(id, code.Method, nil, nil)
		return
	}
	tree, ok := newCopyTree(u.in, id)
	if !ok {
		return
	}
	for i := range code.Copies {
		c := &code.Copies[i]
		chain := tree.chain(int32(i))
		u.sites(id, c.Method, chain[1:], func(bci int32, callee MethodID) bool {
			return c.makes(bci) && !tree.inlined(int32(i), bci, callee)
		})
	}
}

// sites adds the calls of one method's body. outer is where the body was inlined; made reports
// which of its sites are calls.
func (u *unseenCalls) sites(id CodeID, m MethodID, outer []Place, made func(bci int32, callee MethodID) bool) {
	for s := range u.in.Methods[m].Sites {
		at := Place{m, u.in.Methods[m].Sites[s].BCI}
		f := u.frequencies[at]
		if f == nil {
			continue
		}
		site := append([]Place{at}, outer...)
		key := keyOf(id, site)
		for _, t := range f.targets {
			callee, ok := u.entries[t.Method]
			if !ok || u.in.Codes[callee].Tier == Native || made != nil && !made(at.BCI, t.Method) ||
				u.known[knownCall{key, t.Method}] {
				continue
			}
			if len(u.found) < maxUnseen {
				u.found = append(u.found, call{caller: id, callee: callee, site: site})
			}
		}
	}
}

// entryCodes returns the code that calls of each method enter: the one with the most samples,
// otherwise the last one.
func entryCodes(in *Input, samples []float64) map[MethodID]CodeID {
	entries := map[MethodID]CodeID{}
	for c := range in.Codes {
		id, code := CodeID(c), &in.Codes[c]
		if !in.has(id) || code.Loop || code.Replaced || code.Tier == Interpreted {
			continue
		}
		before, ok := entries[code.Method]
		if !ok || samples[c] >= samples[before] {
			entries[code.Method] = id
		}
	}
	return entries
}
