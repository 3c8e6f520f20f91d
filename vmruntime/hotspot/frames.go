package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// frames names the place at pc, innermost first. exact tells that pc was sampled; otherwise it is a return address.
func (c *code) frames(pc uint64, exact bool) []vmruntime.Frame {
	if c.scopes == nil {
		return []vmruntime.Frame{c.frame(c.own, -1, 0)}
	}
	offset := int32(pc - c.begin)
	first, recorded := c.scopes.at(offset)
	if exact && offset < c.frameComplete {
		first, recorded = noScope, true // the prologue belongs to the method itself
	}
	if !exact && !recorded {
		first = noScope // HotSpot records every return address: this is none, so do not guess what is inlined
	}
	if first == noScope {
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
