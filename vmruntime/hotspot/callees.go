package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// maxTries is how often the callee of a call is searched by name. More than once, as its class may be loaded later.
const maxTries = 3

// searchCallees looks up the callees of static and special calls that were made and that no resolution is written down
// for. It takes the class that the call names: for a super call that is right unless a class in between overrides it.
func (r *methodSearch) searchCallees(list []*counting) error {
	var sites []*callSite
	for _, m := range list {
		for _, site := range m.unresolved() {
			site.tries++
			sites = append(sites, site)
		}
	}
	if len(sites) == 0 {
		return nil
	}
	var klasses batch
	for _, s := range sites {
		klasses.add(s.callee.loaded, wordSize)
	}
	if err := klasses.read(r.mem); err != nil {
		return err
	}
	asked := make([]wanted, len(sites))
	for i, s := range sites {
		klass, _ := klasses.word(i)
		asked[i] = wanted{klass, s.callee.name, s.callee.signature}
	}
	found, err := r.find(asked)
	for i, target := range found {
		if target != 0 {
			sites[i].resolution = resolution{resolved: true, target: target, vtable: noVtable}
		}
	}
	return err
}

// unresolved lists the calls of m that are worth a search.
func (m *counting) unresolved() (sites []*callSite) {
	made := make(map[int]bool, len(m.counts))
	for i := range m.counts {
		made[m.counts[i].bci] = m.counts[i].total() > 0
	}
	for i := range m.sites {
		s := &m.sites[i]
		byName := s.kind == vmruntime.StaticCall || s.kind == vmruntime.SpecialCall
		if byName && !s.resolved && s.tries < maxTries && s.callee.loaded != 0 && (made[s.bci] || !m.counted) {
			sites = append(sites, s)
		}
	}
	return sites
}
