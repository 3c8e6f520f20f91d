package estimate

import "math"

// minInvocations is how often a method must have been counted for ratios of its counts to mean
// anything.
const minInvocations = 3

// missing is the share of a site's calls assigned to a callee that the profile does not list,
// although the callee was seen there. Then the profile is wrong, or from an earlier time.
const missing = 0.02

// frequencies are the sites of all profiles.
type frequencies map[Place]*siteFrequency

// A siteFrequency says how often a site is executed, and what it calls.
type siteFrequency struct {
	perCall float64 // executions per invocation of the method
	targets []Target
	known   float64 // part of the executions whose targets are known, 0 to 1
	total   float64 // count that targets' counts are parts of
}

func newFrequencies(methods []Profile) frequencies {
	f := frequencies{}
	for m := range methods {
		p := &methods[m]
		if !(p.Invocations >= minInvocations) || !finite(p.Invocations) {
			continue
		}
		for i := range p.Sites {
			if s := newSiteFrequency(&p.Sites[i], p.Invocations); s != nil {
				f[Place{MethodID(m), p.Sites[i].BCI}] = s
			}
		}
	}
	return f
}

// newSiteFrequency returns nil for an invalid count. Zero is valid: the site was never executed.
func newSiteFrequency(s *Site, invocations float64) *siteFrequency {
	switch {
	case !sensible(s.Count):
		return nil
	case s.Count == 0:
		return &siteFrequency{known: 1, total: 1}
	}
	f := &siteFrequency{perCall: s.Count / invocations}
	sum := 0.0
	for _, t := range s.Targets {
		if t.Count > 0 && finite(t.Count) {
			f.targets = append(f.targets, t)
			sum += t.Count
		}
	}
	f.total = max(s.Count, sum)
	f.known = sum / f.total
	return f
}

// calls returns how often callee is called from the site per invocation, as far as the profile
// attributes calls.
func (f *siteFrequency) calls(callee MethodID) float64 {
	count := 0.0
	for _, t := range f.targets {
		if t.Method == callee {
			count += t.Count
		}
	}
	return f.perCall * count / f.total
}

// rest is the number of calls per invocation to callees that the profile does not name, at least a
// small one.
func (f *siteFrequency) rest() float64 { return f.perCall * max(1-f.known, missing) }

// likely returns how often a callee is called that is the only known callee of the site.
func (f *siteFrequency) likely(callee MethodID) float64 {
	if c := f.calls(callee); c > 0 {
		return c
	}
	return f.rest()
}

// chain returns how often the method of a chain's innermost place is entered through it, per entry
// of the outermost method. ok is false if a profile is missing.
func (f frequencies) chain(site []Place) (product float64, ok bool) {
	product = 1
	for i := len(site) - 1; i > 0; i-- {
		s := f[site[i]]
		if s == nil {
			return 0, false
		}
		product *= s.likely(site[i-1].Method)
	}
	return product, product > 0 && finite(product)
}

func finite(x float64) bool { return !math.IsNaN(x) && !math.IsInf(x, 0) }
