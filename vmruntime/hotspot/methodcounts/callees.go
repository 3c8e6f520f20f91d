package methodcounts

import (
	"strings"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/calldata"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// readRefs reads which methods the class files name. A constant of a method has the indexes of its
// class's and of its name-and-type's constants in its lower and upper 16 bits. A class's has, in
// the same way, its index among the loaded classes and that of its name; a name-and-type's has
// those of the two.
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
		var b vmstructs.Batch
		var counts []int
		for i := range sites {
			list := index(i)
			for _, n := range list {
				addr := uint64(0)
				if n != 0 && n < pools[i].constants {
					addr = r.Slot(pools[i].Pool, n)
				}
				b.Add(addr, methodinfo.PoolSlot)
			}
			counts = append(counts, len(list))
		}
		if err := b.Read(r.Mem); err != nil {
			return nil, err
		}
		values := make([][]uint64, len(sites))
		at := 0
		for i, n := range counts {
			for range n {
				v, _ := b.Word(at)
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
		s.callee = methodRef{
			class: methodinfo.Untag(v[0]), name: methodinfo.Untag(v[1]), signature: methodinfo.Untag(v[2]),
		}
		if table := r.schema.Pool.KlassArray.Of(pools[i].loaded); table != 0 {
			s.callee.loaded = table + vmstructs.WordSize*low(parts[i][0])
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
	symbols, err := r.Symbols(pointers)
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
				functions[key] = methodinfo.FunctionName(symbols[ref.class], name)
			}
			m.callees[i] = calleeName{functions[key], symbols[ref.signature]}
			if isLinker(functions[key]) {
				m.sites[i].Kind = vmruntime.DynamicCall
			}
		}
	}
	return nil
}

// isLinker reports whether a method stands for another one: the one of which its last argument, or
// the receiver, is a handle. Compilers inline that one.
func isLinker(function string) bool {
	const handle = "java.lang.invoke.MethodHandle."
	name, ok := strings.CutPrefix(function, handle)
	return ok && (strings.HasPrefix(name, "linkTo") || name == "invokeBasic")
}

// maxTries is how often the callee of a call is searched by name. More than once, as its class may
// be loaded later.
const maxTries = 3

// searchCallees looks up the callees of static and special calls that were made and that no
// resolution is written down for. It takes the class that the call names: for a super call that is
// right unless a class in between overrides it.
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
	var klasses vmstructs.Batch
	for _, s := range sites {
		klasses.Add(s.callee.loaded, vmstructs.WordSize)
	}
	if err := klasses.Read(r.Mem); err != nil {
		return err
	}
	asked := make([]wanted, len(sites))
	for i, s := range sites {
		klass, _ := klasses.Word(i)
		asked[i] = wanted{klass, s.callee.name, s.callee.signature}
	}
	found, err := r.find(asked)
	for i, target := range found {
		if target != 0 {
			sites[i].Resolution = calldata.Resolution{Resolved: true, Target: target, Vtable: calldata.NoVtable}
		}
	}
	return err
}

// unresolved lists the calls of m that are worth a search.
func (m *counting) unresolved() (sites []*callSite) {
	made := make(map[int]bool, len(m.counts))
	for i := range m.counts {
		made[m.counts[i].BCI] = m.counts[i].Total() > 0
	}
	for i := range m.sites {
		s := &m.sites[i]
		byName := s.Kind == vmruntime.StaticCall || s.Kind == vmruntime.SpecialCall
		if byName && !s.Resolved && s.tries < maxTries && s.callee.loaded != 0 && (made[s.BCI] || !m.counted) {
			sites = append(sites, s)
		}
	}
	return sites
}

// Methods by name: what HotSpot itself does when it resolves a call. It is needed for calls that
// only compiled code has made: the interpreter did not get to write their resolution down.

// Bounds on one search.
const (
	maxSupers       = 64       // classes above one; 20 is a lot
	maxClassMethods = 8 << 10  // methods of one class; the JVM specification allows 65,535
	maxSearched     = 32 << 10 // methods of all classes that one search looks at
)

// A wanted method is one by that name in a class, or in one above it. Names are Symbols, of which
// there is one for each text: addresses are compared.
type wanted struct {
	klass           uint64
	name, signature uint64
}

// A methodTable is what a class declares or inherits from interfaces, by name.
type methodTable struct {
	methods map[[2]uint64]uint64 // {name, signature} -> Method
	super   uint64
}

// A methodSearch keeps the tables that were read, for as long as they may be believed: one call of
// Profiles.
type methodSearch struct {
	klassReader
	tables map[uint64]*methodTable
	budget int // methods that may still be read
}

func newMethodSearch(r klassReader) *methodSearch {
	return &methodSearch{klassReader: r, tables: make(map[uint64]*methodTable), budget: maxSearched}
}

// find finds methods, 0 for those that are not there.
func (r *methodSearch) find(list []wanted) ([]uint64, error) {
	found := make([]uint64, len(list))
	at := make([]uint64, len(list)) // the class that is looked at
	for i, w := range list {
		if w.name != 0 && w.signature != 0 {
			at[i] = w.klass
		}
	}
	for range maxSupers {
		var news []uint64
		for _, klass := range vmstructs.Distinct(at) {
			if r.tables[klass] == nil {
				news = append(news, klass)
			}
		}
		if err := r.readTables(news); err != nil {
			return nil, err
		}
		open := false
		for i, w := range list {
			table := r.tables[at[i]]
			if table == nil {
				at[i] = 0
				continue
			}
			if found[i] = table.methods[[2]uint64{w.name, w.signature}]; found[i] != 0 {
				at[i] = 0
			} else {
				at[i], open = table.super, true
			}
		}
		if !open {
			break
		}
	}
	return found, nil
}

// readTables reads what classes declare.
func (r *methodSearch) readTables(klasses []uint64) error {
	k := &r.schema.Klass
	const fields = 3
	var pointers, lengths, arrays vmstructs.Batch
	for _, klass := range klasses {
		pointers.Add(k.Super.At(klass), vmstructs.WordSize)
		pointers.Add(k.Methods.At(klass), vmstructs.WordSize)
		pointers.Add(k.Defaults.Of(klass), vmstructs.WordSize)
	}
	if err := pointers.Read(r.Mem); err != nil {
		return err
	}
	array := func(klass, i int) uint64 { // one of the two arrays of methods
		addr, _ := pointers.Word(klass*fields + 1 + i)
		return addr
	}
	for i := range klasses {
		for j := range fields - 1 {
			lengths.Add(r.schema.Pool.ArrayLength.Of(array(i, j)), 4)
		}
	}
	if err := lengths.Read(r.Mem); err != nil {
		return err
	}
	for i := range klasses {
		for j := range fields - 1 {
			n, ok := lengths.Word(i*(fields-1) + j)
			if !ok || n > maxClassMethods || int(n) > r.budget {
				n = 0
			}
			r.budget -= int(n)
			arrays.Add(k.MethodArray.Of(array(i, j)), vmstructs.WordSize*n)
		}
	}
	if err := arrays.Read(r.Mem); err != nil {
		return err
	}
	var all []uint64
	owner := make(map[uint64][]*methodTable) // by method: a default method belongs to many
	for i, klass := range klasses {
		super, ok := pointers.Word(i * fields)
		if !ok {
			continue
		}
		table := &methodTable{methods: make(map[[2]uint64]uint64), super: super}
		r.tables[klass] = table
		for j := range fields - 1 {
			list, ok := arrays.Bytes(i*(fields-1) + j)
			for ; ok && len(list) >= vmstructs.WordSize; list = list[vmstructs.WordSize:] {
				method := vmstructs.Number(list[:vmstructs.WordSize])
				all = append(all, method)
				owner[method] = append(owner[method], table)
			}
		}
	}
	reads, err := r.WithPools(all)
	if err != nil {
		return err
	}
	for _, m := range reads {
		for _, table := range owner[m.Addr] {
			if m.OK {
				table.methods[[2]uint64{m.Name, m.Signature}] = m.Addr
			}
		}
	}
	return nil
}
