package history

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// A file that ends anywhere loses the window that it ends in and nothing else, and can be written
// on. A flipped bit or a missing byte loses the window that it is in: readers say so, with its
// time, and nothing is cut.
func TestTornTails(t *testing.T) {
	r := newRig(t, Options{})
	ends := []int64{int64(len(magic))}
	for i := range 3 {
		r.add(t, sinktest.OfPaths(sinktest.Path{Methods: fmt.Sprintf("main run%d", i), Times: 1, Weight: 1 << i}))
		ends = append(ends, r.segments[0].size)
	}
	r.Close()
	file := filepath.Join(r.path, "00000000.0")
	whole, err := os.ReadFile(file)
	if err != nil || int64(len(whole)) != ends[3] {
		t.Fatalf("%d bytes, %v, want %d", len(whole), err, ends[3])
	}
	missing := func() string {
		p, err := Read(r.path).Query(t.Context(), Selection{From: began.AddDate(-1, 0, 0), To: began.AddDate(1, 0, 0)})
		if err != nil {
			return err.Error()
		}
		return strings.Join(p.Comments, " ")
	}
	// check expects the windows to be lost of which lost has a bit, and returns how many bytes were
	// cut off. If none were, damage is a gap.
	check := func(what string, content []byte, lost uint64, damage bool) uint64 {
		t.Helper()
		if err := errors.Join(os.RemoveAll(r.path), os.Mkdir(r.path, 0o700),
			os.WriteFile(file, content, 0o600)); err != nil {
			t.Fatal(err)
		}
		before := missing()
		r.reopen(t, Options{})
		defer r.Close()
		r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main again", Times: 1, Weight: 1 << 10}))
		if got, want := totalsOf(r.all(t, 0)).samples, 7&^lost+1<<10; got != want {
			t.Fatalf("%s: %b samples, want %b", what, got, want)
		}
		cut := r.Stats().Cut
		for _, comments := range []string{before, missing()} {
			if said := strings.Contains(comments, profile.MissingPart+"damaged from 2026-11-25 03:00:") ||
				strings.Contains(comments, profile.MissingPart+"damaged until 2026-11-25 03:00:"); said != (damage &&
				cut == 0) {
				t.Fatalf("%s, %d bytes cut: %s", what, cut, comments)
			}
		}
		return cut
	}
	// at are the windows from the one that has a byte on.
	at := func(n int64) (first int) {
		for first < 3 && ends[first+1] <= n {
			first++
		}
		return first
	}
	for n := range whole {
		complete := at(int64(n))
		want := uint64(n) - uint64(ends[complete])
		if n < len(magic) {
			want = uint64(n)
		}
		if got := check(fmt.Sprintf("cut at byte %d", n), whole[:n], 7&^(1<<complete-1), false); got != want {
			t.Fatalf("cut at byte %d: %d bytes cut, want %d", n, got, want)
		}
	}
	// The disk never got these pages.
	if got := check("zeros", append(bytes.Clone(whole), make([]byte, 5000)...), 0, false); got != 5000 {
		t.Errorf("%d bytes cut", got)
	}
	for n := range whole {
		lost := uint64(0)
		if n >= len(magic) {
			lost = 1 << at(int64(n))
			if int64(n) > ends[at(int64(n))]+60 && n%5 > 0 {
				continue // each byte of the prefix and the header, and some of the body
			}
		}
		content := bytes.Clone(whole)
		content[n] ^= 0x10
		cut := check(fmt.Sprintf("a bit of byte %d", n), content, lost, lost != 0)
		if cut > 0 && int64(n) < ends[2] {
			t.Errorf("a bit of byte %d: %d bytes cut", n, cut)
		}
		if n >= len(magic) && n%3 == 0 {
			if cut := check(fmt.Sprintf("without byte %d", n), slices.Delete(bytes.Clone(whole), n, n+1), lost,
				true); cut > 0 && int64(n) < ends[2] {
				t.Errorf("without byte %d: %d bytes cut", n, cut)
			}
		}
	}
}

// The size of all files never exceeds the bound, also while windows are merged, and the newest
// windows stay.
func TestSizeBound(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and has one thread")
	}
	rng := rand.New(rand.NewPCG(7, 8))
	r := newRig(t, Options{MaxSize: MinSize, Fine: 5 * time.Minute, Medium: time.Hour})
	largest := int64(0)
	for i := range 200 {
		r.add(t, varied(rng, 10, 10))
		if i%70 == 50 {
			r.now = r.now.Add(20 * time.Minute) // so that something is merged
		}
		var size int64
		files, err := os.ReadDir(r.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			info, err := f.Info()
			if err != nil {
				t.Fatal(err)
			}
			size += info.Size()
		}
		if largest = max(largest, size); size > MinSize {
			t.Fatalf("%d bytes after %d windows", size, i+1)
		}
		if size != r.Stats().Size {
			t.Fatalf("%d bytes, but %d are counted", size, r.Stats().Size)
		}
	}
	n := r.Stats()
	if n.Removed[RemovedSize] == 0 || n.Merges == 0 || n.Windows != 200 || largest < MinSize*8/10 {
		t.Errorf("largest %d, %+v", largest, n)
	}
	list, err := Read(r.path).Timeline(t.Context(), began, r.now, "")
	if err != nil || len(list) == 0 || !list[len(list)-1].End.Equal(r.now) {
		t.Errorf("%d windows, %v", len(list), err)
	}
	// A lower bound holds at once.
	r.Close()
	r.reopen(t, Options{MaxSize: MinSize})
	if got := r.Stats().Size; got > MinSize {
		t.Errorf("%d bytes", got)
	}
}

// A window that is larger than everything is lost, counted, and takes nothing with it.
func TestTooLarge(t *testing.T) {
	r := newRig(t, Options{MaxSize: MinSize})
	r.add(t, sinktest.Shop())
	r.o.MaxSize = 20_000
	p := varied(rand.New(rand.NewPCG(1, 1)), 20, 20)
	p.Start, p.Duration = r.now, time.Second
	if err := r.Add(p); !errors.Is(err, errTooLarge) {
		t.Errorf("error %v", err)
	}
	r.add(t, sinktest.Shop())
	if n := r.Stats(); n.Lost[LostTooLarge] != 1 || n.Windows != 2 || n.Size > r.o.MaxSize ||
		n.Removed[RemovedSize] != 0 {
		t.Errorf("%+v", n)
	}
	r.all(t, 0)
}

// A clock that jumps back makes times that overlap, and loses nothing.
func TestClockJumps(t *testing.T) {
	r := newRig(t, Options{Fine: time.Minute, Medium: time.Hour, Keep: 48 * time.Hour})
	var want uint64
	add := func(windows int) {
		for range windows {
			r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3}))
			want += 3
		}
		if got := totalsOf(r.all(t, 0)).samples; got != want {
			t.Fatalf("%d samples, want %d", got, want)
		}
	}
	add(100)
	r.now = r.now.Add(-12 * time.Hour) // summer time has nothing to do with it: this is a clock that was wrong
	add(400)
	r.now = r.now.Add(-30 * time.Second)
	add(400)
	r.now = r.now.Add(20 * time.Hour)
	add(400)
	r.Close()
	r.reopen(t, Options{Fine: time.Minute, Medium: time.Hour, Keep: 48 * time.Hour})
	add(1)
	// A clock that was years ahead for a while: what it wrote goes with the windows that follow.
	r.now = r.now.AddDate(5, 0, 0)
	r.o.Keep = 100 * 365 * 24 * time.Hour
	add(400)
	r.now = r.now.AddDate(-5, 0, 0)
	r.o.Keep = 2 * time.Hour
	for range 1200 {
		r.add(t, sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3}))
	}
	list, err := Read(r.path).Timeline(t.Context(), began.AddDate(-1, 0, 0), began.AddDate(9, 0, 0), "")
	if err != nil || len(list) == 0 || list[len(list)-1].End.After(r.now) ||
		list[0].Start.Before(r.now.Add(-4*time.Hour)) {
		t.Errorf("%d windows from %v to %v, now %v", len(list), list[0].Start, list[len(list)-1].End, r.now)
	}
}

// Files of others stay, those of ours are for their owner only, and a directory that others can
// write to is refused.
func TestDirectory(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, sinktest.Shop())
	for path, want := range map[string]os.FileMode{r.path: 0o700, filepath.Join(r.path, "00000000.0"): 0o600} {
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%s has mode %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := Open(r.path, nil); err == nil || !strings.Contains(err.Error(), "in use by another agent") {
		t.Errorf("a second writer: %v", err)
	}
	open := filepath.Join(t.TempDir(), "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, mode := range []os.FileMode{0o770, 0o707, 0o777 | os.ModeSticky} {
		if err := os.Chmod(open, mode); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(open, nil); err == nil || !strings.Contains(err.Error(), "others can write to it") {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
	if err := os.Chmod(open, 0o755); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(open, "notes.0")
	if err := os.WriteFile(foreign, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := Open(open, nil)
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(open, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(open, nil); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("another owner: %v", err)
		}
	}
	if _, err := Open(filepath.Join(t.TempDir(), "small"), &Options{MaxSize: 10}); err == nil {
		t.Error("a size of ten bytes is accepted")
	}
}

// writerDirectory is set in the process that TestKilled kills.
const writerDirectory = "VMPROF_TEST_HISTORY"

func TestMain(m *testing.M) {
	if path := os.Getenv(writerDirectory); path != "" {
		fmt.Println("failed:", write(path))
		return
	}
	os.Exit(m.Run())
}

// write is that process: it stores windows of one sample, and says so after each.
func write(path string) error {
	now := time.Now()
	s, err := Open(path, &Options{Fine: time.Minute, MaxSize: 20e6, Now: func() time.Time { return now }})
	if err != nil {
		return err
	}
	if n := len(s.segments); n > 0 {
		now = s.segments[n-1].end
	}
	for i := 0; ; i++ {
		p := varied(rand.New(rand.NewPCG(9, uint64(i))), 3, 20)
		p.Start, p.Duration = now, 30*time.Second
		p.Counts = profile.Counts{Folded: 1}
		now = now.Add(p.Duration) // so that segments are merged, too
		if err := s.Add(p); err != nil {
			return err
		}
		fmt.Println("stored")
	}
}

// A writer that is killed at any moment loses no window that it had stored.
func TestKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long under the race detector, and has one thread")
	}
	path := filepath.Join(t.TempDir(), "history")
	rng := rand.New(rand.NewPCG(11, 12))
	stored, killed := 0, 0
	const rounds = 20
	for range rounds {
		command := exec.Command(os.Args[0])
		command.Env = append(os.Environ(), writerDirectory+"="+path)
		out, err := command.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		// It gets so far, and then some time in which it may be anywhere.
		least, moment := stored+1+rng.IntN(40), time.Duration(rng.IntN(20_000))*time.Microsecond
		var timer *time.Timer
		for lines := bufio.NewScanner(out); lines.Scan(); {
			if strings.HasPrefix(lines.Text(), "failed") {
				t.Fatal(lines.Text())
			}
			if lines.Text() == "stored" {
				stored++
			}
			if stored >= least && timer == nil {
				timer = time.AfterFunc(moment, func() { command.Process.Kill() })
			}
		}
		if err := command.Wait(); err != nil {
			killed++
		}
		p, err := Read(path).Query(t.Context(), Selection{From: time.Now().AddDate(-1, 0, 0),
			To: time.Now().AddDate(1, 0, 0)})
		if err != nil {
			t.Fatal(err)
		}
		// The window that was open when it was killed may be there or not.
		if got := int(p.Counts.Folded); got < stored || got > stored+1 {
			t.Fatalf("%d windows, %d were stored", got, stored)
		}
		stored = int(p.Counts.Folded)
	}
	if killed != rounds || !strings.Contains(have(t, path), "1") {
		t.Errorf("%d windows in %d rounds, %d killed, levels %s", stored, rounds, killed, have(t, path))
	}
}

// A full disk loses windows, which are counted, and nothing else.
func TestDiskFull(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, sinktest.Shop())
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.open.f.Close()
	r.open.f = full
	p := sinktest.ShopEvents()
	p.Start, p.Duration = r.now, 10*time.Second
	if err := r.Add(p); err == nil {
		t.Error("a full disk is no error")
	}
	r.add(t, sinktest.Shop())
	if n := r.Stats(); n.Lost[LostDiskFull] != 1 || n.Windows != 2 {
		t.Errorf("%+v", n)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, 2*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}

// A disk that is too slow loses windows, which are counted; whoever hands them over does not wait.
func TestBusy(t *testing.T) {
	r := newRig(t, Options{})
	p := sinktest.Shop()
	p.Start = began
	for range queued + 3 {
		r.Observe(p)
	}
	if n := r.Stats(); n.Lost[LostBusy] != 3 {
		t.Errorf("%+v", n)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := r.Run(ctx); err != nil { // It writes what waits.
		t.Error(err)
	}
	if n := r.Stats(); n.Windows != queued {
		t.Errorf("%+v", n)
	}
}

// A disk that is full when a segment begins loses a window, and no segment for its age.
func TestDiskFullAtSegment(t *testing.T) {
	r := newRig(t, Options{})
	for range 3 {
		r.add(t, sinktest.Shop())
		if err := r.finish(); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.create(); err != nil { // there is room for that and nothing more
		t.Fatal(err)
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.open.f.Close()
	r.open.f = full
	p := sinktest.Shop()
	p.Start, p.Duration = r.now, 10*time.Second
	if err := r.Add(p); err == nil {
		t.Error("a full disk is no error")
	}
	if n := r.Stats(); n.Removed[RemovedAge] != 0 || n.Lost[LostDiskFull] != 1 {
		t.Errorf("%+v", n)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, 3*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}

// A window that the store cannot handle is lost and counted, and the agent goes on.
func TestFault(t *testing.T) {
	r := newRig(t, Options{})
	r.add(t, sinktest.Shop())
	p := sinktest.Shop()
	p.Start, p.Duration, p.Processes[0].Threads = r.now, 10*time.Second, []*profile.Thread{nil}
	if err := r.Add(p); err == nil {
		t.Error("no error")
	}
	r.add(t, sinktest.Shop())
	if n := r.Stats(); n.Lost[LostFailed] != 1 || n.Windows != 2 {
		t.Errorf("%+v", n)
	}
	if got, want := totalsOf(r.all(t, 0)).samples, 2*totalsOf(sinktest.Shop()).samples; got != want {
		t.Errorf("%d samples, want %d", got, want)
	}
}

// Services that only a damaged record had are written again.
func TestDamagedService(t *testing.T) {
	window := func(service string) *profile.Profile {
		p := sinktest.OfPaths(sinktest.Path{Methods: "main run", Times: 1, Weight: 3})
		p.Processes[0].Service = service
		return p
	}
	r := newRig(t, Options{})
	r.add(t, window("first"))
	r.add(t, window("second"))
	r.Close()
	file := filepath.Join(r.path, "00000000.0")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-1] ^= 1 // the last byte of the body
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	r.reopen(t, Options{})
	r.add(t, window("second"))
	r.add(t, window("third"))
	for _, service := range []string{"first", "second", "third"} {
		p, err := Read(r.path).Query(t.Context(), Selection{From: began, To: r.now, Service: service})
		if err != nil || totalsOf(p).samples != 3 {
			t.Errorf("%s: %+v, %v", service, p, err)
		}
		list, err := Read(r.path).Timeline(t.Context(), began, r.now, service)
		if err != nil || len(list) != 4 { // the header of the damaged one is right
			t.Errorf("%s: %d windows, %v", service, len(list), err)
		}
	}
}
