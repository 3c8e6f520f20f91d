package estimate

// unseen returns the calls that the timer has not seen, but that profiles count and that the code of their callers
// makes, to methods that have code of their own. Wrappers of native methods are left out: where compilers have something
// of their own in a native method's place, the call is still in the code, for what that cannot do. Most of a program's call sites are like that: a call
// takes some nanoseconds, and the next sample is milliseconds away. seen are the others.
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

// maxUnseen bounds the calls that are added, about 100 bytes each.
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
	if code.Tier == Native || code.Loop || code.Replaced {
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

// sites adds the calls of one method's body: outer is where it was inlined, made tells which of its sites are calls.
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
			if !ok || u.in.Codes[callee].Tier == Native || made != nil && !made(at.BCI, t.Method) || u.known[knownCall{key, t.Method}] {
				continue
			}
			if len(u.found) < maxUnseen {
				u.found = append(u.found, call{caller: id, callee: callee, site: site})
			}
		}
	}
}

// entryCodes says which code calls of a method enter: that with the most samples, or else the last one.
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
