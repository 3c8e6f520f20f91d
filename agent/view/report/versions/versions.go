// Package versions reads which versions of a method's compiled code a stored profile has samples
// of, what became of them, and which of them costs more per call.
package versions

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// A Code is one compilation of a method in a stored profile, with its samples.
type Code struct {
	stored.Version
	// Self are the samples that were taken in the version's code, inlined methods included; Total
	// are those with the version anywhere on the stack, each counted once.
	Self, Total uint64
	Known       bool // the profile's metadata has it; otherwise only ID, PID and samples are known
	Inlined     []string
	// ReplacedBy is the version that took over when this one was given up; nil if that was none.
	ReplacedBy *Code
}

// Optimized reports whether it is code of the optimising compiler.
func (v *Code) Optimized() bool { return v.Level >= 4 }

// Ended reports whether it was given up or freed by the end of the profile.
func (v *Code) Ended() bool {
	return profile.VersionState(v.State) >= profile.VersionGivenUp
}

// Name is its compile id, and what compiled it: "#1450 C2 OSR@17".
func (v *Code) Name() string {
	name := fmt.Sprintf("#%d", v.ID)
	switch {
	case !v.Known || v.Level < 0:
		return name
	case v.Level == 0:
		name += " native wrapper"
	case v.Optimized():
		name += " C2"
	default:
		name += fmt.Sprintf(" C1 (%d)", v.Level)
	}
	switch {
	case v.OSR != nil && *v.OSR < 0:
		name += " OSR"
	case v.OSR != nil:
		name += fmt.Sprintf(" OSR@%d", *v.OSR)
	}
	return name
}

// End is why it was given up, as far as that is known; "" if it was not.
func (v *Code) End() string {
	switch {
	case !v.Ended():
		return ""
	case len(v.Traps) > 0:
		var reasons []string
		for _, t := range v.Traps {
			if !slices.Contains(reasons, t.Reason) {
				reasons = append(reasons, t.Reason)
			}
		}
		return "deopt: " + strings.Join(reasons[:min(len(reasons), 3)], ", ")
	case v.ReplacedBy != nil && v.Optimized() && !v.ReplacedBy.Optimized():
		return fmt.Sprintf("deopt, no trap known, then #%d", v.ReplacedBy.ID)
	case v.ReplacedBy != nil:
		return fmt.Sprintf("replaced by #%d", v.ReplacedBy.ID)
	}
	return "given up"
}

// A Method is a compiled method of one process, with all of its versions in the profile, the oldest
// first.
type Method struct {
	stacks.Method
	PID         int64
	Comm        string
	Versions    []*Code
	Self, Total uint64 // samples in all versions together; a sample with two of them on its stack counts once
	Interpreted uint64 // samples with the method interpreted anywhere on the stack
}

// Final are the versions that were in use at the end of the profile.
func (m *Method) Final() (list []*Code) {
	for _, v := range m.Versions {
		if v.Known && !v.Ended() {
			list = append(list, v)
		}
	}
	return list
}

// OnlyC1 reports whether the method was compiled by C1, and never by C2.
func (m *Method) OnlyC1() bool {
	c1 := false
	for _, v := range m.Versions {
		if !v.Known || v.Optimized() {
			return false
		}
		c1 = c1 || v.Level > 0
	}
	return c1
}

// Deoptimized is how many optimised versions of the method were given up in the profile. The VM's
// own count, if it is known, also has those before the profile; it is -1 if it is not.
func (m *Method) Deoptimized() (seen, counted int) {
	counted = -1
	for _, v := range m.Versions {
		if v.Optimized() && v.Ended() {
			seen++
		}
		if v.Decompiles != nil {
			counted = max(counted, *v.Decompiles)
		}
	}
	return seen, counted
}

// Recompiled is how many versions of the method were made after the first with the same level and
// entry.
func (m *Method) Recompiled() (again int) {
	type form struct{ level, osr int }
	seen := map[form]int{}
	for _, v := range m.Versions {
		if !v.Known || v.Level < 0 {
			continue
		}
		f := form{v.Level, -1}
		if v.OSR != nil {
			f.osr = *v.OSR
		}
		if seen[f]++; seen[f] > 1 {
			again++
		}
	}
	return again
}

// Versions are the code versions of a stored profile.
type Versions struct {
	Methods []*Method // the most samples first
	Samples uint64    // samples of the profile
	Seconds float64   // length of the profile
	stacks  *stacks.Samples
	index   map[codeKey]*Code
	of      map[*Code]*Method
}

type codeKey struct {
	pid int64
	id  uint32
}

// ErrNone is the error of Read for a profile that names no code version.
var ErrNone = errors.New("the profile does not say which code versions its samples are of: record CPU time of a " +
	"HotSpot JVM")

type versionedKey struct {
	pid    int64
	system string
}

// Read reads the code versions of a profile of CPU time.
func Read(p *pprof.Profile) (*Versions, error) {
	if !stacks.HasTime(p) {
		return nil, ErrNone
	}
	s, err := stacks.NewSamples(p, stored.TypeSamples)
	if err != nil {
		return nil, err
	}
	vs := &Versions{stacks: s, Seconds: time.Duration(p.DurationNanos).Seconds(), index: map[codeKey]*Code{},
		of: map[*Code]*Method{}}
	methods := map[versionedKey]*Method{}
	add := func(v *Code, m stacks.Method) {
		key := versionedKey{v.PID, m.SystemName}
		of := methods[key]
		if of == nil {
			of = &Method{Method: m, PID: v.PID}
			methods[key] = of
			vs.Methods = append(vs.Methods, of)
		}
		of.Versions = append(of.Versions, v)
		vs.index[codeKey{v.PID, v.ID}], vs.of[v] = v, of
	}
	if meta, err := stored.MetadataOf(p); err == nil {
		for _, v := range meta.Versions {
			if vs.index[codeKey{v.PID, v.ID}] != nil {
				continue
			}
			system := meta.MethodName(v.Method)
			name, _, _ := strings.Cut(system, "(")
			c := &Code{Version: v, Known: true}
			for _, place := range v.Inlined {
				c.Inlined = append(c.Inlined, meta.MethodName(place))
			}
			add(c, stacks.Method{Name: name, SystemName: system})
		}
	}
	for sample, value := range s.All() {
		vs.count(sample, value, add)
	}
	if len(vs.index) == 0 {
		return nil, ErrNone
	}
	vs.countInterpreted(methods)
	for _, m := range vs.Methods {
		m.Arrange()
	}
	slices.SortStableFunc(vs.Methods, func(a, b *Method) int {
		return cmp.Or(cmp.Compare(b.Self, a.Self), cmp.Compare(b.Total, a.Total),
			strings.Compare(a.SystemName, b.SystemName), cmp.Compare(a.PID, b.PID))
	})
	return vs, nil
}

// count adds a sample to the versions on its stack.
func (vs *Versions) count(sample *pprof.Sample, value uint64, add func(*Code, stacks.Method)) {
	vs.Samples += value
	pid := stacks.ProcessID(sample)
	var seen []*Code
	var counted []*Method
	for i, loc := range sample.Location {
		id, ok := stored.VersionOf(loc.Mapping)
		if !ok {
			continue
		}
		frames := vs.stacks.At(loc)
		compiled := frames[len(frames)-1].Method
		v := vs.index[codeKey{pid, id}]
		if v == nil {
			v = &Code{Version: stored.Version{PID: pid, ID: id}}
			add(v, compiled)
		}
		m := vs.of[v]
		if m.SystemName != compiled.SystemName {
			continue // It is of another process that had the pid.
		}
		m.Comm = stacks.Label(sample, stored.LabelComm)
		if i == 0 {
			v.Self += value
			m.Self += value
		}
		if !slices.Contains(seen, v) {
			seen = append(seen, v)
			v.Total += value
		}
		if !slices.Contains(counted, m) {
			counted = append(counted, m)
			m.Total += value
		}
	}
}

// countInterpreted adds the samples of methods that are interpreted.
func (vs *Versions) countInterpreted(methods map[versionedKey]*Method) {
	for sample, value := range vs.stacks.All() {
		var counted []*Method
		for _, loc := range sample.Location {
			if stacks.MappingFlags(loc.Mapping) != stacks.Interpreted {
				continue
			}
			for _, f := range vs.stacks.At(loc) {
				if m := methods[versionedKey{stacks.ProcessID(sample), f.SystemName}]; m != nil &&
					!slices.Contains(counted, m) {
					counted = append(counted, m)
					m.Interpreted += value
				}
			}
		}
	}
}

// takeover is how far apart the end of a version and the beginning of the one that replaces it may
// seem.
const takeover = 100 * time.Millisecond

// Arrange puts the versions in order, and finds which of them replaced others: those with the same
// entry that appeared when the others were given up.
func (m *Method) Arrange() {
	slices.SortStableFunc(m.Versions, func(a, b *Code) int {
		return cmp.Or(cmp.Compare(a.Since, b.Since), cmp.Compare(a.ID, b.ID))
	})
	for i, v := range m.Versions {
		if !v.Known || v.Until == nil || !v.Ended() {
			continue
		}
		from := v.Since
		if v.InUse != nil {
			from = *v.InUse
		}
		for _, next := range m.Versions[i+1:] {
			if next.Known && (next.OSR == nil) == (v.OSR == nil) && next.Since >= from-takeover &&
				next.Since <= *v.Until+takeover {
				v.ReplacedBy = next
				break
			}
		}
	}
}

// Find returns the methods of that name, or of that name with a signature, in each process.
func (vs *Versions) Find(name string) (list []*Method, err error) {
	var names []string
	for _, m := range vs.Methods {
		if m.Name == name || m.SystemName == name {
			list = append(list, m)
		}
		names = append(names, m.Name)
	}
	if len(list) > 0 {
		return list, nil
	}
	const most = 3
	hint := "name it as --view=versions without a method shows it"
	if near := stored.Near(names, name, most); len(near) > 0 {
		hint = "did you mean " + strings.Join(near, ", ") + "?"
	}
	return nil, fmt.Errorf("no code version of %s was sampled: %s", stored.Printable(name), hint)
}
