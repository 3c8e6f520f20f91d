package hotspot

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// readRefs reads which methods the class files name. A constant of a method has the indexes of its class's and of its
// name-and-type's constants in its lower and upper 16 bits. A class's has, in the same way, its index among the loaded
// classes and that of its name; a name-and-type's has those of the two.
func (r callReader) readRefs(reads []*callRead) error {
	var sites []*callSite
	var pools []*callRead
	for _, m := range reads {
		for i := range m.sites {
			if s := &m.sites[i]; s.named() && uint64(s.constant) < m.constants {
				sites, pools = append(sites, s), append(pools, m)
			}
		}
	}
	slots := func(index func(i int) []uint64) ([][]uint64, error) {
		var b batch
		var counts []int
		for i := range sites {
			list := index(i)
			for _, n := range list {
				addr := uint64(0)
				if n != 0 && n < pools[i].constants {
					addr = r.slot(pools[i].pool, n)
				}
				b.add(addr, poolSlot)
			}
			counts = append(counts, len(list))
		}
		if err := b.read(r.mem); err != nil {
			return nil, err
		}
		values := make([][]uint64, len(sites))
		at := 0
		for i, n := range counts {
			for range n {
				v, _ := b.word(at)
				values[i] = append(values[i], v)
				at++
			}
		}
		return values, nil
	}
	low, high := func(v uint64) uint64 { return v & 0xffff }, func(v uint64) uint64 { return v >> 16 & 0xffff }
	refs, err := slots(func(i int) []uint64 { return []uint64{uint64(sites[i].constant)} })
	if err != nil {
		return err
	}
	parts, err := slots(func(i int) []uint64 { return []uint64{low(refs[i][0]), high(refs[i][0])} })
	if err != nil {
		return err
	}
	symbols, err := slots(func(i int) []uint64 {
		class, nameAndType := parts[i][0], parts[i][1]
		return []uint64{high(class), low(nameAndType), high(nameAndType)}
	})
	if err != nil {
		return err
	}
	for i, s := range sites {
		v := symbols[i]
		s.callee = methodRef{class: untag(v[0]), name: untag(v[1]), signature: untag(v[2])}
		if table := address(pools[i].loaded, r.schema.pool.klassArray); table != 0 {
			s.callee.loaded = table + wordSize*low(parts[i][0])
		}
	}
	return nil
}

// nameCallees turns the Symbols of named methods into text.
func (r callReader) nameCallees(reads []*callRead) error {
	var pointers []uint64
	for _, m := range reads {
		for i := range m.sites {
			ref := &m.sites[i].callee
			pointers = append(pointers, ref.class, ref.name, ref.signature)
		}
	}
	symbols, err := r.symbols(pointers)
	if err != nil {
		return err
	}
	functions := make(map[[2]uint64]string)
	for _, m := range reads {
		m.callees = make([]calleeName, len(m.sites))
		for i := range m.sites {
			ref := &m.sites[i].callee
			name, ok := symbols[ref.name]
			if !ok {
				continue
			}
			key := [2]uint64{ref.class, ref.name}
			if _, ok := functions[key]; !ok {
				functions[key] = functionName(symbols[ref.class], name)
			}
			m.callees[i] = calleeName{functions[key], symbols[ref.signature]}
			if isLinker(functions[key]) {
				m.sites[i].kind = vmruntime.DynamicCall
			}
		}
	}
	return nil
}

// isLinker tells the methods that stand for others: what is called is the method that their last argument, or the
// receiver, is a handle of. Compilers inline that one.
func isLinker(function string) bool {
	const handle = "java.lang.invoke.MethodHandle."
	name, ok := strings.CutPrefix(function, handle)
	return ok && (strings.HasPrefix(name, "linkTo") || name == "invokeBasic")
}

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
