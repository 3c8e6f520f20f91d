package hotspot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const objectsSource = "../../tests/guests/java/hotspot/ObjectsGuest.java"

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

// A heapKind is a way to run the guest.
type heapKind struct {
	collector Collector
	options   []string
	oldest    int // JDK that has it
}

var heapKinds = map[string]heapKind{
	"Serial":              {CollectorSerial, []string{"-XX:+UseSerialGC"}, 8},
	"Parallel":            {CollectorParallel, []string{"-XX:+UseParallelGC"}, 8},
	"G1":                  {CollectorG1, []string{"-XX:+UseG1GC"}, 8},
	"ZGC":                 {CollectorZ, []string{"-XX:+UseZGC"}, 17},
	"Shenandoah":          {CollectorShenandoah, []string{"-XX:+UseShenandoahGC"}, 17},
	"Epsilon":             {CollectorEpsilon, []string{"-XX:+UnlockExperimentalVMOptions", "-XX:+UseEpsilonGC"}, 17},
	"wide classes":        {CollectorSerial, []string{"-XX:+UseSerialGC", "-XX:-UseCompressedClassPointers"}, 8},
	"wide references":     {CollectorG1, []string{"-XX:+UseG1GC", "-XX:-UseCompressedOops"}, 8},
	"no archive":          {CollectorG1, []string{"-XX:+UseG1GC", "-Xshare:off"}, 8},
	"large alignment":     {CollectorG1, []string{"-XX:+UseG1GC", "-XX:ObjectAlignmentInBytes=32"}, 8},
	"high heap":           {CollectorParallel, []string{"-XX:+UseParallelGC", "-XX:HeapBaseMinAddress=64g"}, 8},
	"compact headers":     {CollectorG1, []string{"-XX:+UseG1GC", "-XX:+UnlockExperimentalVMOptions", "-XX:+UseCompactObjectHeaders"}, 24},
	"compact headers ZGC": {CollectorZ, []string{"-XX:+UseZGC", "-XX:+UnlockExperimentalVMOptions", "-XX:+UseCompactObjectHeaders"}, 24},
}

// TestObjects finds the guest's objects by what is in them, in the heap of every collector.
func TestObjects(t *testing.T) {
	for _, home := range jdks(t) {
		classes := compileGuest(t, home, []string{objectsSource})
		version := 17
		if strings.Contains(home, "25") {
			version = 25
		}
		for name, kind := range heapKinds {
			if version < kind.oldest {
				continue
			}
			t.Run(filepath.Base(home)+"/"+name, func(t *testing.T) {
				options := append([]string{"-XX:-UseSerialGC", "-Xlog:disable", "-Xlog:all=error:stderr"}, kind.options...)
				if version >= 23 {
					options = append(options, "--sun-misc-unsafe-memory-access=allow")
				}
				vm := runGuest(t, home, classes, append(options, "hotspot.ObjectsGuest")...)
				g := &objectsGuest{vm, vm.attach(t), fieldOffsets(t, vm.said)}
				if l := g.p.Layout(); !l.HasObjects || l.Objects.Heap.Collector != kind.collector {
					t.Fatalf("objects %v, heap %+v, missing %q", l.HasObjects, l.Objects.Heap, l.Missing)
				}
				t.Run("fields", g.testFields)
				t.Run("objects", g.testObjects)
				t.Run("generations", g.testGenerations)
				t.Run("walk", g.testWalk)
				t.Run("threads", g.testThreads)
				t.Run("monitor", g.testMonitor)
			})
		}
	}
}

// An objectsGuest is a running ObjectsGuest, and where it said its fields are: by "class.field:type", static ones with
// "static:" before.
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

func (f Field) test() string { return fmt.Sprintf("%s.%s:%s", f.Class, f.Name, f.Type) }

// find returns all addresses in the heap that hold a magic number.
func (g *objectsGuest) find(t *testing.T, i uint64) (addrs []uint64) {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", g.pid))
	if err != nil {
		t.Fatal(err)
	}
	heap := g.p.layout.Objects.Heap
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
			data, err := g.p.bytes(low, min(chunk, high-low))
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

// isOld tells the objects that were there before two collections.
func isOld(i uint64) bool {
	return i == magicOld || i == magicParked || i == magicShared || i == magicLocked
}

// object finds the object with a magic number. Collections leave copies behind, which may be overwritten in part: if
// one is found at all, it must be of the same class.
func (g *objectsGuest) object(t *testing.T, i uint64) *Object {
	t.Helper()
	var found *Object
	for _, addr := range g.find(t, i) {
		o, err := g.p.ObjectAt(addr)
		if generation, _ := g.p.Generation(addr); err != nil && isOld(i) && generation != GenerationOld {
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

// testFields compares all fields of some classes with what the JDK says.
func (g *objectsGuest) testFields(t *testing.T) {
	known := g.object(t, magicFresh)
	thread, _ := g.threadNamed(t, "parks")
	header, err := g.p.bytes(known.Start, g.p.layout.Objects.headerSize())
	if err != nil {
		t.Fatal(err)
	}
	class, err := g.p.Klass(g.p.layout.Objects.klass(header), 0)
	if err != nil {
		t.Fatal(err)
	}
	if header, err = g.p.bytes(thread, g.p.layout.Objects.headerSize()); err != nil {
		t.Fatal(err)
	}
	threadClass, err := g.p.Klass(g.p.layout.Objects.klass(header), 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, c := range []*Class{class, threadClass} {
		for _, f := range c.fields {
			got[f.test()] = uint64(f.Offset)
		}
		for _, f := range c.statics {
			got["static:"+f.test()] = uint64(f.Offset)
		}
	}
	for name, want := range g.offsets {
		if offset, ok := got[name]; !ok || offset != want {
			t.Errorf("%s is at %d (%v), want %d", name, offset, ok, want)
		}
	}
	if len(g.offsets) < 20 {
		t.Errorf("the guest said only %v", g.offsets)
	}
	if want := g.offsets["java.lang.Thread.parkBlocker:java.lang.Object"]; !g.p.layout.Objects.HasParkBlocker || uint64(g.p.layout.Objects.ParkBlocker) != want {
		t.Errorf("parkBlocker is at %d, want %d", g.p.layout.Objects.ParkBlocker, want)
	}
	if class.Name != "hotspot.ObjectsGuest$Known" || class.InstanceSize() != known.Size || known.Size%8 != 0 {
		t.Errorf("class %s has objects of %d bytes, one has %d", class.Name, class.InstanceSize(), known.Size)
	}
}

// testObjects asks what holds addresses that are known.
func (g *objectsGuest) testObjects(t *testing.T) {
	const known = "hotspot.ObjectsGuest$Known"
	for _, test := range []struct {
		magic        uint64
		class, field string
		index        int
	}{
		{magicOld, known, known + ".value:long", -1},
		{magicFresh, known, known + ".value:long", -1},
		{magicLongs, "long[]", "", 11},
		{magicLarge, "long[]", "", 7},
		{magicShared, "java.lang.Class", known + ".shared:long", -1},
	} {
		o := g.object(t, test.magic)
		field := ""
		if o.Field != (Field{}) {
			field = o.Field.test()
		}
		if o.Class != test.class || field != test.field || o.Index != test.index {
			t.Errorf("object %d is %+v, want %+v", test.magic, o, test)
		}
	}
	if o := g.object(t, magicCaptured); o.Class != "hotspot.ObjectsGuest$$Lambda" || o.Field.Type != "long" {
		t.Errorf("captured: %+v", o)
	}
	g.testPlaces(t)
}

// testPlaces asks for every byte of an object, and for what is around it.
func (g *objectsGuest) testPlaces(t *testing.T) {
	o := g.object(t, magicFresh)
	covered := make(map[string]int)
	for offset := range o.Size {
		at, err := g.p.ObjectAt(o.Start + offset)
		if err != nil || at.Start != o.Start || at.Offset != offset {
			t.Fatalf("byte %d: %+v, %v", offset, at, err)
		}
		if based, err := g.p.ObjectAt(o.Start+offset, 1, o.Start-64, o.Start, g.p.layout.Objects.Heap.Low); err != nil || *based != *at {
			t.Errorf("byte %d by its base: %+v, %v, want %+v", offset, based, err, at)
		}
		if at.Field != (Field{}) {
			covered[at.Field.test()]++
		}
	}
	sizes := map[string]int{"first": 8, "small": 1, "letter": 2, "flag": 1, "number": 4, "value": 8, "real": 8}
	total := 0
	for name, n := range covered {
		short, _, _ := strings.Cut(name[strings.LastIndex(name[:strings.Index(name, ":")], ".")+1:], ":")
		if want, ok := sizes[short]; ok && n != want {
			t.Errorf("%s has %d bytes, want %d", name, n, want)
		}
		total++
	}
	if total != len(sizes)+2 { // next, list
		t.Errorf("fields by byte: %v", covered)
	}
	if after, err := g.p.ObjectAt(o.Start + o.Size); err == nil && after.Start < o.Start+o.Size {
		t.Errorf("behind the object: %+v", after)
	}
	// Four KiB are searched: farther in, only the base tells.
	large := g.object(t, magicLarge)
	far := large.Start + 400_000
	if found, err := g.p.ObjectAt(far); err == nil && found.Class == "long[]" && found.Start == large.Start {
		t.Errorf("%d bytes into an array, without its base: %+v", far-large.Start, found)
	}
	if found, err := g.p.ObjectAt(far, large.Start); err != nil || found.Class != "long[]" || found.Index != (400_000-int(large.Offset))/8+7 {
		t.Errorf("%d bytes into an array, with its base: %+v, %v", far-large.Start, found, err)
	}
}

// testWalk goes through the old generation from object to object, as there are no gaps in it after a collection, and asks
// for a byte of each: the answer must be the object that the way leads to.
func (g *objectsGuest) testWalk(t *testing.T) {
	heap := g.p.layout.Objects.Heap
	if heap.Generations != GenerationsByBounds {
		t.Skip("the old generation is not in one piece")
	}
	start, end := heap.YoungHigh, heap.High
	if heap.YoungLow > heap.Low {
		start, end = heap.Low, heap.YoungLow
	}
	objects, arrays, far, wrong := 0, 0, 0, 0
	const enough = 10_000
	for ; start < end && objects < enough; objects++ {
		o, err := g.p.ObjectAt(start, start)
		if err != nil || o.Start != start {
			break
		}
		offset := uint64(objects) * 7 % o.Size
		found, err := g.p.ObjectAt(start + offset)
		switch {
		case offset >= scanBytes:
			far++
		case o.Class == "jdk.internal.vm.FillerElement[]" || o.Class == "int[]":
			// may be what collections make of dead objects: these are still in there
		case err != nil || found.Start != start || found.Size != o.Size || found.Class != o.Class || found.Offset != offset:
			wrong++
			t.Logf("byte %d of %+v is taken for %+v, %v", offset, o, found, err)
		case found.Index >= 0:
			arrays++
		}
		start += o.Size
	}
	// Where references are counted from a base, as classes are, some of them have the same 32 bits as a class.
	tolerated := 0
	if g.p.layout.Objects.OopIsNarrow && g.p.layout.Objects.OopBase != 0 {
		tolerated = objects / 1000
	}
	if wrong > tolerated {
		t.Errorf("%d of %d answers are wrong, want at most %d", wrong, objects, tolerated)
	}
	t.Logf("%d objects, %d elements of arrays, %d too far from the header", objects, arrays, far)
	if objects < 3000 || arrays < 200 {
		t.Errorf("only %d objects and %d elements of arrays", objects, arrays)
	}
}

// testGenerations knows which objects were there before two collections.
func (g *objectsGuest) testGenerations(t *testing.T) {
	rule := g.p.layout.Objects.Heap.Generations
	switch g.p.layout.Objects.Heap.Collector {
	case CollectorSerial, CollectorParallel:
		if rule != GenerationsByBounds {
			t.Fatalf("rule %d", rule)
		}
	case CollectorG1:
		if rule != GenerationsByRegion {
			t.Fatalf("rule %d", rule)
		}
	default:
		if rule != GenerationsUnknown || !strings.Contains(strings.Join(g.p.layout.Missing, " "), "Generations") {
			t.Errorf("rule %d, missing %q", rule, g.p.layout.Missing)
		}
	}
	generations := func(i uint64) map[string]bool {
		seen := make(map[string]bool)
		for _, addr := range g.find(t, i) {
			generation, err := g.p.Generation(addr)
			if err != nil {
				t.Error(err)
			}
			seen[generation.String()] = true
		}
		return seen
	}
	old, fresh, large := generations(magicOld), generations(magicFresh), generations(magicLarge)
	switch rule {
	case GenerationsByBounds:
		if !old["old"] || !fresh["young"] || len(fresh) != 1 {
			t.Errorf("old object is %v, fresh one %v", old, fresh)
		}
	case GenerationsByRegion:
		if !old["old"] || !fresh["eden"] || len(fresh) != 1 || !large["humongous"] && g.p.layout.Objects.Heap.RegionShift == 20 {
			t.Errorf("old object is %v, fresh one %v, large one %v", old, fresh, large)
		}
	default:
		if !old["unknown"] || len(old) != 1 {
			t.Errorf("old object is %v", old)
		}
	}
}

// threadNamed returns the java.lang.Thread of a name, and its JavaThread, both as addresses.
func (g *objectsGuest) threadNamed(t *testing.T, name string) (object, thread uint64) {
	t.Helper()
	l := &g.p.layout.Objects
	threads, err := g.p.threads(maxThreads)
	if err != nil {
		t.Fatal(err)
	}
	for _, thread := range threads {
		at := thread + uint64(l.ThreadObject)
		object, err := g.p.word(at)
		if err == nil && l.ThreadObjectIsHandle {
			object, err = g.p.handle(object)
		}
		if err != nil || object == 0 || !g.isObject(object) {
			continue // ZGC moved it, and the reference was not used since
		}
		text := g.reference(t, object+g.offsets["java.lang.Thread.name:java.lang.String"])
		if g.isObject(text) && g.text(t, text) == name {
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
	l := &g.p.layout.Objects
	if !l.OopIsNarrow {
		object, err := g.p.handle(addr)
		if err != nil {
			t.Fatal(err)
		}
		return object
	}
	b, err := g.p.bytes(addr, 4)
	if err != nil {
		t.Fatal(err)
	}
	if number(b) == 0 {
		return 0
	}
	return l.OopBase + number(b)<<l.OopShift
}

// text reads a java.lang.String of Latin-1.
func (g *objectsGuest) text(t *testing.T, object uint64) string {
	t.Helper()
	l := &g.p.layout.Objects
	header, err := g.p.bytes(object, l.headerSize())
	if err != nil {
		t.Fatal(err)
	}
	class, err := g.p.Klass(l.klass(header), 0)
	if err != nil || class.Name != "java.lang.String" {
		t.Fatalf("string at %#x: %v, %v", object, class, err)
	}
	for _, f := range class.fields {
		if f.Name == "value" && f.Type == "byte[]" {
			array := g.reference(t, object+uint64(f.Offset))
			first, err := g.p.bytes(array, l.headerSize())
			if err != nil {
				t.Fatal(err)
			}
			head, err := g.p.readHeads([]uint64{l.klass(first)})
			if err != nil || head[l.klass(first)].name != "byte[]" {
				t.Fatalf("bytes of a string at %#x: %v, %v", array, head, err)
			}
			text, err := g.p.bytes(array+head[l.klass(first)].shape.header, number(first[l.ArrayLength:l.ArrayLength+4]))
			if err != nil {
				t.Fatal(err)
			}
			return string(text)
		}
	}
	t.Fatalf("fields of a string: %+v", class.fields)
	return ""
}

// testThreads follows a parked thread to what it waits for, and finds a fresh object in the buffer of its thread.
func (g *objectsGuest) testThreads(t *testing.T) {
	l := &g.p.layout.Objects
	object, thread := g.threadNamed(t, "parks")
	blocker := g.reference(t, object+uint64(l.ParkBlocker))
	if !contains(g.starts(t, magicParked), blocker) {
		t.Errorf("thread is parked at %#x, want one of %#x", blocker, g.starts(t, magicParked))
	}
	tlab := make([]uint64, 3)
	for i, offset := range []uint32{l.TLABStart, l.TLABTop, l.TLABEnd} {
		var err error
		if tlab[i], err = g.p.word(thread + uint64(offset)); err != nil {
			t.Fatal(err)
		}
	}
	for _, start := range g.starts(t, magicLocal) {
		if start >= tlab[0] && start < tlab[1] && tlab[1] <= tlab[2] {
			return
		}
	}
	t.Errorf("thread's object at %#x, buffer %#x", g.starts(t, magicLocal), tlab)
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

// testMonitor goes from a contended lock's monitor, which the object's header leads to, back to the object.
func (g *objectsGuest) testMonitor(t *testing.T) {
	const lockBits, inflated = 3, 2 // markWord.hpp
	l := &g.p.layout.Objects
	if l.KlassInMark {
		t.Skip("the header does not lead to the monitor")
	}
	for _, start := range g.starts(t, magicLocked) {
		mark, err := g.p.word(start)
		if err != nil || mark&lockBits != inflated {
			continue // left behind by a collection
		}
		object, err := g.p.word(mark&^lockBits + uint64(l.MonitorObject))
		if err == nil && l.MonitorObjectIsHandle {
			object, err = g.p.handle(object)
		}
		if mask := l.Heap.Low - 1; l.Heap.Collector == CollectorZ && !l.OopIsColoured { // each view has another address
			object, start = object&mask, start&mask
		}
		if err != nil || object != start {
			t.Errorf("monitor of %#x is of %#x, %v", start, object, err)
		}
		return
	}
	t.Errorf("no monitor at %#x", g.starts(t, magicLocked))
}
