package hotspot

import "github.com/vmprof-agent/vmprof-agent/vmruntime"

// maxVersions bounds how many compilations are remembered by name. What is forgotten is lost only if it is gone from
// the code cache as well.
const maxVersions = 64 << 10

// A namedCode is what remains of a compilation when its code is gone: who it was.
type namedCode struct {
	begin uint64
	size  uint32 // bytes
	tier  vmruntime.Tier
	name  methodName
}

// A versionTable remembers compilations by their version (the low 28 bits of the compile id, which HotSpot counts up):
// those that were live at Attach, and those that were announced since. The zero value is empty.
type versionTable struct {
	named   map[uint32]namedCode
	order   []uint32 // versions as they came: a ring once it is full
	next    int      // where in the ring the oldest is
	dropped uint64   // forgotten for want of room
}

func (t *versionTable) add(version uint32, c namedCode) {
	if t.named == nil {
		t.named = make(map[uint32]namedCode)
	}
	if _, again := t.named[version]; !again {
		if len(t.order) < maxVersions {
			t.order = append(t.order, version)
		} else {
			delete(t.named, t.order[t.next])
			t.order[t.next] = version
			t.next = (t.next + 1) % maxVersions
			t.dropped++
		}
	}
	t.named[version] = c
}

// find returns the compilation of that version if pc is in it. Up to slack bytes behind its end count as well: what
// the VM announces ends before the stubs that belong to the method.
func (t *versionTable) find(version uint32, pc uint64) (namedCode, bool) {
	const slack = 4096
	c, ok := t.named[version]
	if !ok || pc < c.begin || pc-c.begin >= uint64(c.size)+slack {
		return namedCode{}, false
	}
	return c, true
}

// frame names the compiled method; where in it, and what was inlined, is not known any more.
func (c namedCode) frame() vmruntime.Frame {
	return vmruntime.Frame{
		Function:    c.name.function(),
		Signature:   c.name.signature.Value(),
		BCI:         -1,
		Tier:        c.tier,
		Approximate: true,
	}
}
