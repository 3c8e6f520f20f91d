package hotspot

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaheap"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javaobject"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmstructs"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// objectRecordings are recorded guests whose objects are known: to each belong NAME.gz, its memory,
// and NAME.txt, what was found at which address. Both run with G1, one of them with compact
// headers.
var objectRecordings = map[string]struct {
	home    string
	options []string
}{
	"testdata/objects17": {"/usr/lib/jvm/java-17-openjdk-amd64", nil},
	"testdata/objects25": {"/usr/lib/jvm/temurin-25-jdk-amd64", []string{
		"-XX:+UnlockExperimentalVMOptions", "-XX:+UseCompactObjectHeaders", "--sun-misc-unsafe-memory-access=allow",
	}},
}

// TestRecordedObjects finds objects in recorded guests.
func TestRecordedObjects(t *testing.T) {
	for name := range objectRecordings {
		t.Run(filepath.Base(name), func(t *testing.T) {
			if *update {
				recordObjects(t, name)
			}
			p := loadRecording(t, name+".gz").attach(t, func() uint32 { return 0 })
			text, err := os.ReadFile(name + ".txt")
			if err != nil {
				t.Fatal(err)
			}
			found := 0
			for want := range strings.Lines(string(text)) {
				if got := objectText(p, parseQuestion(t, want)); got != want {
					t.Errorf("got  %swant %s", got, want)
				}
				if strings.Contains(want, ".value:long") {
					found++
				}
			}
			if found < 16 { // each byte of two objects' values, twice
				t.Errorf("only %d questions are about what is known", found)
			}
		})
	}
}

// A question is an address, and the base that is given for it, or 0.
type question struct{ addr, base uint64 }

func parseQuestion(t testing.TB, line string) (q question) {
	t.Helper()
	if _, err := fmt.Sscanf(line, "%x base %x:", &q.addr, &q.base); err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return q
}

// ask looks for an object.
func (q question) ask(p *Process) (*javaobject.Object, error) {
	if q.base != 0 {
		return p.ObjectAt(q.addr, q.base)
	}
	return p.ObjectAt(q.addr)
}

// objectText is a question and what was found, on a line.
func objectText(p *Process, q question) string {
	o, err := q.ask(p)
	if err != nil {
		return fmt.Sprintf("%x base %x: %v\n", q.addr, q.base, err)
	}
	generation, err := p.Generation(q.addr)
	if err != nil {
		generation = javaheap.GenerationUnknown
	}
	place := fmt.Sprintf("[%d]", o.Index)
	if o.Index < 0 {
		place = testName(o.Field)
	}
	return fmt.Sprintf("%x base %x: %s+%d of %d %s (%v)\n", q.addr, q.base, o.Class, o.Offset, o.Size, place,
		generation)
}

// recordObjects runs the guest, and writes down what is found around the numbers that it knows.
func recordObjects(t *testing.T, name string) {
	home := objectRecordings[name].home
	options := append([]string{"-XX:-UseSerialGC", "-XX:+UseG1GC"}, objectRecordings[name].options...)
	vm := runGuest(t, home, compileGuest(t, home, []string{objectsSource}), append(options, "hotspot.ObjectsGuest")...)
	if err := unix.Kill(vm.pid, unix.SIGSTOP); err != nil { // so that all of it is of one moment
		t.Fatal(err)
	}
	g := &objectsGuest{vm, vm.attach(t), fieldOffsets(t, vm.said)}
	var questions []question
	for i := uint64(magicOld); i <= magicLocal; i++ {
		addr := g.find(t, i)[0]
		base := uint64(0)
		if o, err := g.p.ObjectAt(addr); err == nil {
			base = o.Start
		}
		for offset := uint64(0); offset < 80; offset += 5 {
			questions = append(questions, question{addr - 40 + offset, 0}, question{addr - 40 + offset, base})
		}
		for offset := range uint64(8) {
			questions = append(questions, question{addr + offset, 0}, question{addr + offset, base})
		}
		questions = append(questions, question{addr + 2*scanned, 0}, question{addr + 2*scanned, base})
	}
	questions = append(questions, question{g.p.VM.Layout.Objects.Heap.Low - 1, 0},
		question{g.p.VM.Layout.Objects.Heap.High, 0})

	recorder := &recorder{Memory: vm.mem}
	vm.mem = recorder
	p := vm.attach(t)
	var text strings.Builder
	for _, q := range questions {
		text.WriteString(objectText(p, q))
	}
	if err := os.WriteFile(name+".txt", []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	vm.recording(recorder).save(t, name+".gz")
}

// TestObjectsWithoutBounds: where nothing says where vtables are, nothing counts as a class.
func TestObjectsWithoutBounds(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	whole := r.attach(t, nil)
	for _, bound := range []string{"MetaspaceObj._shared_metaspace_base", "MetaspaceObj._shared_metaspace_top"} {
		clear(r.memory().At(whole.static(t, bound), 8))
	}
	r.Bounds = [2]uint64{}
	p := r.attach(t, nil)
	text, err := os.ReadFile("testdata/objects17.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if o, err := parseQuestion(t, line).ask(p); err == nil {
			t.Fatalf("%s: %+v", line, o)
		}
	}
}

// TestObjectsStale: what is known of a class counts for one epoch only.
func TestObjectsStale(t *testing.T) {
	r := loadRecording(t, "testdata/objects17.gz")
	epoch := uint32(1)
	p := r.attach(t, func() uint32 { return epoch })
	text, err := os.ReadFile("testdata/objects17.txt")
	if err != nil {
		t.Fatal(err)
	}
	var q question
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, ".value:long") {
			q = parseQuestion(t, line)
			break
		}
	}
	o, err := q.ask(p)
	if err != nil {
		t.Fatal(err)
	}
	header, err := p.Memory.Bytes(o.Start, p.VM.Layout.Objects.HeaderSize())
	if err != nil {
		t.Fatal(err)
	}
	klass := p.VM.Layout.Objects.ClassOf(header)
	class, err := p.Klass(klass, 1)
	if err != nil || class.Name != o.Class {
		t.Fatalf("%+v, %v", class, err)
	}
	again, err := p.Klass(klass, 1)
	if err != nil || again != class {
		t.Errorf("the class was read again: %v", err)
	}
	epoch = 2
	if _, err := p.Klass(klass, 1); err != vmruntime.ErrStale {
		t.Errorf("class of an epoch that is over: %v", err)
	}
	// Another class has no name there.
	clear(p.Memory.Mem.(*vmstructs.Weave).Memory.(*vmtest.Memory).At(p.field(t, "Klass._name").At(klass), 8))
	if class, err := p.Klass(klass, 2); err == nil {
		t.Errorf("a class of the epoch before: %+v", class)
	}
}

// TestObjectsMissing: a VM that does not say how objects look is attached to all the same.
func TestObjectsMissing(t *testing.T) {
	r := loadRecording(t, "testdata/objects25.gz")
	p := r.attach(t, nil)
	static := p.static(t, "Universe._collectedHeap")
	for _, test := range []struct {
		broken  func(p *Process, mem *vmtest.Memory)
		err     error
		missing string
	}{
		{func(p *Process, mem *vmtest.Memory) { clear(mem.At(static, 8)) }, vmruntime.ErrStarting, ""},
		{func(p *Process, mem *vmtest.Memory) {
			heap := vmstructs.Number(mem.At(static, 8))
			clear(mem.At(p.field(t, "CollectedHeap._reserved").At(heap), 16))
		}, nil, "The object layout of this JVM is unknown"},
		{func(p *Process, mem *vmtest.Memory) {
			copy(mem.At(p.static(t, klassShift...), 4), "\x40\x00\x00\x00")
		}, nil,
			"The object layout of this JVM"},
		{func(p *Process, mem *vmtest.Memory) {
			heap := vmstructs.Number(mem.At(static, 8))
			regions := p.field(t, "G1CollectedHeap._hrm").At(heap) +
				uint64(p.field(t, "HeapRegionManager._regions", "G1HeapRegionManager._regions").Offset)
			clear(mem.At(p.field(t, "G1HeapRegionTable._shift_by").At(regions), 4))
		}, nil, "The object layout of this JVM"},
		{func(p *Process, mem *vmtest.Memory) {
			clear(mem.At(p.static(t, "ThreadsSMRSupport._java_thread_list"), 8))
		}, vmruntime.ErrStarting,
			""},
	} {
		fresh := loadRecording(t, "testdata/objects25.gz")
		mem := fresh.memory()
		test.broken(p, mem)
		got, err := fresh.image().Attach(vmruntime.Target{Memory: mem, Bias: fresh.Bias})
		if test.err != nil {
			if err == nil || !strings.Contains(err.Error(), test.err.Error()) {
				t.Errorf("got %v, want %v", err, test.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", test.missing, err)
			continue
		}
		l := got.(*Process).Layout()
		if l.HasObjects || l.Objects != (javaheap.ObjectLayout{}) ||
			!strings.Contains(strings.Join(l.Missing, " "), test.missing) {
			t.Errorf("objects %v, missing %q, want %q", l.HasObjects, l.Missing, test.missing)
		}
		if o, err := got.(*Process).ObjectAt(p.VM.Layout.Objects.Heap.Low + 64); err == nil {
			t.Errorf("object: %+v", o)
		}
	}
}

// TestClassAtZero: the class pointer of a thread's object is zero, as in memory that a collector
// has given up, or as its program has written it there. The guest is attached to all the same, and
// the class is not there.
func TestClassAtZero(t *testing.T) {
	for _, name := range []string{"testdata/objects17.gz", "testdata/objects25.gz"} {
		r := loadRecording(t, name)
		whole := r.attach(t, nil)
		l := whole.VM.Layout.Objects
		if class, err := whole.Klass(0, 0); class != nil || !errors.Is(err, vmruntime.ErrMalformed) {
			t.Errorf("%s: class at 0: %+v, %v", name, class, err)
		}
		threads, err := whole.ThreadAddresses(64)
		if err != nil {
			t.Fatal(err)
		}
		mem := r.memory()
		zeroed := 0
		for _, thread := range threads {
			object, err := whole.Memory.Word(thread + uint64(l.ThreadObject))
			if err == nil && l.ThreadObjectIsHandle {
				object, err = whole.handle(object)
			}
			if header := mem.At(object, l.HeaderSize()); err == nil && header != nil {
				clear(header)
				zeroed++
			}
		}
		if zeroed == 0 {
			t.Fatalf("%s: no thread's object was recorded", name)
		}
		guest, err := r.image().Attach(vmruntime.Target{Memory: mem, Bias: r.Bias})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if l := guest.(*Process).Layout(); l.Objects.HasParkBlocker ||
			!strings.Contains(strings.Join(l.Missing, " "), "parkBlocker") {
			t.Errorf("%s: parkBlocker %v, missing %q", name, l.Objects.HasParkBlocker, l.Missing)
		}
	}
}

// FuzzObjects asks recorded guests whose memory was changed in some places for objects. Eight bytes
// of input are a change: of bytes as in FuzzCodeCache, of words as in changeWords.
func FuzzObjects(f *testing.F) {
	var recordings []*recording
	var questions [][]question
	for _, name := range []string{"testdata/objects17", "testdata/objects25"} {
		recordings = append(recordings, loadRecording(f, name+".gz"))
		text, err := os.ReadFile(name + ".txt")
		if err != nil {
			f.Fatal(err)
		}
		var some []question
		for line := range strings.Lines(string(text)) {
			some = append(some, parseQuestion(f, line))
		}
		questions = append(questions, some)
	}
	f.Add([]byte{}, []byte{}, false)
	f.Add([]byte{0, 0, 1, 0, 0xff, 0xff, 0xff, 0x7f}, []byte{}, true)
	f.Add([]byte("\x00\x40\x00\x00\x01\x00\x00\x00\x00\x80\x02\x00\xff\xff\x00\x00"), []byte{}, false)
	f.Add([]byte{}, []byte("\x00\x40\x00\x00\x00\x00\x00\x00\x00\x80\x02\x00\x01\x03\x00\x00"), false)
	f.Fuzz(func(t *testing.T, changes, words []byte, late bool) {
		i := 0
		if late {
			i = 1
		}
		r := recordings[i]
		mem := r.memory()
		defer change(mem, changes)()
		defer changeWords(mem, words)()
		guest, err := r.image().Attach(vmruntime.Target{Memory: mem, Bias: r.Bias, Epoch: func() uint32 { return 0 }})
		if err != nil {
			return
		}
		p := guest.(*Process)
		for _, q := range questions[i] {
			o, err := q.ask(p)
			if (err == nil) != (o != nil) {
				t.Fatalf("%+v: %+v, %v", q, o, err)
			}
			if o != nil && (o.Start+o.Offset != q.addr || o.Offset >= o.Size || o.Class == "") {
				t.Fatalf("%+v: %+v", q, o)
			}
		}
	})
}
