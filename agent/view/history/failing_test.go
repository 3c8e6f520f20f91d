package history

import (
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// A failingDisk opens files of which some cannot be opened or read.
type failingDisk struct {
	open  string         // the name of a file that cannot be opened
	read  string         // the name of a file that cannot be read
	after int64          // first byte that cannot be read
	tried map[string]int // how often files were opened
}

func (d *failingDisk) opener(dir *os.Root, name string, flags int) (segmentFile, error) {
	if d.tried == nil {
		d.tried = make(map[string]int)
	}
	d.tried[name]++
	if name == d.open {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EPERM}
	}
	f, err := openFile(dir, name, flags)
	if err == nil && name == d.read {
		f = unreadable{f, d.after}
	}
	return f, err
}

// A full disk lets so many writes through. Of the next one a part is written, or nothing, and all
// later ones fail, as may cutting it off again.
type fullDisk struct {
	writes, part int
	uncut        bool
	at           func() // called before each write, and again when a part of it is written
}

type fullFile struct {
	segmentFile
	disk *fullDisk
}

func (d *fullDisk) opener(dir *os.Root, name string, flags int) (segmentFile, error) {
	f, err := openFile(dir, name, flags)
	if err != nil {
		return nil, err
	}
	return fullFile{f, d}, nil
}

func (f fullFile) WriteAt(b []byte, at int64) (int, error) {
	part := min(f.disk.part, len(b))
	if f.disk.at != nil {
		f.disk.at()
	}
	if f.disk.writes--; f.disk.writes < 0 || f.disk.at != nil {
		if n, err := f.segmentFile.WriteAt(b[:part], at); err != nil || f.disk.at == nil {
			return n, errors.Join(&os.PathError{Op: "write", Path: "segment", Err: syscall.ENOSPC}, err)
		}
		f.disk.at()
	}
	return f.segmentFile.WriteAt(b, at)
}

func (f fullFile) Truncate(size int64) error {
	if f.disk.uncut && f.disk.writes < 0 {
		return &os.PathError{Op: "truncate", Path: "segment", Err: syscall.EIO}
	}
	return f.segmentFile.Truncate(size)
}

type unreadable struct {
	segmentFile
	after int64
}

func (f unreadable) ReadAt(b []byte, at int64) (int, error) {
	if at+int64(len(b)) > f.after {
		return 0, &os.PathError{Op: "read", Path: "segment", Err: syscall.EIO}
	}
	return f.segmentFile.ReadAt(b, at)
}

// threeSegments makes a history of three segments of two windows each.
func threeSegments(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, Options{})
	for range 3 {
		r.add(t, sinktest.Shop())
		r.add(t, sinktest.Shop())
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
	}
	r.Close()
	return r
}

func (r *rig) content(t *testing.T, name string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(r.path, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// A clock that is wrong for a while, when the history is opened or later, removes nothing and
// merges nothing.
func TestClockAhead(t *testing.T) {
	r := newRig(t, Options{Keep: 24 * time.Hour})
	for range 3 {
		r.addLong(t, sinktest.Shop(), 50*time.Minute)
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
	}
	r.now = r.now.AddDate(3, 0, 0)
	r.add(t, sinktest.Shop())
	r.add(t, sinktest.Shop())
	r.Close()
	r.now = r.now.AddDate(3, 0, 0)
	r.reopen(t, Options{Keep: 24 * time.Hour})
	r.add(t, sinktest.Shop())
	r.add(t, sinktest.Shop())
	if n := r.Stats(); n.Removed[RemovedAge] != 0 || n.Merges != 0 {
		t.Errorf("%+v", n)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, 7*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
	// What is recorded after them ages them.
	for range 26 {
		r.addLong(t, sinktest.Shop(), time.Hour)
	}
	if n := r.Stats(); n.Removed[RemovedAge] == 0 || n.Merges == 0 {
		t.Errorf("after 26 hours: %+v", n)
	}
}

// A segment that cannot be read or opened stays as it is, wherever reading fails, and the others go
// on.
func TestUnreadable(t *testing.T) {
	shop := totalsOf(sinktest.Shop()).samples
	for _, name := range []string{"00000001.0", "00000002.0"} { // the bodies of the last one are read when it is opened
		r := threeSegments(t)
		before := r.content(t, name)
		for after := range len(before) {
			if after > 200 && after%50 != 0 {
				continue
			}
			disk := &failingDisk{read: name, after: int64(after)}
			if after == 0 {
				disk = &failingDisk{open: name}
			}
			r.reopen(t, Options{open: disk.opener})
			if n := r.Stats(); r.content(t, name) != before || n.Cut != 0 || name == "00000002.0" &&
				n.Failed[FailedOpen] != 1 || n.Size != 3*int64(len(before)) {
				t.Fatalf("%s, unreadable from byte %d on: %d bytes of %d stay, %+v", name, after,
					len(r.content(t, name)), len(before), n)
			}
			r.Close()
		}
		disk := &failingDisk{read: name, after: 100}
		reader := Read(r.path)
		reader.opener = disk.opener
		all := Selection{From: began.AddDate(-1, 0, 0), To: began.AddDate(1, 0, 0)}
		p, err := reader.Query(t.Context(), all)
		if err != nil || totalsOf(p).samples != 4*shop || !strings.Contains(strings.Join(p.Comments, " "),
			"a part of the history is missing: unreadable from 2026-11-25 03:00:") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
		reader.opener = (&failingDisk{open: name}).opener
		if p, err := reader.Query(t.Context(), all); err != nil || totalsOf(p).samples != 4*shop ||
			!strings.Contains(strings.Join(p.Comments, " "),
				"a part of the history is missing: unreadable from 2026-11-25 03:00:") {
			t.Errorf("%s: %v, %v", name, p, err)
		}
		// The next windows go to a segment of their own.
		r.reopen(t, Options{open: disk.opener})
		r.add(t, sinktest.Shop())
		if got := totalsOf(r.all(t, 0)).samples; got != 7*shop {
			t.Errorf("%s: %d samples", name, got)
		}
	}
}

// Files of others are left alone, whatever their names are, and windows are stored next to them.
func TestForeignFiles(t *testing.T) {
	r := newRig(t, Options{Fine: time.Minute})
	r.add(t, sinktest.Shop())
	r.Close()
	foreign := map[string]string{"00000001.0": "vmph9 of a later agent", "00000002.1": "abc",
		"00000000.1": "text of somebody", "00000000.2.tmp": "notes"}
	for name, content := range foreign {
		if err := os.WriteFile(filepath.Join(r.path, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	others := []string{"00000003.0", "00000005.0.tmp", "00000006.0"}
	for _, name := range others[:2] {
		if err := os.Mkdir(filepath.Join(r.path, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(filepath.Join(r.path, others[2]), 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen(t, Options{})
	r.add(t, sinktest.Shop())
	if n := r.Stats(); n.Cut != 0 || n.Failed[FailedOpen] != 3 || n.Failed[FailedRemove] != 1 {
		t.Errorf("%+v", n)
	}
	// Also those that come later, with the names of the next segments.
	r.finish()
	later := []string{segmentName{number: r.next}.String(), segmentName{number: r.next + 1}.String()}
	if err := os.Mkdir(filepath.Join(r.path, later[0]), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(r.path, later[1]), 0o600); err != nil {
		t.Fatal(err)
	}
	r.add(t, sinktest.Shop())
	for name, content := range foreign {
		if got := r.content(t, name); got != content {
			t.Errorf("%s: %q", name, got)
		}
	}
	for _, name := range append(others, later...) {
		if _, err := os.Lstat(filepath.Join(r.path, name)); err != nil {
			t.Error(err)
		}
	}
	if n := r.Stats(); n.Windows != 2 || n.Lost[LostFailed] != 0 {
		t.Errorf("%+v", n)
	}
	if _, err := os.Stat(filepath.Join(r.path, "00000000.0")); err != nil {
		t.Errorf("what a foreign file of a higher level seems to replace: %v", err)
	}
}

// A segment that cannot be removed keeps no other one, and windows go on.
func TestIrremovable(t *testing.T) {
	r := threeSegments(t)
	r.reopen(t, Options{})
	// A directory in its place cannot be removed, as it is not empty.
	name := filepath.Join(r.path, "00000000.0")
	if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	r.Close()
	r.reopen(t, Options{}) // It finds a directory, and leaves it alone.
	if got := len(r.segments); got != 2 {
		t.Fatalf("%d segments", got)
	}
	name = filepath.Join(r.path, "00000001.0")
	if err := errors.Join(os.Remove(name), os.MkdirAll(filepath.Join(name, "full"), 0o700)); err != nil {
		t.Fatal(err)
	}
	r.o.MaxSize = r.size() + 100
	for range 3 {
		r.add(t, sinktest.Shop())
	}
	if n := r.Stats(); n.Windows != 3 || n.Failed[FailedRemove] == 0 || n.Removed[RemovedSize] == 0 {
		t.Errorf("%+v", n)
	}
}

// A writer refuses what readers would refuse, so that no window makes its segment unreadable: it is
// lost, and counted.
func TestItemsAgree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long, on one thread")
	}
	tree := func(nodes int) []digest.Node {
		list := make([]digest.Node, nodes+1)
		for i := 1; i <= nodes; i++ {
			list[i] = digest.Node{Parent: 0, Frame: digest.Rare, Self: 1}
		}
		return list
	}
	window := func(trees, nodes, rows int) *digest.Window {
		p := new(digest.Process)
		for i := range trees {
			p.Threads = append(p.Threads, digest.Thread{ThreadKey: digest.ThreadKey{Context: profile.Certainty(i % 2)},
				Tree: tree(nodes)})
		}
		p.Events = []digest.Events{{Kind: profile.Locks, Tree: tree(1), Rows: make([]digest.Row, rows)}}
		return &digest.Window{Processes: []*digest.Process{p}}
	}
	for _, test := range []struct {
		trees, nodes, rows int
		fits               bool
	}{
		{7, 4 * digest.MaxContexts, 1000, true}, {1, 4*digest.MaxContexts + 1, 0, false},
		{8, 4 * digest.MaxContexts, 0, false},
		{1, 1, 2 * digest.MaxContexts, true}, {1, 1, 2*digest.MaxContexts + 1, false},
		{maxItems/1000 - 1, 1000, 0, true},
	} {
		names := digest.NewNames(nil)
		e := newEncoder(newTables(names))
		h := header{span: span{began, began, 0}}
		record, err := e.record(&h, window(test.trees, test.nodes, test.rows))
		if test.fits != (err == nil) || err != nil && !errors.Is(err, errTooLarge) {
			t.Errorf("%+v: %v", test, err)
		}
		if err != nil {
			continue
		}
		d := newDecoder(nil, digest.NewNames(nil))
		raw, err := d.inflate(record[prefixSize+e.added:])
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.decode(current, raw, &Selection{}); err != nil {
			t.Errorf("%+v is written, but not read: %v", test, err)
		}
	}
}

// What readers keep of a segment is bounded, and the writer begins another one before that.
func TestIndexIsBounded(t *testing.T) {
	r := newRig(t, Options{})
	services := func() *profile.Profile {
		p := new(profile.Profile)
		for i := range maxSums {
			p.Processes = append(p.Processes, &profile.Process{PID: i, Comm: "java", Service: strings.Repeat("s", 900) +
				string(rune('a'+i%26)) + string(rune('a'+i/26)),
				Events: []*profile.Events{{Kind: profile.Locks,
					Rows: []profile.EventRow{{Values: [3]float64{rand.Float64(), rand.Float64(), rand.Float64()}}}}}})
		}
		return p
	}
	r.add(t, services())
	first := r.segments[0]
	r.open.indexed = maxIndex - maxHeader + 1
	r.add(t, services())
	if len(r.segments) != 2 || first.windows != 1 {
		t.Fatalf("%d segments", len(r.segments))
	}
	list, err := Read(r.path).Timeline(t.Context(), began, r.now, "")
	if err != nil || len(list) != 2 || len(list[0].Services) != maxSums ||
		list[0].Services[7].Events[profile.Locks] == 0 {
		t.Errorf("%d windows, %v", len(list), err)
	}
	var index scanner
	file, err := os.Open(filepath.Join(r.path, first.String()))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	index.indexed = maxIndex
	if err := index.scan(io.NewSectionReader(file, 0, first.size), first.size); err != nil || len(index.entries) != 0 {
		t.Errorf("%d windows, %v", len(index.entries), err)
	}
}

// writes adds windows of which the sum of samples has a bit each, so that segments end and are
// merged, and returns the windows that were stored.
func writes(r *rig) (stored uint64) {
	for i := range 12 {
		p := sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 1 << i})
		p.Start, p.Duration = r.now, 20*time.Minute
		r.now = r.now.Add(p.Duration)
		if r.Add(p) == nil {
			stored |= 1 << i
		}
	}
	return stored
}

// samplesIn are those of a history, after it was opened and closed by another writer; 0 if it has
// no windows.
func samplesIn(t *testing.T, path string) uint64 {
	t.Helper()
	s, err := Open(path, &Options{Now: func() time.Time { return began.Add(4 * time.Hour) }})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	p, err := Read(path).Query(t.Context(), Selection{From: began.AddDate(-1, 0, 0), To: began.AddDate(1, 0, 0)})
	if errors.Is(err, ErrNone) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	return totalsOf(p).samples
}

// A disk that is full from any write on, also in the middle of it, loses the windows that come
// then, which are counted, and no other.
func TestDiskFullAtEachWrite(t *testing.T) {
	for n := 0; ; n++ {
		done := false
		for _, disk := range []*fullDisk{{writes: n}, {writes: n, part: 7}, {writes: n, part: 50, uncut: true}} {
			r := newRig(t, Options{Fine: time.Hour, open: disk.opener})
			stored := writes(r)
			done = disk.writes >= 0
			if n := r.Stats(); n.Lost[LostDiskFull]+n.Windows != 12 {
				t.Fatalf("%+v: %+v", disk, n)
			}
			disk.writes = 1 << 20 // there is room again
			again := sinktest.OfPaths(sinktest.Path{Methods: "main again", Times: 1, Weight: 1 << 12})
			r.add(t, again)
			r.Close()
			if got, want := samplesIn(t, r.path), stored|1<<12; got != want {
				t.Fatalf("full at write %d: %b samples, want %b", n, got, want)
			}
		}
		if done {
			return
		}
	}
}

// A writer that is killed before any write, in the middle of it or after it loses at most the
// window that it writes.
func TestKilledAtEachWrite(t *testing.T) {
	disk := &fullDisk{writes: 1 << 20, part: 50}
	r := newRig(t, Options{Fine: time.Hour, open: disk.opener})
	moments := 0
	disk.at = func() {
		moments++
		n := r.Stats()
		stored := uint64(1)<<n.Windows - 1
		left := filepath.Join(t.TempDir(), "left")
		if err := os.CopyFS(left, os.DirFS(r.path)); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(left, 0o700); err != nil {
			t.Fatal(err)
		}
		got := samplesIn(t, left)
		if got != stored && got != stored|1<<n.Windows {
			t.Errorf("moment %d: %b samples, want %b", moments, got, stored)
		}
	}
	writes(r)
	if moments < 30 || r.Stats().Merges == 0 {
		t.Errorf("%d moments, %+v", moments, r.Stats())
	}
}
