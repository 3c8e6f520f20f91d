package hotspot

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
)

const objectsSource = "../../tests/guests/java/hotspot/ObjectsGuest.java"

// A heapKind is a way to run the guest.
type heapKind struct {
	collector javaheap.Collector
	options   []string
	oldest    int // JDK that has it
}

var heapKinds = map[string]heapKind{
	"Serial":     {javaheap.CollectorSerial, []string{"-XX:+UseSerialGC"}, 8},
	"Parallel":   {javaheap.CollectorParallel, []string{"-XX:+UseParallelGC"}, 8},
	"G1":         {javaheap.CollectorG1, []string{"-XX:+UseG1GC"}, 8},
	"ZGC":        {javaheap.CollectorZ, []string{"-XX:+UseZGC"}, 17},
	"Shenandoah": {javaheap.CollectorShenandoah, []string{"-XX:+UseShenandoahGC"}, 17},
	"Epsilon": {javaheap.CollectorEpsilon, []string{"-XX:+UnlockExperimentalVMOptions",
		"-XX:+UseEpsilonGC"}, 17},
	"wide classes": {javaheap.CollectorSerial, []string{"-XX:+UseSerialGC", "-XX:-UseCompressedClassPointers"},
		8},
	"wide references": {javaheap.CollectorG1, []string{"-XX:+UseG1GC", "-XX:-UseCompressedOops"}, 8},
	"no archive":      {javaheap.CollectorG1, []string{"-XX:+UseG1GC", "-Xshare:off"}, 8},
	"large alignment": {javaheap.CollectorG1, []string{"-XX:+UseG1GC", "-XX:ObjectAlignmentInBytes=32"}, 8},
	"high heap": {javaheap.CollectorParallel, []string{"-XX:+UseParallelGC", "-XX:HeapBaseMinAddress=64g"},
		8},
	"compact headers": {javaheap.CollectorG1, []string{"-XX:+UseG1GC", "-XX:+UnlockExperimentalVMOptions",
		"-XX:+UseCompactObjectHeaders"}, 24},
	"compact headers ZGC": {javaheap.CollectorZ, []string{"-XX:+UseZGC", "-XX:+UnlockExperimentalVMOptions",
		"-XX:+UseCompactObjectHeaders"}, 24},
}

// TestLiveObjects finds the guest's objects by what is in them, in the heap of every collector.
func TestLiveObjects(t *testing.T) {
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
				options := append([]string{"-XX:-UseSerialGC", "-Xlog:disable", "-Xlog:all=error:stderr"},
					kind.options...)
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
				t.Run("thread names", g.testThreadNames)
				t.Run("monitor", g.testMonitor)
			})
		}
	}
}

// TestLiveForwarding finds the forwarding tables of both generations of ZGC, in heaps for which
// they are as long as the table of pages or shorter.
func TestLiveForwarding(t *testing.T) {
	for _, home := range jdks(t) {
		if !strings.Contains(home, "25") { // JDK 17 has no generations
			continue
		}
		classes := compileGuest(t, home, []string{objectsSource})
		for _, most := range []string{"64m", "512m", "600m"} {
			t.Run(filepath.Base(home)+"/"+most, func(t *testing.T) {
				vm := runGuest(t, home, classes, "-XX:-UseSerialGC", "-XX:+UseZGC", "-Xmx"+most, "-Xlog:disable",
					"-Xlog:all=error:stderr",
					"--sun-misc-unsafe-memory-access=allow", "hotspot.ObjectsGuest")
				p := vm.attach(t)
				f := p.Layout().Objects.Forwarding
				if f.Tables[0] == 0 || f.Tables[1] == 0 || f.Tables[0] == f.Tables[1] {
					t.Fatalf("tables %#x", f.Tables)
				}
				for _, table := range f.Tables {
					for i := range uint64(64 << 20 * 16 >> f.GranuleShift) { // addresses are for 16 times the heap
						page, err := p.Memory.Word(table + 8*i)
						if err != nil {
							t.Fatal(err)
						}
						if page == 0 {
							continue
						}
						start, err := p.Memory.Word(page + uint64(f.Start))
						if err != nil || start>>f.GranuleShift > i {
							t.Errorf("the forwarding of granule %d begins at %#x, %v", i, start, err)
						}
					}
				}
			})
		}
	}
}

// isOld tells the objects that were there before two collections.
func isOld(i uint64) bool {
	return i == magicOld || i == magicParked || i == magicShared || i == magicLocked
}

// testFields compares all fields of some classes with what the JDK says.
func (g *objectsGuest) testFields(t *testing.T) {
	known := g.object(t, magicFresh)
	thread, _ := g.threadNamed(t, "parks")
	header, err := g.p.Memory.Bytes(known.Start, g.p.VM.Layout.Objects.HeaderSize())
	if err != nil {
		t.Fatal(err)
	}
	class, err := g.p.Klass(g.p.VM.Layout.Objects.ClassOf(header), 0)
	if err != nil {
		t.Fatal(err)
	}
	if header, err = g.p.Memory.Bytes(thread, g.p.VM.Layout.Objects.HeaderSize()); err != nil {
		t.Fatal(err)
	}
	threadClass, err := g.p.Klass(g.p.VM.Layout.Objects.ClassOf(header), 0)
	if err != nil {
		t.Fatal(err)
	}
	got := make(map[string]uint64)
	for _, c := range []*javaobject.Class{class, threadClass} {
		for _, f := range c.Fields() {
			got[testName(f)] = uint64(f.Offset)
		}
		for _, f := range c.Statics() {
			got["static:"+testName(f)] = uint64(f.Offset)
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
	if want := g.offsets["java.lang.Thread.parkBlocker:java.lang.Object"]; !g.p.VM.Layout.Objects.HasParkBlocker ||
		uint64(g.p.VM.Layout.Objects.ParkBlocker) != want {
		t.Errorf("parkBlocker is at %d, want %d", g.p.VM.Layout.Objects.ParkBlocker, want)
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
		if o.Field != (javaobject.Field{}) {
			field = testName(o.Field)
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
		if based, err := g.p.ObjectAt(o.Start+offset, 1, o.Start-64, o.Start,
			g.p.VM.Layout.Objects.Heap.Low); err != nil || *based != *at {
			t.Errorf("byte %d by its base: %+v, %v, want %+v", offset, based, err, at)
		}
		if at.Field != (javaobject.Field{}) {
			covered[testName(at.Field)]++
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
	if found, err := g.p.ObjectAt(far, large.Start); err != nil || found.Class != "long[]" ||
		found.Index != (400_000-int(large.Offset))/8+7 {
		t.Errorf("%d bytes into an array, with its base: %+v, %v", far-large.Start, found, err)
	}
}

// testWalk goes through the old generation from object to object, as there are no gaps in it after
// a collection, and asks for a byte of each: the answer must be the object that the way leads to.
func (g *objectsGuest) testWalk(t *testing.T) {
	heap := g.p.VM.Layout.Objects.Heap
	if heap.Generations != javaheap.GenerationsByBounds {
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
		case offset >= scanned:
			far++
		case o.Class == "jdk.internal.vm.FillerElement[]" || o.Class == "int[]":
			// may be what collections make of dead objects: these are still in there
		case err != nil || found.Start != start || found.Size != o.Size || found.Class != o.Class ||
			found.Offset != offset:
			wrong++
			t.Logf("byte %d of %+v is taken for %+v, %v", offset, o, found, err)
		case found.Index >= 0:
			arrays++
		}
		start += o.Size
	}
	// Where references are counted from a base, as classes are, some of them have the same 32 bits
	// as a class.
	tolerated := 0
	if g.p.VM.Layout.Objects.OopIsNarrow && g.p.VM.Layout.Objects.OopBase != 0 {
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
	rule := g.p.VM.Layout.Objects.Heap.Generations
	switch g.p.VM.Layout.Objects.Heap.Collector {
	case javaheap.CollectorSerial, javaheap.CollectorParallel:
		if rule != javaheap.GenerationsByBounds {
			t.Fatalf("rule %d", rule)
		}
	case javaheap.CollectorG1:
		if rule != javaheap.GenerationsByRegion {
			t.Fatalf("rule %d", rule)
		}
	default:
		if rule != javaheap.GenerationsUnknown || !strings.Contains(strings.Join(g.p.VM.Layout.Missing, " "),
			"Generations") {
			t.Errorf("rule %d, missing %q", rule, g.p.VM.Layout.Missing)
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
	case javaheap.GenerationsByBounds:
		if !old["old"] || !fresh["young"] || len(fresh) != 1 {
			t.Errorf("old object is %v, fresh one %v", old, fresh)
		}
	case javaheap.GenerationsByRegion:
		if !old["old"] || !fresh["eden"] || len(fresh) != 1 || !large["humongous"] &&
			g.p.VM.Layout.Objects.Heap.RegionShift == 20 {
			t.Errorf("old object is %v, fresh one %v, large one %v", old, fresh, large)
		}
	default:
		if !old["unknown"] || len(old) != 1 {
			t.Errorf("old object is %v", old)
		}
	}
}

// testThreads follows a parked thread to what it waits for, and finds a fresh object in the buffer
// of its thread.
func (g *objectsGuest) testThreads(t *testing.T) {
	l := &g.p.VM.Layout.Objects
	object, thread := g.threadNamed(t, "parks")
	blocker := g.reference(t, object+uint64(l.ParkBlocker))
	if !contains(g.starts(t, magicParked), blocker) {
		t.Errorf("thread is parked at %#x, want one of %#x", blocker, g.starts(t, magicParked))
	}
	tlab := make([]uint64, 3)
	for i, offset := range []uint32{l.TLABStart, l.TLABTop, l.TLABEnd} {
		var err error
		if tlab[i], err = g.p.Memory.Word(thread + uint64(offset)); err != nil {
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

// testMonitor goes from a contended lock's monitor, which the object's header leads to, back to the
// object.
func (g *objectsGuest) testMonitor(t *testing.T) {
	const lockBits, inflated = 3, 2 // markWord.hpp
	l := &g.p.VM.Layout.Objects
	if l.KlassInMark {
		t.Skip("the header does not lead to the monitor")
	}
	for _, start := range g.starts(t, magicLocked) {
		mark, err := g.p.Memory.Word(start)
		if err != nil || mark&lockBits != inflated {
			continue // left behind by a collection
		}
		object, err := g.p.Memory.Word(mark&^lockBits + uint64(l.MonitorObject))
		if err == nil && l.MonitorObjectIsHandle {
			object, err = g.p.handle(object)
		}
		// Each view has another address.
		if mask := l.Heap.Low - 1; l.Heap.Collector == javaheap.CollectorZ && !l.OopIsColoured {
			object, start = object&mask, start&mask
		}
		if err != nil || object != start {
			t.Errorf("monitor of %#x is of %#x, %v", start, object, err)
		}
		return
	}
	t.Errorf("no monitor at %#x", g.starts(t, magicLocked))
}

// testThreadNames compares the names of the guest's threads with those that the kernel has.
func (g *objectsGuest) testThreadNames(t *testing.T) {
	g.threadNamed(t, "parks") // which may take a moment with ZGC
	names, err := g.p.ThreadNames()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]bool{}
	for id, name := range names {
		found[name] = true
		comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/comm", g.pid, id))
		if err != nil {
			t.Errorf("%q is said to be thread %d: %v", name, id, err)
			continue
		}
		switch kernel := strings.TrimSpace(string(comm)); {
		// JDK 8 names few threads, and late ones leave out the middle
		case kernel == "java", strings.HasPrefix(name, kernel), strings.Contains(kernel, ".."):
		default:
			t.Errorf("thread %d is %q, and %q to the kernel", id, name, kernel)
		}
	}
	for _, want := range []string{"parks", "main", "Reference Handler"} {
		if !found[want] && !g.p.VM.Layout.Objects.Heap.Collector.Moves() {
			t.Errorf("no %q among %v", want, names)
		}
	}
	if len(found) < 3 {
		t.Errorf("names %v", names)
	}
}
