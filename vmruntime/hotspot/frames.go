package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// frames names the place at pc, innermost first. exact tells that pc was sampled; otherwise it is a return address.
func (c *code) frames(pc uint64, exact bool) []vmruntime.Frame {
	first, recorded := c.scopeAt(pc, exact)
	if first == noScope {
		if c.scopes == nil {
			return []vmruntime.Frame{c.frame(c.own, -1, 0)}
		}
		leaf := c.frame(c.own, -1, c.ownLine)
		leaf.Approximate = !recorded
		return []vmruntime.Frame{leaf}
	}
	var frames []vmruntime.Frame
	for i := first; i != noScope && len(frames) < maxInlining; {
		s := c.scopes.scopes[i]
		frames = append(frames, c.frame(c.sources[s.method], int(s.bci), int(s.line)))
		i = s.sender
	}
	frames[0].Approximate = exact && !recorded && !c.complete
	return frames
}

// scopeAt returns the innermost scope at pc, noScope if only the compiled method itself is known. recorded tells that
// the VM says so; otherwise a method that was inlined may be missing.
func (c *code) scopeAt(pc uint64, exact bool) (first int32, recorded bool) {
	if c.scopes == nil {
		return noScope, false
	}
	offset := int32(pc - c.begin)
	first, recorded = c.scopes.at(offset)
	if exact && offset < c.frameComplete {
		return noScope, true // the prologue belongs to the method itself
	}
	if !exact && !recorded {
		return noScope, recorded // HotSpot records every return address: this is none, so do not guess what is inlined
	}
	return first, recorded
}

func (c *code) frame(from *source, bci, line int) vmruntime.Frame {
	return vmruntime.Frame{
		Function:  from.function,
		Signature: from.signature,
		File:      from.file,
		Line:      line,
		BCI:       bci,
		Tier:      c.tier,
	}
}
