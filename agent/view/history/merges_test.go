package history

import (
	"bytes"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// A merge that is interrupted before or after the new segment is in its place loses nothing and
// doubles nothing.
func TestInterruptedMerge(t *testing.T) {
	r := newRig(t, Options{Fine: time.Minute})
	for range 370 {
		r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3}))
	}
	r.Close()
	merged, err := os.ReadFile(filepath.Join(r.path, "00000000.1"))
	if err != nil {
		t.Fatal(err)
	}
	for name, files := range map[string]map[string][]byte{
		"both":      {"00000000.0": []byte(magic)},
		"temporary": {"00000000.2.tmp": merged[:len(merged)/2]},
	} {
		for file, content := range files {
			if err := os.WriteFile(filepath.Join(r.path, file), content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if got := totalsOf(r.all(t, 0)).samples; got != 370*3 {
			t.Errorf("%s: %d samples before the history is opened", name, got)
		}
		r.reopen(t, Options{})
		if got := totalsOf(r.all(t, 0)).samples; got != 370*3 {
			t.Errorf("%s: %d samples", name, got)
		}
		for file := range files {
			if _, err := os.Stat(filepath.Join(r.path, file)); err == nil {
				t.Errorf("%s: %s stays", name, file)
			}
		}
		r.Close()
	}
}

// Windows that arrive while an hour is merged are written during the merge, and none is lost.
func TestMergeDoesNotBlock(t *testing.T) {
	r := newRig(t, Options{Fine: time.Minute})
	for range 366 {
		r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3}))
	}
	if got := have(t, r.path); got != "00" {
		t.Fatalf("segments of levels %s", got)
	}
	for i := range queued {
		p := sinktest.OfPaths(sinktest.Path{Methods: "main late", Times: 1, Weight: 3})
		p.Start, p.Duration = r.now.Add(time.Duration(i)*10*time.Second), 10*time.Second
		r.Observe(p)
	}
	r.now = r.now.Add(queued * 10 * time.Second)
	r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3})) // This merges.
	if got, n := have(t, r.path), r.Stats(); got != "10" || n.Windows != 367+queued || n.Merges != 1 {
		t.Errorf("segments of levels %s, %+v", got, n)
	}
	if got := totalsOf(r.all(t, 0)).samples; got != 3*(367+queued) {
		t.Errorf("%d samples", got)
	}
}

// A damaged segment is not merged, so that what is intact in it stays and the gap can be seen. It
// takes no other segment with it.
func TestDamagedMerge(t *testing.T) {
	for _, test := range []struct {
		name    string
		damage  func(content []byte)
		windows uint64
		merges  uint64
	}{
		{"first header", func(content []byte) { content[len(magic)+prefixSize] ^= 1 }, 1, 2},
		{"magic", func(content []byte) { content[0] ^= 1 }, 2, 3},
		{"last header", func(content []byte) {
			n := bytes.LastIndex(content, []byte("marker of the last")) // the service, in the header
			content[n] ^= 1
		}, 1, 2},
		{"last body", func(content []byte) { content[len(content)-1] ^= 1 }, 1, 2},
	} {
		r := newRig(t, Options{Fine: 30 * time.Minute})
		for range 3 {
			r.add(t, sinktest.Shop())
			last := sinktest.Shop()
			last.Processes[0].Service = "marker of the last"
			r.add(t, last)
			if err := r.finish(); err != nil {
				t.Fatal(err)
			}
		}
		file := filepath.Join(r.path, "00000001.0")
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		test.damage(content)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		r.addLong(t, sinktest.Shop(), time.Hour)
		for range 5 { // each merges a segment
			r.add(t, sinktest.Shop())
		}
		if got, want := totalsOf(r.all(t, 0)).samples, (4+test.windows+
			6)*totalsOf(sinktest.Shop()).samples; got != want {
			t.Errorf("%s: %d samples, want %d", test.name, got, want)
		}
		if n, left := r.Stats(), test.merges == 2; n.Cut != 0 || n.Removed[RemovedAge] != 0 ||
			n.Merges != test.merges || left != (n.Unread[UnreadDamaged] > 0) {
			t.Errorf("%s: %+v", test.name, n)
		} else if left && r.content(t, "00000001.0") != string(content) {
			t.Errorf("%s: the damaged segment has changed", test.name)
		}
		if comments := strings.Join(r.all(t, 0).Comments, " "); strings.Contains(comments, profile.MissingPart+
			"damaged from 2026-11-25 03:00:") != (test.windows < 2) {
			t.Errorf("%s: %s", test.name, comments)
		}
		if p, err := Read(r.path).Query(t.Context(), Selection{From: began,
			To: began.Add(15 * time.Second)}); err != nil || strings.Contains(strings.Join(p.Comments, " "),
			"damaged") {
			t.Errorf("%s: of another time: %v, %v", test.name, p, err)
		}
	}
}

// A merge that fails is tried again less and less often, is counted each time and logged once. It
// is done when its reason is gone.
func TestMergeBacksOff(t *testing.T) {
	var log strings.Builder
	disk := new(failingDisk)
	r := threeSegments(t)
	r.reopen(t, Options{Fine: time.Minute, Log: slog.New(slog.NewTextHandler(&log, nil)), open: disk.opener})
	obstacle := filepath.Join(r.path, "00000001.1.tmp")
	if err := os.Mkdir(obstacle, 0o700); err != nil {
		t.Fatal(err)
	}
	const windows = 200
	for range windows {
		r.add(t, sinktest.Shop())
	}
	tries := r.Stats().Failed[FailedMerge]
	if want := uint64(math.Log2(windows)); tries < want-1 || tries > want+1 ||
		uint64(disk.tried["00000001.1.tmp"]) != tries {
		t.Errorf("%d merges failed, want about %d", tries, want)
	}
	if n := strings.Count(log.String(), "cannot merge windows"); n != 1 {
		t.Errorf("logged %d times: %s", n, &log)
	}
	if got := have(t, r.path); got[:2] != "10" {
		t.Errorf("segments of levels %s", got)
	}
	if err := os.Remove(obstacle); err != nil {
		t.Fatal(err)
	}
	for range windows {
		r.add(t, sinktest.Shop())
	}
	if got := have(t, r.path); !strings.HasPrefix(got, "111") {
		t.Errorf("segments of levels %s", got)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, (6+2*windows)*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}

// A merge replaces no file of others.
func TestForeignMerge(t *testing.T) {
	r := threeSegments(t)
	r.reopen(t, Options{Fine: 30 * time.Minute})
	foreign := filepath.Join(r.path, "00000000.1")
	if err := os.WriteFile(foreign, []byte("text of somebody"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.addLong(t, sinktest.Shop(), time.Hour)
	r.add(t, sinktest.Shop())
	if n := r.Stats(); r.content(t, "00000000.1") != "text of somebody" || n.Failed[FailedMerge] == 0 || n.Merges == 0 {
		t.Errorf("%q, %+v", r.content(t, "00000000.1"), n)
	}
	if _, err := os.Stat(filepath.Join(r.path, "00000000.0")); err != nil {
		t.Error(err)
	}
}

// A segment that cannot be read while it is merged stays as it is.
func TestUnreadableMerge(t *testing.T) {
	disk := new(failingDisk)
	r := threeSegments(t)
	before := r.content(t, "00000001.0")
	r.reopen(t, Options{Fine: 30 * time.Minute, open: disk.opener})
	disk.read, disk.after = "00000001.0", int64(len(before)-10) // in the last body
	if err := r.finish(); err != nil {
		t.Fatal(err)
	}
	r.addLong(t, sinktest.Shop(), time.Hour)
	for range 4 {
		r.add(t, sinktest.Shop())
	}
	if n := r.Stats(); r.content(t, "00000001.0") != before || n.Cut != 0 || n.Failed[FailedMerge] == 0 ||
		n.Merges != 2 {
		t.Errorf("%+v", n)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, 11*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}

// A window with too many stacks keeps its sums.
func TestRareStacks(t *testing.T) {
	p := varied(rand.New(rand.NewPCG(3, 4)), 10, 300)
	m := digest.NewMerger(digest.NewNames(nil), nil)
	m.AddProfile(p)
	got := m.Profile(500)
	if n, want := totalsOf(got), totalsOf(p); n != want {
		t.Errorf("%+v, want %+v", n, want)
	}
	contexts := 0
	for _, proc := range got.Processes {
		for _, th := range proc.Threads {
			contexts += th.Tree.Len()
		}
		for _, e := range proc.Events {
			for _, row := range e.Rows {
				if int(row.Context) > e.Tree.Len() {
					t.Fatalf("a row at context %d of %d", row.Context, e.Tree.Len())
				}
			}
		}
	}
	if contexts > 1500 { // each that is kept may have a rare one below it, and each thread one below its root
		t.Errorf("%d contexts", contexts)
	}
}
