package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// frames names the place at pc, innermost first. exact tells that pc was sampled; otherwise it is a return address.
func (c *code) frames(pc uint64, exact bool) []vmruntime.Frame {
	at := c.placeOf(pc, exact)
	if at.scope == noScope {
		leaf := c.frame(c.own, -1, 0)
		if at.located {
			leaf.Line = c.ownLine
		}
		leaf.Approximate = !at.recorded && c.tier != vmruntime.TierNative && !c.own.leaf
		return []vmruntime.Frame{leaf}
	}
	var frames []vmruntime.Frame
	for i := at.scope; i != noScope && len(frames) < maxInlining; {
		s := c.scopes.scopes[i]
		frames = append(frames, c.frame(c.sources[s.method], int(s.bci), int(s.line)))
		i = s.sender
	}
	if !at.located {
		frames[0].BCI, frames[0].Line = -1, 0
	}
	frames[0].Approximate = !at.recorded && !c.sources[c.scopes.scopes[at.scope].method].leaf
	return frames
}

// placeOf returns what is known of pc.
func (c *code) placeOf(pc uint64, exact bool) place {
	if c.scopes == nil {
		return place{scope: noScope}
	}
	offset := int32(pc - c.begin)
	own := place{scope: noScope, located: true, recorded: true}
	if exact && offset < c.frameComplete {
		return own // the prologue belongs to the method itself
	}
	at := c.scopes.at(offset)
	if !exact && !at.recorded {
		return own // HotSpot records every return address: this is none, so do not guess what is inlined
	}
	return at
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
