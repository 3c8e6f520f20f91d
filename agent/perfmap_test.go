package agent

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/perfmap"
)

// A mapWriter is a process with a map of its code, in a procfs of the test's making. Its pid is 100; it knows itself as 3.
type mapWriter struct {
	*process
	t     *testing.T
	agent *Agent
	dir   string // of its procfs
	path  string // of its map
}

// codeAt is where it has compiled code.
const codeAt = 0x7f3814003000

func newMapWriter(t *testing.T) *mapWriter {
	t.Helper()
	a, _ := testAgent()
	root := t.TempDir()
	a.root, a.pool, a.log = proc.Root(root), proc.NewPool(proc.PoolOptions{}), slog.New(slog.DiscardHandler)
	a.images = a.newImages(a.pool)
	t.Cleanup(a.images.Close)
	a.files = symbolize.NewFiles(1 << 20)
	w := &mapWriter{t: t, agent: a, dir: filepath.Join(root, "100")}
	w.path = filepath.Join(w.dir, "root/tmp/perf-3.map")
	w.file("stat", "100 (js) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 500 0 0\n")
	w.file("status", fmt.Sprintf("Tgid:\t100\nUid:\t0\t%d\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t100\t3\n", os.Getuid()))
	w.file("maps", "00400000-00500000 r-xp 00000000 fe:00 12 /usr/bin/js\n7f3814003000-7f3814013000 rwxp 00000000 00:00 0 \n")
	w.file("root/tmp/other", "")
	id, err := a.root.Identify(100)
	if err != nil {
		t.Fatal(err)
	}
	w.process = newProcess(id, false)
	a.table[100] = w.process
	return w
}

func (w *mapWriter) file(name, text string) {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		w.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// write writes lines into the map, behind those that are there.
func (w *mapWriter) write(lines ...string) {
	w.t.Helper()
	f, err := os.OpenFile(w.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		w.t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(strings.Join(lines, "\n") + "\n"); err != nil {
		w.t.Fatal(err)
	}
}

// nativeAt is a frame of code that is no attached VM's.
func nativeAt(pc uint64) bpf.Frame { return bpf.Frame(uint64(bpf.FrameNative)<<60 | pc) }

// at is a frame whose address is that far in the code.
func at(offset uint64, kind rawKind) rawFrame {
	return rawFrame{frame: nativeAt(codeAt + offset), kind: kind}
}

// sample asks for the name of a frame as a sample does, and returns the frame that it was.
func (w *mapWriter) sample(r rawFrame) rawFrame {
	w.t.Helper()
	stack := []rawFrame{r}
	w.code.Load().mark(stack)
	w.want(stack, 0, &w.agent.nameCount)
	w.agent.work(w.process.targetProcess)
	return stack[0]
}

// nameOf is the name that a frame has by now.
func (w *mapWriter) nameOf(r rawFrame) string {
	w.t.Helper()
	n, ok := w.names[r]
	if !ok || len(n.symbols) != 1 {
		w.t.Fatalf("%+v has the names %v", r, n.symbols)
	}
	f := n.symbols[0].Value()
	if f.Kind == symbolize.KindJIT && (f.Mapping != jitMapping || n.unknown || len(n.bcis) != 1) {
		w.t.Errorf("%+v is %+v, at %v", r, f, n.bcis)
	}
	return f.Function
}

// later makes it time to read the map on.
func (w *mapWriter) later() {
	if c := w.code.Load(); c != nil {
		now := *c
		now.again = 0
		w.code.Store(&now)
	}
	w.work.perf.look.Next = 0
}

func (w *mapWriter) failures() (all []string) {
	for cause, n := range w.agent.reads.failures {
		all = append(all, fmt.Sprint(cause, " ", n))
	}
	return all
}

func TestMapNamesCode(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 JS:*leaf /a.js:1:15", "7f3814003040 40 JS:*caller /a.js:2:15", "400000 100000 a lie about a file")
	for r, want := range map[rawFrame]string{
		at(0, rawExact):                             "JS:leaf /a.js:1:15",
		at(0x3f, rawExact):                          "JS:leaf /a.js:1:15",
		at(0x40, rawExact):                          "JS:caller /a.js:2:15",
		at(0x40, rawReturn):                         "JS:leaf /a.js:1:15", // its call is its last instruction
		at(0x80, rawReturn):                         "JS:caller /a.js:2:15",
		at(0x80, rawExact):                          symbolize.Unknown,
		{frame: nativeAt(0x400010), kind: rawExact}: symbolize.Unknown,
	} {
		if got := w.nameOf(w.sample(r)); got != want {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
	if n := w.names[w.sample(at(0x80, rawReturn))]; n.site(0).Offset != 0x40 {
		t.Errorf("the call is at %+v, want 0x40 in its code", n.site(0))
	}
	if c := w.code.Load(); !c.holds(at(0x10, rawExact).frame) || c.holds(at(0x80, rawExact).frame) {
		t.Errorf("code is in %+v", c)
	}
}

// Names are shown clean, and one that is cut ends in an ellipsis.
func TestMapNamesAreClean(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 a\x1b[2Jb", "7f3814003040 40 "+strings.Repeat("n", symbolize.MaxName+1))
	if got := w.nameOf(w.sample(at(0, rawExact))); got != `a\x1b[2Jb` {
		t.Errorf("code is %q", got)
	}
	if got := w.nameOf(w.sample(at(0x40, rawExact))); len(got) > symbolize.MaxName || !strings.HasSuffix(got, "…") {
		t.Errorf("code with a long name is %q", got)
	}
}

// What is compiled later gets its name when the map has it, and the map is read no more often than it should.
func TestMapGrows(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 first")
	w.sample(at(0, rawExact))
	second := w.sample(at(0x40, rawExact))
	w.write("7f3814003040 40 second")
	if w.agent.work(w.process.targetProcess); w.nameOf(second) != symbolize.Unknown {
		t.Error("the map was read again at once")
	}
	w.later()
	if w.agent.work(w.process.targetProcess); w.nameOf(second) != "second" {
		t.Errorf("the map was read on, and code is %s", w.nameOf(second))
	}
	if first := w.nameOf(w.sample(at(0, rawExact))); first != "first" {
		t.Errorf("what was known before is %s", first)
	}
}

// A map that comes late is found, too.
func TestMapComesLate(t *testing.T) {
	w := newMapWriter(t)
	if got := w.nameOf(w.sample(at(0, rawExact))); got != symbolize.Unknown || len(w.failures()) != 0 {
		t.Errorf("without a map code is %s; failures %v", got, w.failures())
	}
	w.write("7f3814003000 40 late")
	w.later()
	w.sample(at(1, rawExact)) // new code makes it look
	if got := w.nameOf(w.sample(at(0, rawExact))); got != "late" {
		t.Errorf("code is %s", got)
	}
}

// Code that takes the place of other code has another name, and what was sampled before keeps its own.
func TestMapReplacesCode(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 old")
	w.sample(at(0x10, rawExact)) // finds the map
	before := w.sample(at(0x10, rawExact))
	w.write("7f3814003000 40 new")
	w.later()
	w.agent.work(w.process.targetProcess)
	after := w.sample(at(0x10, rawExact))
	if w.nameOf(before) != "old" || w.nameOf(after) != "new" {
		t.Errorf("before it was %s, after it %s", w.nameOf(before), w.nameOf(after))
	}
}

// A map that is written anew, in place or as another file, is read anew: after a pause.
func TestMapIsWrittenAnew(t *testing.T) {
	for name, anew := range map[string]func(w *mapWriter) error{
		"in place":     func(w *mapWriter) error { return os.Truncate(w.path, 0) },
		"another file": func(w *mapWriter) error { return os.Rename(filepath.Join(w.dir, "root/tmp/other"), w.path) },
	} {
		w := newMapWriter(t)
		w.write("7f3814003000 40 old", "7f3814003040 40 gone")
		w.sample(at(0, rawExact))
		if err := anew(w); err != nil {
			t.Fatal(err)
		}
		w.write("7f3814003000 40 new")
		w.later()
		w.work.perf.look.Next = proc.Monotonic() * 2 // it was looked for just now
		w.agent.work(w.process.targetProcess)
		if got := w.nameOf(w.sample(at(0x10, rawExact))); got != symbolize.Unknown {
			t.Errorf("%s: before it is read, code is %s", name, got)
		}
		w.later()
		w.agent.work(w.process.targetProcess)
		if got := w.nameOf(w.sample(at(0x18, rawExact))) + w.nameOf(w.sample(at(0x48, rawExact))); got != "new"+symbolize.Unknown {
			t.Errorf("%s: code is %s", name, got)
		}
	}
}

// Maps that cannot be trusted name nothing, and that is counted and told.
func TestMapsThatAreNotUsed(t *testing.T) {
	for _, tt := range []struct {
		name, cause string
		told        bool
		make        func(w *mapWriter) error
	}{
		{"of another user", "denied", true, func(w *mapWriter) error {
			w.write("7f3814003000 40 forged")
			w.file("status", "Tgid:\t100\nUid:\t0\t4242\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t100\t3\n")
			if os.Getuid() == 0 {
				return os.Chown(w.path, 4243, 4243)
			}
			return nil
		}},
		{"a FIFO", "not_regular", false, func(w *mapWriter) error { return unix.Mkfifo(w.path, 0o644) }},
		{"a directory", "not_regular", false, func(w *mapWriter) error { return os.Mkdir(w.path, 0o755) }},
		{"a link out of its root", "", false, func(w *mapWriter) error {
			outside := filepath.Join(w.t.TempDir(), "map")
			if err := os.Symlink(outside, w.path); err != nil {
				return err
			}
			return os.WriteFile(outside, []byte("7f3814003000 40 outside\n"), 0o644)
		}},
		{"too long", "too_large", true, func(w *mapWriter) error {
			w.write("7f3814003000 40 much")
			return os.Truncate(w.path, perfmap.MaxBytes+1)
		}},
		{"nonsense", "malformed", false, func(w *mapWriter) error { w.write("nonsense"); return nil }},
	} {
		w := newMapWriter(t)
		if err := tt.make(w); err != nil {
			t.Fatal(err)
		}
		if got := w.nameOf(w.sample(at(0, rawExact))); got != symbolize.Unknown {
			t.Errorf("%s: code is %s", tt.name, got)
		}
		if n := w.agent.reads.failures[tt.cause]; (n == 1) != (tt.cause != "") || len(w.failures()) > 1 {
			t.Errorf("%s: failures %v, want %s", tt.name, w.failures(), tt.cause)
		}
		if told := len(w.notes) == 1; told != tt.told {
			t.Errorf("%s: notes are %q", tt.name, w.notes)
		}
	}
}

// A map that gets too long is given up: what it would have said of known code is not known any more.
func TestMapGetsTooLong(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 before")
	w.sample(at(0, rawExact))
	if err := os.Truncate(w.path, perfmap.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	w.later()
	w.agent.work(w.process.targetProcess)
	if got := w.nameOf(w.sample(at(8, rawExact))); got != symbolize.Unknown || w.code.Load() != nil {
		t.Errorf("code is %s, in %+v", got, w.code.Load())
	}
	w.later()
	w.sample(at(16, rawExact))
	if n := w.agent.reads.failures["too_large"]; n != 1 || w.agent.mapsBytes.Load() != 0 {
		t.Errorf("it was read %d times too often, %d bytes are charged", n-1, w.agent.mapsBytes.Load())
	}
}

// All maps together are bounded.
func TestMapsOfAllProcesses(t *testing.T) {
	w := newMapWriter(t)
	w.agent.mapsBytes.Store(maxMapsBytes)
	w.write("7f3814003000 40 f")
	if got := w.nameOf(w.sample(at(0, rawExact))); got != symbolize.Unknown || w.agent.mapsBytes.Load() != maxMapsBytes || len(w.notes) != 1 {
		t.Errorf("code is %s, %d bytes are charged, notes %q", got, w.agent.mapsBytes.Load(), w.notes)
	}
}

// Of a JVM, its own tables are right; a map of it is of one moment.
func TestMapOfJVM(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 f")
	if got := w.nameOf(w.sample(at(0, rawExact))); got != "f" {
		t.Fatalf("without a VM code is %s", got)
	}
	w.work.hopeless = true // it loaded libjvm, which is of no use
	w.agent.work(w.process.targetProcess)
	if got := w.nameOf(w.sample(at(8, rawExact))); got != symbolize.Unknown || w.code.Load() != nil || w.agent.mapsBytes.Load() != 0 {
		t.Errorf("code is %s, in %+v, %d bytes", got, w.code.Load(), w.agent.mapsBytes.Load())
	}
}

// What a process's map holds is given back when it ends.
func TestMapIsReleased(t *testing.T) {
	w := newMapWriter(t)
	w.write("7f3814003000 40 f")
	w.sample(at(0, rawExact))
	if w.agent.mapsBytes.Load() == 0 {
		t.Error("nothing is charged")
	}
	w.exited.Store(true)
	w.agent.work(w.process.targetProcess)
	if w.agent.mapsBytes.Load() != 0 || w.work.perf.useful {
		t.Errorf("%d bytes are charged to who is gone", w.agent.mapsBytes.Load())
	}
}
