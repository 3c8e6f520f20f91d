package hotspot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
)

// The guest's objects, by the last four bits of their number: see ObjectsGuest.magic.
const (
	magicOld = iota + 1
	magicFresh
	magicLongs
	magicLarge
	magicCaptured
	magicParked
	magicShared
	magicLocked
	magicLocal
)

func magic(i uint64) uint64 { return 0x7e57_ab1e_0ddb_a110 | i }

// An objectsGuest is a running ObjectsGuest, and where it said its fields are: by
// "class.field:type", static ones with "static:" before.
type objectsGuest struct {
	*jvm
	p       *Process
	offsets map[string]uint64
}

func fieldOffsets(t *testing.T, said string) map[string]uint64 {
	t.Helper()
	offsets := make(map[string]uint64)
	for _, word := range strings.Fields(said)[1:] {
		name, number, _ := strings.Cut(word, "=")
		offset, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			t.Fatalf("guest said %q", word)
		}
		offsets[name] = offset
	}
	return offsets
}

func testName(f javaobject.Field) string { return fmt.Sprintf("%s.%s:%s", f.Class, f.Name, f.Type) }

// find returns all addresses in the heap that hold a magic number.
func (g *objectsGuest) find(t *testing.T, i uint64) (addrs []uint64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", g.pid))
	if err != nil {
		t.Fatal(err)
	}
	heap := g.p.VM.Layout.Objects.Heap
	want := binary.LittleEndian.AppendUint64(nil, magic(i))
	for line := range strings.Lines(string(maps)) {
		var low, high uint64
		var mode string
		if n, _ := fmt.Sscanf(line, "%x-%x %s", &low, &high, &mode); n != 3 || !strings.HasPrefix(mode, "rw") {
			continue
		}
		low, high = max(low, heap.Low), min(high, heap.High)
		const chunk = 1 << 20
		for ; low < high; low += chunk {
			data, err := g.p.Memory.Bytes(low, min(chunk, high-low))
			if err != nil {
				continue
			}
			for at := 0; ; {
				n := bytes.Index(data[at:], want)
				if n < 0 {
					break
				}
				if at += n; at%8 == 0 {
					addrs = append(addrs, low+uint64(at))
				}
				at += len(want)
			}
		}
	}
	if len(addrs) == 0 {
		t.Fatalf("%#x is not in the heap: %+v", magic(i), heap)
	}
	return addrs
}

// object finds the object with a magic number. Collections leave copies behind, which may be
// overwritten in part: if one is found at all, it must be of the same class.
func (g *objectsGuest) object(t *testing.T, i uint64) *javaobject.Object {
	t.Helper()
	var found *javaobject.Object
	for _, addr := range g.find(t, i) {
		o, err := g.p.ObjectAt(addr)
		if generation, _ := g.p.Generation(addr); err != nil && isOld(i) && generation != javaheap.GenerationOld {
			continue
		}
		if err != nil {
			t.Errorf("object %d at %#x: %v", i, addr, err)
			continue
		}
		if found != nil && (found.Class != o.Class || found.Offset != o.Offset) {
			t.Errorf("object %d: %+v and %+v", i, found, o)
		}
		found = o
	}
	if found == nil {
		t.FailNow()
	}
	return found
}

// threadNamed returns the java.lang.Thread of a name, and its JavaThread, both as addresses.
func (g *objectsGuest) threadNamed(t *testing.T, name string) (object, thread uint64) {
	t.Helper()
	l := &g.p.VM.Layout.Objects
	threads, err := g.p.ThreadAddresses(64)
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		at := thread + uint64(l.ThreadObject)
		object, err := g.p.Memory.Word(at)
		if err == nil && l.ThreadObjectIsHandle {
			object, err = g.p.handle(object)
		}
		if err != nil || object == 0 || !g.isObject(object) {
			continue // ZGC moved it, and the reference was not used since
		}
		// The same holds for the reference to its name: any other object may be there by now.
		at = g.reference(t, object+g.offsets["java.lang.Thread.name:java.lang.String"])
		said, err := g.p.ObjectAt(at, at)
		if err == nil && said.Start == at && said.Class == "java.lang.String" && g.text(t, at) == name {
			return object, thread
		}
	}
	t.Fatalf("no thread %q among %d", name, len(threads))
	return 0, 0
}

func (g *objectsGuest) isObject(addr uint64) bool {
	object, err := g.p.ObjectAt(addr, addr)
	return err == nil && object.Start == addr
}

// reference follows a reference in the field at addr.
func (g *objectsGuest) reference(t *testing.T, addr uint64) uint64 {
	t.Helper()
	l := &g.p.VM.Layout.Objects
	if !l.OopIsNarrow {
		object, err := g.p.handle(addr)
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	b, err := g.p.Memory.Bytes(addr, 4)
	if err != nil {
		t.Fatal(err)
	}
	if vmstructs.Number(b) == 0 {
		return 0
	}
	return l.OopBase + vmstructs.Number(b)<<l.OopShift
}

// text reads a java.lang.String of Latin-1. It is empty if ZGC moved its bytes, and it was not used
// since.
func (g *objectsGuest) text(t *testing.T, object uint64) string {
	t.Helper()
	l := &g.p.VM.Layout.Objects
	header, err := g.p.Memory.Bytes(object, l.HeaderSize())
	if err != nil {
		t.Fatal(err)
	}
	class, err := g.p.Klass(l.ClassOf(header), 0)
	if err != nil || class.Name != "java.lang.String" {
		t.Fatalf("string at %#x: %v, %v", object, class, err)
	}
	for _, f := range class.Fields() {
		if f.Name == "value" && f.Type == "byte[]" {
			array := g.reference(t, object+uint64(f.Offset))
			first, err := g.p.Memory.Bytes(array, l.HeaderSize())
			if err != nil {
				t.Fatal(err)
			}
			kind, err := g.p.Klass(l.ClassOf(first), 0)
			if err != nil || kind.Name != "byte[]" {
				return ""
			}
			begin := array + uint64(l.ArrayLength) + 4
			for range 8 { // the elements may be aligned
				if o, err := g.p.ObjectAt(begin, array); err != nil || o.Index == 0 {
					break
				}
				begin++
			}
			text, err := g.p.Memory.Bytes(begin,
				vmstructs.Number(first[l.ArrayLength:l.ArrayLength+4]))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	t.Fatalf("fields of a string: %+v", class.Fields())
	return ""
}

// starts returns where the objects with a magic number begin.
func (g *objectsGuest) starts(t *testing.T, i uint64) (starts []uint64) {
	t.Helper()
	for _, addr := range g.find(t, i) {
		if o, err := g.p.ObjectAt(addr); err == nil {
			starts = append(starts, o.Start)
		}
	}
	return starts
}

func contains(all []uint64, one uint64) bool {
	for _, v := range all {
		if v == one {
			return true
		}
	}
	return false
}
