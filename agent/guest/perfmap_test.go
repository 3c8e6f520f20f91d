package guest

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/guest/guesttest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/perfmap"
)

// A mapWriter is a process with a map of its code, and a resolver for it.
type mapWriter struct {
	*Process
	*guesttest.MapWriter
	rs *Resolver
}

func newMapWriter(t *testing.T) *mapWriter {
	t.Helper()
	w := &mapWriter{MapWriter: guesttest.NewMapWriter(t)}
	pool := proc.NewPool(proc.PoolOptions{})
	w.rs = NewResolver(Config{Root: w.Root, Runtimes: runtimes.Table(), Log: slog.New(slog.DiscardHandler), Pool: pool,
		Attaching: pool})
	t.Cleanup(w.rs.images.Close)
	w.Process = NewProcess(w.MapWriter.Identity)
	return w
}

// codeFrame is a frame whose address is that far in the code.
func codeFrame(offset uint64, kind RawKind) RawFrame {
	return RawFrame{Frame: guesttest.NativeAt(guesttest.CodeAt + offset), Kind: kind}
}

// sample asks for the name of a frame as a sample does, and returns the frame that it was.
func (w *mapWriter) sample(r RawFrame) RawFrame {
	stack := []RawFrame{r}
	w.Code.Load().Mark(stack)
	w.Ask([]Wanted{{RawFrame: stack[0]}})
	w.rs.work(w.Process)
	return stack[0]
}

// nameOf is the name that a frame has by now.
func (w *mapWriter) nameOf(t *testing.T, r RawFrame) string {
	t.Helper()
	n, ok := w.names[r]
	if !ok || len(n.Symbols) != 1 {
		t.Fatalf("%+v has the names %v", r, n.Symbols)
	}
	f := n.Symbols[0].Value()
	if f.Kind == symbol.KindJIT && (f.Mapping != jitMapping || n.Unknown || len(n.BCIs) != 1) {
		t.Errorf("%+v is %+v, at %v", r, f, n.BCIs)
	}
	return f.Function
}

// later makes it time to read the map on.
func (w *mapWriter) later() {
	if c := w.Code.Load(); c != nil {
		now := *c
		now.Again = 0
		w.Code.Store(&now)
	}
	w.work.perf.look.Next = 0
}

func (w *mapWriter) failures() (all []string) {
	for cause, n := range w.rs.reads.failures {
		all = append(all, fmt.Sprint(cause, " ", n))
	}
	return all
}

func TestMapNamesCode(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 JS:*leaf /a.js:1:15", "7f3814003040 40 JS:*caller /a.js:2:15",
		"400000 100000 a lie about a file")
	for r, want := range map[RawFrame]string{
		codeFrame(0, RawExact):                                "JS:leaf /a.js:1:15",
		codeFrame(0x3f, RawExact):                             "JS:leaf /a.js:1:15",
		codeFrame(0x40, RawExact):                             "JS:caller /a.js:2:15",
		codeFrame(0x40, RawReturn):                            "JS:leaf /a.js:1:15", // its call is its last instruction
		codeFrame(0x80, RawReturn):                            "JS:caller /a.js:2:15",
		codeFrame(0x80, RawExact):                             symbol.Unknown,
		{Frame: guesttest.NativeAt(0x400010), Kind: RawExact}: symbol.Unknown,
	} {
		if got := w.nameOf(t, w.sample(r)); got != want {
			t.Errorf("%+v is %q, want %q", r, got, want)
		}
	}
	if n := w.names[w.sample(codeFrame(0x80, RawReturn))]; bciOf(n) != 0x40 {
		t.Errorf("the call is at %#x, want 0x40 in its code", bciOf(n))
	}
	if c := w.Code.Load(); !c.Holds(codeFrame(0x10, RawExact).Frame) || c.Holds(codeFrame(0x80, RawExact).Frame) {
		t.Errorf("code is in %+v", c)
	}
}

// Names are shown clean, and one that is cut ends in an ellipsis.
func TestMapNamesAreClean(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 a\x1b[2Jb", "7f3814003040 40 "+strings.Repeat("n", symbol.MaxName+1))
	if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != `a\x1b[2Jb` {
		t.Errorf("code is %q", got)
	}
	if got := w.nameOf(t, w.sample(codeFrame(0x40, RawExact))); len(got) > symbol.MaxName ||
		!strings.HasSuffix(got, "…") {
		t.Errorf("code with a long name is %q", got)
	}
}

// What is compiled later gets its name when the map has it, and the map is read no more often than
// it should.
func TestMapGrows(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 first")
	w.sample(codeFrame(0, RawExact))
	second := w.sample(codeFrame(0x40, RawExact))
	w.Write("7f3814003040 40 second")
	if w.rs.work(w.Process); w.nameOf(t, second) != symbol.Unknown {
		t.Error("the map was read again at once")
	}
	w.later()
	if w.rs.work(w.Process); w.nameOf(t, second) != "second" {
		t.Errorf("the map was read on, and code is %s", w.nameOf(t, second))
	}
	if first := w.nameOf(t, w.sample(codeFrame(0, RawExact))); first != "first" {
		t.Errorf("what was known before is %s", first)
	}
}

// A map that comes late is found, too.
func TestMapComesLate(t *testing.T) {
	w := newMapWriter(t)
	if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != symbol.Unknown || len(w.failures()) != 0 {
		t.Errorf("without a map code is %s; failures %v", got, w.failures())
	}
	w.Write("7f3814003000 40 late")
	w.later()
	w.sample(codeFrame(1, RawExact)) // new code makes it look
	if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != "late" {
		t.Errorf("code is %s", got)
	}
}

// Code that takes the place of other code has another name, and what was sampled before keeps its
// own.
func TestMapReplacesCode(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 old")
	w.sample(codeFrame(0x10, RawExact)) // finds the map
	before := w.sample(codeFrame(0x10, RawExact))
	w.Write("7f3814003000 40 new")
	w.later()
	w.rs.work(w.Process)
	after := w.sample(codeFrame(0x10, RawExact))
	if w.nameOf(t, before) != "old" || w.nameOf(t, after) != "new" {
		t.Errorf("before it was %s, after it %s", w.nameOf(t, before), w.nameOf(t, after))
	}
}

// A map that is written anew, in place or as another file, is read anew: after a pause.
func TestMapIsWrittenAnew(t *testing.T) {
	for name, anew := range map[string]func(w *mapWriter) error{
		"in place":     func(w *mapWriter) error { return os.Truncate(w.Path, 0) },
		"another file": func(w *mapWriter) error { return os.Rename(filepath.Join(w.Dir, "root/tmp/other"), w.Path) },
	} {
		w := newMapWriter(t)
		w.Write("7f3814003000 40 old", "7f3814003040 40 gone")
		w.sample(codeFrame(0, RawExact))
		if err := anew(w); err != nil {
			t.Fatal(err)
		}
		w.Write("7f3814003000 40 new")
		w.later()
		w.work.perf.look.Next = proc.Monotonic() * 2 // it was looked for just now
		w.rs.work(w.Process)
		if got := w.nameOf(t, w.sample(codeFrame(0x10, RawExact))); got != symbol.Unknown {
			t.Errorf("%s: before it is read, code is %s", name, got)
		}
		w.later()
		w.rs.work(w.Process)
		if got := w.nameOf(t, w.sample(codeFrame(0x18, RawExact))) +
			w.nameOf(t, w.sample(codeFrame(0x48, RawExact))); got != "new"+symbol.Unknown {
			t.Errorf("%s: code is %s", name, got)
		}
	}
}

// Maps that cannot be trusted name nothing, and that is counted and noted.
func TestMapsThatAreNotUsed(t *testing.T) {
	for _, tt := range []struct {
		name, cause string
		reported    bool
		make        func(w *mapWriter) error
	}{
		{"of another user", "denied", true, func(w *mapWriter) error {
			w.Write("7f3814003000 40 forged")
			w.File("status", "Tgid:\t100\nUid:\t0\t4242\t0\t0\nGid:\t0\t0\t0\t0\nNSpid:\t100\t3\n")
			if os.Getuid() == 0 {
				return os.Chown(w.Path, 4243, 4243)
			}
			return nil
		}},
		{"a link to a file that its user may not read", "denied", true, func(w *mapWriter) error {
			w.File("root/private", "7f3814003000 40 secret\n")
			w.File("status", fmt.Sprintf("Tgid:\t100\nUid:\t%d\t%[1]d\t%[1]d\t%[1]d\nGid:\t4242\t4242\t4242\t4242\nNSpid:\t100\t3\n", os.Getuid()+4242))
			if err := os.Chmod(filepath.Join(w.Dir, "root/private"), 0o600); err != nil {
				return err
			}
			return os.Symlink("/private", w.Path)
		}},
		{"a FIFO", "not_regular", false, func(w *mapWriter) error { return unix.Mkfifo(w.Path, 0o644) }},
		{"a directory", "not_regular", false, func(w *mapWriter) error { return os.Mkdir(w.Path, 0o755) }},
		{"a link out of its root", "", false, func(w *mapWriter) error {
			outside := filepath.Join(t.TempDir(), "map")
			if err := os.Symlink(outside, w.Path); err != nil {
				return err
			}
			return os.WriteFile(outside, []byte("7f3814003000 40 outside\n"), 0o644)
		}},
		{"too long", "too_large", true, func(w *mapWriter) error {
			w.Write("7f3814003000 40 much")
			return os.Truncate(w.Path, perfmap.MaxBytes+1)
		}},
		{"nonsense", "malformed", false, func(w *mapWriter) error { w.Write("nonsense"); return nil }},
	} {
		w := newMapWriter(t)
		if err := tt.make(w); err != nil {
			t.Fatal(err)
		}
		if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != symbol.Unknown {
			t.Errorf("%s: code is %s", tt.name, got)
		}
		if n := w.rs.reads.failures[tt.cause]; (n == 1) != (tt.cause != "") || len(w.failures()) > 1 {
			t.Errorf("%s: failures %v, want %s", tt.name, w.failures(), tt.cause)
		}
		if reported := len(w.notes) == 1; reported != tt.reported {
			t.Errorf("%s: notes are %q", tt.name, w.notes)
		}
	}
}

// A map that gets too long is given up: what it would have said of known code is not known any
// more.
func TestMapGetsTooLong(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 before")
	w.sample(codeFrame(0, RawExact))
	if err := os.Truncate(w.Path, perfmap.MaxBytes+1); err != nil {
		t.Fatal(err)
	}
	w.later()
	w.rs.work(w.Process)
	if got := w.nameOf(t, w.sample(codeFrame(8, RawExact))); got != symbol.Unknown || w.Code.Load() != nil {
		t.Errorf("code is %s, in %+v", got, w.Code.Load())
	}
	w.later()
	w.sample(codeFrame(16, RawExact))
	if n := w.rs.reads.failures["too_large"]; n != 1 || w.rs.mapsBytes.Load() != 0 {
		t.Errorf("it was read %d times too often, %d bytes are charged", n-1, w.rs.mapsBytes.Load())
	}
}

// All maps together are bounded.
func TestMapsOfAllProcesses(t *testing.T) {
	w := newMapWriter(t)
	w.rs.mapsBytes.Store(maxMapsBytes)
	w.Write("7f3814003000 40 f")
	if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != symbol.Unknown ||
		w.rs.mapsBytes.Load() != maxMapsBytes || len(w.notes) != 1 {
		t.Errorf("code is %s, %d bytes are charged, notes %q", got, w.rs.mapsBytes.Load(), w.notes)
	}
}

// Of a JVM, its own tables are right; a map of it is of one moment.
func TestMapOfJVM(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 f")
	if got := w.nameOf(t, w.sample(codeFrame(0, RawExact))); got != "f" {
		t.Fatalf("without a VM code is %s", got)
	}
	w.work.hopeless = true // it loaded libjvm, which is of no use
	w.rs.work(w.Process)
	if got := w.nameOf(t, w.sample(codeFrame(8, RawExact))); got != symbol.Unknown || w.Code.Load() != nil ||
		w.rs.mapsBytes.Load() != 0 {
		t.Errorf("code is %s, in %+v, %d bytes", got, w.Code.Load(), w.rs.mapsBytes.Load())
	}
}

// What a process's map holds is given back when it ends.
func TestMapIsReleased(t *testing.T) {
	w := newMapWriter(t)
	w.Write("7f3814003000 40 f")
	w.sample(codeFrame(0, RawExact))
	if w.rs.mapsBytes.Load() == 0 {
		t.Error("nothing is charged")
	}
	w.Exited.Store(true)
	w.rs.work(w.Process)
	if w.rs.mapsBytes.Load() != 0 || w.work.perf.useful {
		t.Errorf("%d bytes are charged to who is gone", w.rs.mapsBytes.Load())
	}
}

// bciOf is where a name's first symbol is in its code.
func bciOf(n Name) int32 {
	_, bci := n.Place(0)
	return bci
}

func TestMayBeJIT(t *testing.T) {
	for _, tt := range []struct {
		mapping *proc.Mapping
		want    bool
	}{
		{nil, true},
		{&proc.Mapping{}, true},
		{&proc.Mapping{Path: "[anon:v8]"}, true},
		{&proc.Mapping{Path: "//anon"}, true},
		{&proc.Mapping{Path: "[vdso]"}, false},
		{&proc.Mapping{Path: "[vsyscall]"}, false},
		{&proc.Mapping{Path: "/usr/bin/node", Inode: 7}, false},
		{&proc.Mapping{Path: "/usr/bin/node", Inode: 7, Deleted: true}, false},
		{&proc.Mapping{Path: "/memfd:doublemapper", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/dev/zero", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/SYSV00000000", Inode: 7, Deleted: true}, true},
		{&proc.Mapping{Path: "/dev/zero", Inode: 7}, false},
	} {
		if got := mayBeJIT(tt.mapping); got != tt.want {
			t.Errorf("%+v: %t", tt.mapping, got)
		}
	}
}

// Frames differ from those that came before other code was there, and only frames of that code.
func TestJITCodeMark(t *testing.T) {
	code := &JITCode{Low: 0x1000, High: 0x2000, Epoch: 7}
	stack := []RawFrame{
		{Frame: 0x1500, Kind: RawKernel}, {Frame: guesttest.NativeAt(0x1000), Kind: RawExact},
		{Frame: guesttest.NativeAt(0x1fff), Kind: RawReturn},
		{Frame: guesttest.NativeAt(0x2000), Kind: RawReturn}, {Frame: guesttest.NativeAt(0xfff), Kind: RawReturn},
		{Frame: compiledFrame, Kind: RawReturn}, {Kind: RawStale},
	}
	(*JITCode)(nil).Mark(stack)
	for i, r := range stack {
		if r.Epoch != 0 {
			t.Errorf("frame %d is marked without code", i)
		}
	}
	code.Mark(stack)
	for i, r := range stack {
		if want := map[int]uint32{1: 7, 2: 7}[i]; r.Epoch != want {
			t.Errorf("frame %d has epoch %d, want %d", i, r.Epoch, want)
		}
	}
}

// A method of a map is the same wherever it was, and not HotSpot's.
func TestMethodOfMap(t *testing.T) {
	f := symbol.Frame{Function: "JS:f", SystemName: "JS:f", Kind: symbol.KindJIT, Mapping: jitMapping}
	want := symbol.Intern(f)
	f.Address = 7
	if got := MethodOf(symbol.Intern(f)); got != want {
		t.Errorf("%+v", got.Value())
	}
}
