package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// maxVersions bounds how many compilations are remembered by name. What is forgotten is lost only if it is gone from
// the code cache as well.
const maxVersions = 64 << 10

// A methodName is the identity of a method as the VM has it: java/util/HashMap, get, (Ljava/lang/Object;)….
type methodName struct {
	class, name, signature string
}

// A namedCode is what remains of a compilation when its code is gone: who it was.
type namedCode struct {
	begin uint64
	size  uint32 // bytes
	tier  vmruntime.Tier
	methodName
}

// A versionTable remembers compilations by their version (the low 28 bits of the compile id, which HotSpot counts up):
// those that were live at Attach, and those that were announced since. It takes about 100 bytes for each. The zero
// value is empty.
type versionTable struct {
	known   map[uint32]versionEntry
	order   []uint32 // versions as they came: a ring once it is full
	next    int      // where in the ring the oldest is
	dropped uint64   // forgotten for want of room

	names  nameTable
	sparse int // bytes of names.text from which on it is worth to drop names that are not used any more
}

type versionEntry struct {
	begin                  uint64
	size                   uint32
	class, name, signature nameRef
	tier                   vmruntime.Tier
}

func (t *versionTable) add(version uint32, c namedCode) {
	if t.known == nil {
		t.known = make(map[uint32]versionEntry)
	}
	if _, again := t.known[version]; !again {
		if len(t.order) < maxVersions {
			t.order = append(t.order, version)
		} else {
			delete(t.known, t.order[t.next])
			t.order[t.next] = version
			t.next = (t.next + 1) % maxVersions
			t.dropped++
		}
	}
	t.known[version] = t.entry(c)
	t.compact()
}

func (t *versionTable) entry(c namedCode) versionEntry {
	return versionEntry{
		begin: c.begin, size: c.size, tier: c.tier,
		class: t.names.add(c.class), name: t.names.add(c.name), signature: t.names.add(c.signature),
	}
}

func (t *versionTable) named(e versionEntry) namedCode {
	return namedCode{
		begin: e.begin, size: e.size, tier: e.tier,
		methodName: methodName{t.names.get(e.class), t.names.get(e.name), t.names.get(e.signature)},
	}
}

// compact drops the names of what was forgotten, once there may be as many of them as of others.
func (t *versionTable) compact() {
	const small = 1 << 20
	if len(t.names.text) < max(t.sparse, small) {
		return
	}
	before := *t
	t.names = nameTable{}
	for version, e := range t.known {
		t.known[version] = t.entry(before.named(e))
	}
	t.sparse = 2 * len(t.names.text)
}

// find returns the compilation of that version if pc is in it. Up to slack bytes behind its end count as well: what
// the VM announces ends before the stubs that belong to the method.
func (t *versionTable) find(version uint32, pc uint64) (namedCode, bool) {
	const slack = 4096
	e, ok := t.known[version]
	if !ok || pc < e.begin || pc-e.begin >= uint64(e.size)+slack {
		return namedCode{}, false
	}
	return t.named(e), true
}

// frame names the compiled method; where in it, and what was inlined, is not known any more.
func (c *namedCode) frame() vmruntime.Frame {
	return vmruntime.Frame{
		Function:    functionName(c.class, c.name),
		Signature:   c.signature,
		BCI:         -1,
		Tier:        c.tier,
		Approximate: c.tier != vmruntime.TierNative, // nothing is inlined in a wrapper
	}
}
