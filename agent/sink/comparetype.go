package sink

import (
	"fmt"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"
)

// commonType chooses the sample type by which to compare: the wanted one, or else calls, samples, the default of A, or any
// other that both profiles have values of. It fails if there is none, if its unit differs, or if they are of different kinds
// of events.
func commonType(a, b Named, wanted string) (string, error) {
	kindA, ofEventsA := EventKindOf(a.Profile)
	if kindB, ofEventsB := EventKindOf(b.Profile); ofEventsA && ofEventsB && kindA != kindB { // though both have events
		return "", fmt.Errorf("%s has %s, %s has %s: compare files of one kind", a.Name, eventNames[kindA].events, b.Name, eventNames[kindB].events)
	}
	for _, side := range []Named{a, b} {
		if wanted != "" && typeIndex(side.Profile, wanted) < 0 {
			return "", fmt.Errorf("%s has no values of type %s: choose %s", side.Name, printable(wanted), typeList(side.Profile))
		}
	}
	candidates := []string{wanted}
	if wanted == "" {
		candidates = []string{typeCalls, typeSamples, a.Profile.DefaultSampleType}
		for _, t := range a.Profile.SampleType {
			candidates = append(candidates, t.Type)
		}
	}
	// A column of zeros is no reason to prefer a type: an agent that samples calls has it also where nobody called.
	var empty string // a type that fits, of which one profile has no value
	var other error  // why a type does not fit
	for _, name := range candidates {
		i, j := typeIndex(a.Profile, name), typeIndex(b.Profile, name)
		if i < 0 || j < 0 {
			continue
		}
		if unitA, unitB := a.Profile.SampleType[i].Unit, b.Profile.SampleType[j].Unit; unitA != unitB {
			other = fmt.Errorf("%s is in %s in %s but in %s in %s: record both in the same way",
				printable(name), printable(unitA), a.Name, printable(unitB), b.Name)
			continue
		}
		if hasValues(a.Profile, i) && hasValues(b.Profile, j) {
			return name, nil
		}
		if empty == "" {
			empty = name
		}
	}
	switch {
	case empty != "":
		return empty, nil
	case other != nil:
		return "", other
	}
	return "", fmt.Errorf("%s has values of type %s, %s of type %s: record both in the same way",
		a.Name, typeList(a.Profile), b.Name, typeList(b.Profile))
}

func hasValues(p *pprof.Profile, index int) bool {
	return slices.ContainsFunc(p.Sample, func(s *pprof.Sample) bool { return s.Value[index] > 0 })
}

// oneEngine returns an error if the calls in a profile are of several engines, as these do not add up.
func oneEngine(n Named) error {
	var engines []string
	index := typeIndex(n.Profile, typeCalls)
	for _, s := range n.Profile.Sample {
		if engine := label(s, labelEngine); s.Value[index] > 0 && !slices.Contains(engines, engine) {
			if engines = append(engines, engine); len(engines) == maxWays {
				break
			}
		}
	}
	if len(engines) <= 1 {
		return nil
	}
	slices.Sort(engines)
	return fmt.Errorf("%s has calls of the engines %s, whose weights do not add up: choose one by --engine",
		n.Name, strings.Join(engines, ", "))
}
