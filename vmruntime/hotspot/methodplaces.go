package hotspot

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Names names places in methods, as the interpreter's frames are named. What Profiles has read of a
// method need not be read again but for its line table. Places in methods that cannot be read, or
// are not what they were, are zero Frames.
func (p *profiler) Names(places []vmruntime.Scope) ([]vmruntime.Frame, error) {
	epoch := p.currentEpoch()
	methods := make(map[uint64]*method)
	var missing []uint64
	for _, place := range places {
		if _, ok := methods[place.Method]; ok {
			continue
		}
		c, ok := p.callers.get(place.Method)
		if ok && c.current(epoch) && c.lines != nil && p.epoch != nil {
			methods[place.Method] = c.lines
			continue
		}
		methods[place.Method] = nil
		missing = append(missing, place.Method)
	}
	for len(missing) > 0 {
		chunk := missing[:min(len(missing), profileChunk)]
		missing = missing[len(chunk):]
		read, err := p.methodReader().methods(chunk)
		if err != nil {
			return nil, err
		}
		for addr, m := range read {
			if p.recognise(addr, m, epoch) {
				methods[addr] = m
			}
		}
	}
	frames := make([]vmruntime.Frame, len(places))
	for i, place := range places {
		if m := methods[place.Method]; m != nil {
			frames[i] = m.frame(place.BCI, p.version.unsigned5Bias())
		}
	}
	return frames, nil
}

// recognise reports whether m, which was read at addr, is the method that was there before, if one
// is known.
func (p *profiler) recognise(addr uint64, m *method, epoch uint32) bool {
	c, ok := p.callers.get(addr)
	if !ok {
		return true
	}
	if c.function != m.function || c.signature != m.signature {
		return false
	}
	if c.read && c.epoch == epoch {
		with := *c // what is in a cache does not grow
		with.lines = m
		p.callers.add(addr, &with)
	}
	return true
}

// introduce remembers who a method is, so that Profiles notices when another one lies at its
// address.
func (p *profiler) introduce(method uint64, function, signature string) {
	if _, ok := p.callers.get(method); !ok {
		p.callers.add(method, &calling{function: function, signature: signature})
	}
}
