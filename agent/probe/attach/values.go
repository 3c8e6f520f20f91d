package attach

import (
	"fmt"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// ValueSites finds the sites of spec in a file. It fails with probesite.ErrNotFound if the file has
// no such probe.
func ValueSites(f *probesite.Finder, spec valueprobe.Spec) ([]probesite.Site, error) {
	if spec.Name != "" {
		return f.Notes(spec.Provider, spec.Name)
	}
	return f.Entries(spec.Symbol)
}

// Values attaches the program that reads values.
type Values struct {
	Objects *bpf.ProbeObjects
	Uprobes Uprobes
	// Register returns the cookie of one site: a number below bpf.MaxProbes that no other probe
	// has. The caller sets how many of its hits are recorded (bpf.ProbeRate).
	Register func() (uint32, error)
}

// A ValueSite is a place where values are read. Their operands, and so their signedness, can differ
// from site to site.
type ValueSite struct {
	Cookie uint32
	values []valueKind
}

type valueKind struct{ text, signed bool }

// Prepare sends the values to read at all sites of spec to the kernel side, and returns where to
// attach the program ValueProbe. Call it once for probes that are attached, removed and attached
// again.
func (v *Values) Prepare(spec valueprobe.Spec, sites []probesite.Site) (values []ValueSite, places []Site, err error) {
	kernel := make([]bpf.ProbedValues, len(sites))
	for i, s := range sites {
		if kernel[i], err = probedValues(spec, s); err != nil {
			return nil, nil, fmt.Errorf("probe %s at %#x: %w", spec.Place(), s.Address, err)
		}
	}
	for i, s := range sites {
		cookie, err := v.Register()
		if err != nil {
			return nil, nil, err
		}
		if err := v.Objects.ValueProbes.Put(cookie, &kernel[i]); err != nil {
			return nil, nil, fmt.Errorf("register values of a probe: %w", err)
		}
		values = append(values, ValueSite{cookie, kindsOf(&kernel[i])})
		places = append(places, Site{Offset: s.Offset, RefCtrOffset: s.RefCtrOffset, Cookie: uint64(cookie)})
	}
	return values, places, nil
}

func kindsOf(k *bpf.ProbedValues) []valueKind {
	kinds := make([]valueKind, k.Count)
	for i := range kinds {
		kinds[i] = valueKind{text: k.Values[i].Form != bpf.ValueNumber, signed: k.Values[i].Size < 0}
	}
	return kinds
}

// Readings returns the values of an observation of this site, in the order of the spec.
func (s *ValueSite) Readings(o *bpf.Observation) []valueprobe.Reading {
	readings := make([]valueprobe.Reading, len(s.values))
	for i, kind := range s.values {
		r := &readings[i]
		switch r.IsText = kind.text; {
		case o.Failed(i):
			*r = valueprobe.Reading{Failed: true}
		case kind.text:
			text, cut := o.ValueText(i)
			r.Text, r.Cut = string(text), cut
		default:
			r.Number, r.Signed = o.Seen.Values[i], kind.signed
		}
	}
	return readings
}
