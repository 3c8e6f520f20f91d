package methodcounts

import (
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// Names names places in methods, as the interpreter's frames are named. What Profiles has read of a
// method need not be read again but for its line table. Places in methods that cannot be read, or
// are not what they were, are zero Frames.
func (p *Profiler) Names(places []vmruntime.Scope) ([]vmruntime.Frame, error) {
	epoch := p.CurrentEpoch()
	methods := make(map[uint64]*methodinfo.Method)
	var missing []uint64
	for _, place := range places {
		if _, ok := methods[place.Method]; ok {
			continue
		}
		c, ok := p.callers.Get(place.Method)
		if ok && c.current(epoch) && c.lines != nil && p.Epoch != nil {
			methods[place.Method] = c.lines
			continue
		}
		methods[place.Method] = nil
		missing = append(missing, place.Method)
	}
	for len(missing) > 0 {
		chunk := missing[:min(len(missing), profileChunk)]
		missing = missing[len(chunk):]
		read, err := p.MethodReader().Methods(chunk)
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
			frames[i] = m.Frame(place.BCI, p.Version.Unsigned5Bias())
		}
	}
	return frames, nil
}

// recognise reports whether m, which was read at addr, is the method that was there before, if one
// is known.
func (p *Profiler) recognise(addr uint64, m *methodinfo.Method, epoch uint32) bool {
	c, ok := p.callers.Get(addr)
	if !ok {
		return true
	}
	if c.function != m.Function || c.signature != m.Signature {
		return false
	}
	if c.read && c.epoch == epoch {
		with := *c // what is in a cache does not grow
		with.lines = m
		p.callers.Add(addr, &with)
	}
	return true
}

// Introduce remembers who a method is, so that Profiles notices when another one lies at its
// address.
func (p *Profiler) Introduce(method uint64, function, signature string) {
	if _, ok := p.callers.Get(method); !ok {
		p.callers.Add(method, &calling{function: function, signature: signature})
	}
}
