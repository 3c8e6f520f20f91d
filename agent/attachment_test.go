package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A fakeImage is a library whose VMs cannot be attached.
type fakeImage func(vmruntime.Target) (vmruntime.Process, error)

func (f fakeImage) Attach(t vmruntime.Target) (vmruntime.Process, error) { return f(t) }

// fakeGuest is an agent, and this test's own process, whose executable the agent takes for a VM's library.
func fakeGuest(t *testing.T, attach fakeImage) (*Agent, *process, *proc.Mapping) {
	t.Helper()
	a, _ := testAgent()
	a.root, a.pool, a.log = proc.DefaultRoot, proc.NewPool(proc.PoolOptions{}), slog.New(slog.DiscardHandler)
	a.slots = []uint32{0}
	a.images = a.newImages(a.pool)
	t.Cleanup(a.images.Close)
	id, err := a.root.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := newProcess(id, false)
	a.table[p.pid] = p
	maps, err := a.root.Maps(p.pid, func(m *proc.Mapping) bool { return m.Exec && m.IsFile() })
	if err != nil {
		t.Fatal(err)
	}
	lib := &maps[0]
	f, err := a.root.OpenMapped(p.pid, lib, maxLibrary)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	key, err := openKey(f)
	if err != nil {
		t.Fatal(err)
	}
	file, err := elffile.Open(f, key.Size)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := a.images.Use(p.targetProcess, p.pid, key, f, func(im *image) (bool, error) {
		im.img, im.segments = attach, file.Segments()
		return false, nil
	}); err != nil {
		t.Fatal(err)
	}
	return a, p, lib
}

// TestAttachAgain: whatever the reason is why a VM cannot be attached, it is tried again: by the agent itself while the
// VM may be starting, and then when it is sampled.
func TestAttachAgain(t *testing.T) {
	for _, reason := range []error{vmruntime.ErrStarting, vmruntime.ErrMalformed, proc.ErrUnmapped, errors.New("anything")} {
		attempts := 0
		a, p, lib := fakeGuest(t, func(vmruntime.Target) (vmruntime.Process, error) {
			attempts++
			return nil, reason
		})
		p.work.attach.pauses.First = time.Second / 2 // longer than an attempt takes
		a.attachGuest(p.targetProcess, lib)
		a.attachGuest(p.targetProcess, lib)
		if attempts != 1 {
			t.Fatalf("%v: %d attempts at once", reason, attempts)
		}
		if next := p.work.attach.pauses.Next; next == 0 || next > proc.Monotonic()+time.Second || p.work.hopeless {
			t.Errorf("%v: the next attempt is at %v, now is %v", reason, next, proc.Monotonic())
		}
		if len(p.notes) != 0 || p.retry.Load() != 0 {
			t.Errorf("%v: told at once: %q", reason, p.notes)
		}
		p.work.attach.begun -= startTime // it is old
		p.work.attach.pauses.Next = 0
		a.attachGuest(p.targetProcess, lib)
		if len(p.notes) != 1 || !strings.Contains(p.notes[0], reason.Error()) {
			t.Errorf("%v: notes %q", reason, p.notes)
		}
		retry := time.Duration(p.retry.Load())
		if retry < proc.Monotonic()+retryInterval/2 || p.due(uint64(retry-1)) || !p.due(uint64(retry)) {
			t.Errorf("%v: samples lead to an attempt at %v, now is %v", reason, retry, proc.Monotonic())
		}
		if p.attachment.Load() != 0 || a.attached != 0 || len(a.slots) != 1 {
			t.Errorf("%v: attachment %d, %d attached, %d slots", reason, p.attachment.Load(), a.attached, len(a.slots))
		}
	}
}

// TestSampleRetries: a sample hands a process to a worker when it is due, although its frames are known.
func TestSampleRetries(t *testing.T) {
	a, _ := testAgent()
	id := identity{100, 5_000_000_123, 1}
	a.handle(sampleRecord(id, 0x1000))
	p := a.table[100]
	clear(a.dirty)
	a.handle(sampleRecord(id, 0x1000))
	if len(a.dirty) != 0 {
		t.Fatal("a process without work is handed to a worker")
	}
	p.retry.Store(2)
	if a.handle(sampleRecord(id, 0x1000)); len(a.dirty) != 0 { // at 1 ns
		t.Error("the process is handed to a worker before it is due")
	}
	p.retry.Store(1)
	if a.handle(sampleRecord(id, 0x1000)); len(a.dirty) != 1 {
		t.Error("the process is not handed to a worker")
	}
}

// TestLookAgain: a process that has no VM yet is looked at again: by the agent itself if it is a java launcher, and then
// when it is sampled. Visits of a worker in between use nothing up.
func TestLookAgain(t *testing.T) {
	for _, comm := range []string{"java", "other"} {
		a, p, _ := fakeGuest(t, nil)
		p.comm = comm
		for range 100 {
			a.findGuest(p.targetProcess)
		}
		look := &p.work.look
		if starting := comm == "java"; starting != (p.retry.Load() == 0) || look.pauses.Attempts > 20 {
			t.Errorf("%s: %d attempts, retry at %v", comm, look.pauses.Attempts, p.retry.Load())
		}
		look.begun -= startTime
		look.pauses.Next = 0
		a.findGuest(p.targetProcess)
		if at := time.Duration(p.retry.Load()); at < proc.Monotonic()+retryInterval/2 || at != look.pauses.Next {
			t.Errorf("%s: samples lead to a look at %v, now is %v", comm, at, proc.Monotonic())
		}
	}
}

// TestMissingFrames: every profile of a process whose VM is not attached says that its Java frames are missing, however short
// it is and however few attempts there were.
func TestMissingFrames(t *testing.T) {
	p := newProcess(proc.Identity{PID: 7}, false)
	note := func(began time.Duration) string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.missingFrames(began)
	}
	expect := func(when string, began time.Duration, want string) {
		t.Helper()
		if got := note(began); got != want {
			t.Errorf("%s: note %q, want %q", when, got, want)
		}
	}
	expect("before a VM is found", 0, "")
	p.misses(time.Second, errAttaching)
	expect("at the first attempt", 0, "Java frames of process 7 are missing: its JVM is being attached")
	p.misses(2*time.Second, proc.ErrTimeout)
	expect("after it", 0, "Java frames of process 7 are missing: target did not answer in time")
	p.misses(3*time.Second, errAttaching)
	expect("at the second", 2*time.Second, "Java frames of process 7 are missing: target did not answer in time")
	p.notes = []string{"Java frames of process 7 are missing: anything"}
	expect("when it was said already", 0, "")
	p.notes = nil
	p.misses(4500*time.Millisecond, nil)
	expect("in a window that began before it was attached", 2*time.Second, "Java frames of process 7 are missing until 3.5 s after its JVM was found: target did not answer in time")
	expect("in a later one", 5*time.Second, "")

	p = newProcess(proc.Identity{PID: 8}, false)
	p.misses(time.Second, errAttaching)
	p.misses(1100*time.Millisecond, nil)
	expect("a VM that was attached at once", 0, "")
}

// TestMissingFramesInProfile: a window that closes after the first failure has the note.
func TestMissingFramesInProfile(t *testing.T) {
	a, p, lib := fakeGuest(t, func(vmruntime.Target) (vmruntime.Process, error) { return nil, proc.ErrTimeout })
	a.attachGuest(p.targetProcess, lib)
	w := newWindow(a, nil)
	out := w.profileOf(p, &profile.Counts{})
	if out == nil || len(out.Notes) != 1 || !strings.Contains(out.Notes[0], "Java frames of process") || !strings.Contains(out.Notes[0], proc.ErrTimeout.Error()) {
		t.Errorf("%+v", out)
	}
}

// TestMayPass: which failures to attach a probe for values are worth another attempt.
func TestMayPass(t *testing.T) {
	for _, c := range []struct {
		err    error
		passes bool
	}{
		{nil, false}, {errors.New("in a leaf function"), false}, {&proc.PanicError{Value: "hostile"}, true}, {context.Canceled, true},
		{fmt.Errorf("process 1: %w", proc.ErrTimeout), true}, {proc.ErrCrowded, true}, {errTooManyProbes, true}, {fmt.Errorf("open: %w", unix.EMFILE), true},
	} {
		if got := mayPass(c.err); got != c.passes {
			t.Errorf("mayPass(%v): %v", c.err, got)
		}
	}
}

// TestNotesBounded: notes that a process brings about have a bound, and say that there are more.
func TestNotesBounded(t *testing.T) {
	p := newProcess(proc.Identity{PID: 1}, false)
	for i := range 10 * maxNotes {
		if added := p.note(fmt.Sprintf("note %d", i)); added != (i < maxNotes) || p.note(fmt.Sprintf("note %d", i)) {
			t.Errorf("note %d: %v", i, added)
		}
	}
	if n := len(p.notes); n != maxNotes+1 || !strings.Contains(p.notes[n-1], "left out") {
		t.Errorf("%d notes: %q", n, p.notes)
	}
}
