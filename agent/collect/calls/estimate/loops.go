package estimate

// splitLoops returns the input with methods of their own for the outermost methods of Loops. Of
// these, nothing is known per entry. But the VM's counts say how often a method makes each of its
// calls for each of its most frequent one, and so what a loop does per iteration.
func (in *Input) splitLoops() *Input {
	out := *in
	of := map[MethodID]MethodID{}
	out.Codes = append([]Code(nil), in.Codes...)
	out.Methods = append([]Profile(nil), in.Methods...)
	for c := range out.Codes {
		code := &out.Codes[c]
		if !code.Loop || !in.has(CodeID(c)) {
			continue
		}
		m, ok := of[code.Method]
		if !ok {
			m = MethodID(len(out.Methods))
			of[code.Method] = m
			out.Methods = append(out.Methods, in.Methods[code.Method].iterations())
			out.loops = append(out.loops, code.Method)
		}
		if len(code.Copies) > 0 && code.Copies[0].Method == code.Method {
			code.Copies = append([]Copy(nil), code.Copies...)
			code.Copies[0].Method = m
		}
		code.Method = m
	}
	if len(of) == 0 {
		return in
	}
	out.Edges = append([]Edge(nil), in.Edges...)
	for i := range out.Edges {
		e := &out.Edges[i]
		last := len(e.Site) - 1
		if last < 0 || !in.has(e.Caller) || !in.Codes[e.Caller].Loop ||
			e.Site[last].Method != in.Codes[e.Caller].Method {
			continue
		}
		e.Site = append([]Place(nil), e.Site...)
		e.Site[last].Method = out.Codes[e.Caller].Method
	}
	return &out
}

// iterations returns the profile of a method's loop: an execution of the method's most frequent
// call counts as one invocation. What the VM counted in the window stays that of the whole method.
func (p *Profile) iterations() Profile {
	out := Profile{Work: p.Work, Sites: p.Sites, Known: p.Known, Covered: p.Covered}
	for i := range p.Sites {
		if n := p.Sites[i].Count; sensible(n) {
			out.Invocations = max(out.Invocations, n)
		}
	}
	if out.Invocations < minInvocations {
		return Profile{}
	}
	return out
}

// counter is the method in which a call at a place is counted.
func (in *Input) counter(m MethodID) MethodID {
	if i := int(m) - len(in.Methods) + len(in.loops); m >= 0 && i >= 0 && i < len(in.loops) {
		return in.loops[i]
	}
	return m
}

// joinLoops gives calls in the methods that splitLoops added back to the methods that they are of.
func (in *Input) joinLoops(calls callSet) {
	for key, found := range calls {
		if key.callee != in.counter(key.callee) { // an invalid reference of the input
			delete(calls, key)
			continue
		}
		if m := in.counter(key.caller.Method); m != key.caller.Method {
			delete(calls, key)
			key.caller.Method = m
			calls.sum(key, found)
		}
	}
}
