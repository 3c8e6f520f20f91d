package hotspot

// Methods by name: what HotSpot itself does when it resolves a call. It is needed for calls that only compiled code has
// made: the interpreter did not get to write their resolution down.

// Bounds on one search.
const (
	maxSupers       = 64       // classes above one; 20 is a lot
	maxClassMethods = 8 << 10  // of one class; the JVM specification allows 65,535
	maxSearched     = 32 << 10 // methods of all classes that one search looks at
)

// A wanted method is one by that name in a class, or in one above it. Names are Symbols, of which there is one for
// each text: addresses are compared.
type wanted struct {
	klass           uint64
	name, signature uint64
}

// A methodTable is what a class declares or inherits from interfaces, by name.
type methodTable struct {
	methods map[[2]uint64]uint64 // {name, signature} -> Method
	super   uint64
}

// A methodSearch keeps the tables that were read, for as long as they may be believed: one call of Profiles.
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
		for _, klass := range distinct(at) {
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
	k := &r.schema.klass
	const fields = 3
	var pointers, lengths, arrays batch
	for _, klass := range klasses {
		pointers.add(k.super.at(klass), wordSize)
		pointers.add(k.methods.at(klass), wordSize)
		pointers.add(address(klass, k.defaults), wordSize)
	}
	if err := pointers.read(r.mem); err != nil {
		return err
	}
	array := func(klass, i int) uint64 { // one of the two arrays of methods
		addr, _ := pointers.word(klass*fields + 1 + i)
		return addr
	}
	for i := range klasses {
		for j := range fields - 1 {
			lengths.add(address(array(i, j), r.schema.pool.arrayLength), 4)
		}
	}
	if err := lengths.read(r.mem); err != nil {
		return err
	}
	for i := range klasses {
		for j := range fields - 1 {
			n, ok := lengths.word(i*(fields-1) + j)
			if !ok || n > maxClassMethods || int(n) > r.budget {
				n = 0
			}
			r.budget -= int(n)
			arrays.add(address(array(i, j), k.methodArray), wordSize*n)
		}
	}
	if err := arrays.read(r.mem); err != nil {
		return err
	}
	var all []uint64
	owner := make(map[uint64][]*methodTable) // by method: a default method belongs to many
	for i, klass := range klasses {
		super, ok := pointers.word(i * fields)
		if !ok {
			continue
		}
		table := &methodTable{methods: make(map[[2]uint64]uint64), super: super}
		r.tables[klass] = table
		for j := range fields - 1 {
			list, ok := arrays.bytes(i*(fields-1) + j)
			for ; ok && len(list) >= wordSize; list = list[wordSize:] {
				method := number(list[:wordSize])
				all = append(all, method)
				owner[method] = append(owner[method], table)
			}
		}
	}
	reads, err := r.follow(all, r.readConstMethods, r.readPools)
	if err != nil {
		return err
	}
	for _, m := range reads {
		for _, table := range owner[m.addr] {
			if m.ok {
				table.methods[[2]uint64{m.name, m.signature}] = m.addr
			}
		}
	}
	return nil
}
