package nmethod

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/methodinfo"
)

// maxVersions bounds how many compilations are remembered by name. What is forgotten is lost only
// if it is gone from the code cache as well.
const maxVersions = 64 << 10

// A namedCode is what remains of a compilation when its code is gone: who it was.
type namedCode struct {
	begin uint64
	size  uint32 // bytes
	tier  vmruntime.Tier
	methodinfo.Identity
}

// A VersionTable remembers compilations by their version (the low 28 bits of the compile id, which
// HotSpot counts up): those that were live at Attach, and those that were announced since. It takes
// about 100 bytes for each. The zero value is empty.
type VersionTable struct {
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

func (t *VersionTable) add(version uint32, c namedCode) {
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

func (t *VersionTable) entry(c namedCode) versionEntry {
	return versionEntry{
		begin: c.begin, size: c.size, tier: c.tier,
		class: t.names.add(c.Class), name: t.names.add(c.Name), signature: t.names.add(c.Signature),
	}
}

func (t *VersionTable) named(e versionEntry) namedCode {
	return namedCode{
		begin: e.begin, size: e.size, tier: e.tier,
		Identity: methodinfo.Identity{
			Class: t.names.get(e.class), Name: t.names.get(e.name), Signature: t.names.get(e.signature),
		},
	}
}

// compact drops the names of what was forgotten, once there may be as many of them as of others.
func (t *VersionTable) compact() {
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

// Find returns the compilation of that version if pc is in it. Up to slack bytes behind its end
// count as well: what the VM announces ends before the stubs that belong to the method.
func (t *VersionTable) Find(version uint32, pc uint64) (namedCode, bool) {
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
		Function:    methodinfo.FunctionName(c.Class, c.Name),
		Signature:   c.Signature,
		BCI:         -1,
		Tier:        c.tier,
		Approximate: c.tier != vmruntime.TierNative, // nothing is inlined in a wrapper
	}
}

// A nameTable keeps each string once, in one piece of memory: 2 bytes and about 6 of index more
// than its text, where a Go map would take 60 and give the garbage collector pointers to follow. A
// guest with 7,000 compilations has about as many distinct classes, names and signatures. The zero
// value is empty.
type nameTable struct {
	text  []byte   // strings, each behind its length in 16 bits
	index []uint32 // open hash table of offsets into text; 0 is free, as text[0] is a dummy
	count int
	seed  maphash.Seed
}

// A nameRef stands for a string in a nameTable.
type nameRef uint32

// add returns the reference of s, which must not be longer than vmstructs.MaxNameBytes.
func (t *nameTable) add(s string) nameRef {
	if t.index == nil {
		t.seed, t.index, t.text = maphash.MakeSeed(), make([]uint32, 64), []byte{0}
	}
	if 4*t.count >= 3*len(t.index) {
		t.grow()
	}
	slot := t.find(s)
	if t.index[slot] == 0 {
		t.index[slot] = uint32(len(t.text))
		t.text = binary.LittleEndian.AppendUint16(t.text, uint16(len(s)))
		t.text = append(t.text, s...)
		t.count++
	}
	return nameRef(t.index[slot])
}

// get returns a copy of a string.
func (t *nameTable) get(r nameRef) string { return string(t.at(uint32(r))) }

func (t *nameTable) at(offset uint32) []byte {
	b := t.text[offset:]
	return b[2:][:binary.LittleEndian.Uint16(b)]
}

// find returns the slot of s, or the free one where it belongs.
func (t *nameTable) find(s string) uint64 {
	mask := uint64(len(t.index) - 1)
	slot := maphash.String(t.seed, s) & mask
	for t.index[slot] != 0 && string(t.at(t.index[slot])) != s { // the conversion does not allocate
		slot = (slot + 1) & mask
	}
	return slot
}

func (t *nameTable) grow() {
	old := t.index
	t.index = make([]uint32, 2*len(old))
	for _, offset := range old {
		if offset != 0 {
			t.index[t.find(string(t.at(offset)))] = offset
		}
	}
}
