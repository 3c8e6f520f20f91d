package guest

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/elffile"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A fakeImage is a library whose VMs cannot be attached.
type fakeImage func(vmruntime.Target) (vmruntime.Process, error)

func (f fakeImage) Attach(t vmruntime.Target) (vmruntime.Process, error) { return f(t) }

// fakeVM is a resolver, and this test's own process, whose executable the resolver takes for a VM's
// library.
func fakeVM(t *testing.T, attach fakeImage) (*Resolver, *Process, *proc.Mapping) {
	t.Helper()
	pool := proc.NewPool(proc.PoolOptions{})
	rs := NewResolver(Config{Root: proc.DefaultRoot, Log: slog.New(slog.DiscardHandler), Pool: pool, Attaching: pool})
	rs.slots = []uint32{0}
	t.Cleanup(rs.images.Close)
	id, err := rs.root.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	p := NewProcess(id)
	maps, err := rs.root.Maps(p.PID, func(m *proc.Mapping) bool { return m.Exec && m.IsFile() })
	if err != nil {
		t.Fatal(err)
	}
	lib := &maps[0]
	f, err := rs.root.OpenMapped(p.PID, lib, MaxLibrary)
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
	if _, err := rs.images.Use(p, p.PID, key, f, func(im *image) (bool, error) {
		im.img, im.segments = attach, file.Segments()
		return false, nil
	}); err != nil {
		t.Fatal(err)
	}
	return rs, p, lib
}

// TestAttachAgain: whatever the reason is why a VM cannot be attached, it is tried again: by the
// agent itself while the VM may be starting, and then when it is sampled.
func TestAttachAgain(t *testing.T) {
	for _, reason := range []error{vmruntime.ErrStarting, vmruntime.ErrMalformed, proc.ErrUnmapped,
		errors.New("anything")} {
		attempts := 0
		rs, p, lib := fakeVM(t, func(vmruntime.Target) (vmruntime.Process, error) {
			attempts++
			return nil, reason
		})
		p.work.attach.pauses.First = time.Second / 2 // longer than an attempt takes
		rs.attachVM(p, lib)
		rs.attachVM(p, lib)
		if attempts != 1 {
			t.Fatalf("%v: %d attempts at once", reason, attempts)
		}
		if next := p.work.attach.pauses.Next; next == 0 || next > proc.Monotonic()+time.Second || p.work.hopeless {
			t.Errorf("%v: the next attempt is at %v, now is %v", reason, next, proc.Monotonic())
		}
		if len(p.notes) != 0 || p.retry.Load() != 0 {
			t.Errorf("%v: noted at once: %q", reason, p.notes)
		}
		p.work.attach.begun -= startTime // it is old
		p.work.attach.pauses.Next = 0
		rs.attachVM(p, lib)
		if len(p.notes) != 1 || !strings.Contains(p.notes[0], reason.Error()) {
			t.Errorf("%v: notes %q", reason, p.notes)
		}
		retry := time.Duration(p.retry.Load())
		if retry < proc.Monotonic()+retryInterval/2 || p.Due(uint64(retry-1)) || !p.Due(uint64(retry)) {
			t.Errorf("%v: samples lead to an attempt at %v, now is %v", reason, retry, proc.Monotonic())
		}
		if p.Attachment.Load() != 0 || rs.attached != 0 || len(rs.slots) != 1 {
			t.Errorf("%v: attachment %d, %d attached, %d slots", reason, p.Attachment.Load(), rs.attached,
				len(rs.slots))
		}
	}
}

// TestLookAgain: a process that has no VM yet is looked at again: by the agent itself if it is a
// java launcher, and then when it is sampled. Visits of a worker in between use nothing up.
func TestLookAgain(t *testing.T) {
	for _, comm := range []string{"java", "other"} {
		rs, p, _ := fakeVM(t, nil)
		p.task = comm
		for range 100 {
			rs.findVM(p)
		}
		look := &p.work.look
		if starting := comm == "java"; starting != (p.retry.Load() == 0) || look.pauses.Attempts > 20 {
			t.Errorf("%s: %d attempts, retry at %v", comm, look.pauses.Attempts, p.retry.Load())
		}
		look.begun -= startTime
		look.pauses.Next = 0
		rs.findVM(p)
		if at := time.Duration(p.retry.Load()); at < proc.Monotonic()+retryInterval/2 || at != look.pauses.Next {
			t.Errorf("%s: samples lead to a look at %v, now is %v", comm, at, proc.Monotonic())
		}
	}
}

// TestMissingFrames: every profile of a process whose VM is not attached says that its Java frames
// are missing, however short it is and however few attempts there were.
func TestMissingFrames(t *testing.T) {
	p := NewProcess(proc.Identity{PID: 7})
	note := func(began time.Duration) string {
		return p.MissingFrames(began)
	}
	expect := func(when string, began time.Duration, want string) {
		t.Helper()
		if got := note(began); got != want {
			t.Errorf("%s: note %q, want %q", when, got, want)
		}
	}
	expect("before a VM is found", 0, "")
	p.AttachResult(time.Second, errAttaching)
	expect("at the first attempt", 0, "Java frames of process 7 are missing: the agent is still attaching to its JVM")
	p.AttachResult(2*time.Second, proc.ErrTimeout)
	expect("after it", 0, "Java frames of process 7 are missing: target did not answer in time")
	p.AttachResult(3*time.Second, errAttaching)
	expect("at the second", 2*time.Second, "Java frames of process 7 are missing: target did not answer in time")
	p.notes = []string{"Java frames of process 7 are missing: anything"}
	expect("when it was said already", 0, "")
	p.notes = nil
	p.AttachResult(4500*time.Millisecond, nil)
	expect("in a window that began before it was attached", 2*time.Second,
		"Java frames of process 7 are missing until 3.5 s after its JVM was found: target did not answer in time")
	expect("in a later one", 5*time.Second, "")

	p = NewProcess(proc.Identity{PID: 8})
	p.AttachResult(time.Second, errAttaching)
	p.AttachResult(1100*time.Millisecond, nil)
	expect("a VM that was attached at once", 0, "")
}

// TestNotesBounded: notes that a process brings about have a bound, and say that there are more.
func TestNotesBounded(t *testing.T) {
	p := NewProcess(proc.Identity{PID: 1})
	for i := range 10 * maxNotes {
		if added := p.Note(fmt.Sprintf("note %d", i)); added != (i < maxNotes) || p.Note(fmt.Sprintf("note %d", i)) {
			t.Errorf("note %d: %v", i, added)
		}
	}
	if n := len(p.notes); n != maxNotes+1 || !strings.Contains(p.notes[n-1], "omitted") {
		t.Errorf("%d notes: %q", n, p.notes)
	}
}

// TestMissingFramesAtOnce: the first failure has a note for profiles.
func TestMissingFramesAtOnce(t *testing.T) {
	rs, p, lib := fakeVM(t, func(vmruntime.Target) (vmruntime.Process, error) { return nil, proc.ErrTimeout })
	rs.attachVM(p, lib)
	if note := p.MissingFrames(0); !strings.Contains(note, "Java frames of process") ||
		!strings.Contains(note, proc.ErrTimeout.Error()) {
		t.Errorf("note %q", note)
	}
}

// TestAttachPace: a VM is tried often while it may be starting, and once a minute after that, for
// ever.
func TestAttachPace(t *testing.T) {
	pace := newAttachPace()
	now, last := time.Second, time.Duration(0)
	attempts := 0
	for {
		if !pace.due(now) {
			t.Fatalf("not due at %v", now)
		}
		attempts++
		if !pace.failed(now) {
			break
		}
		if pause := pace.pauses.Next - now; pause < last || pause > time.Second {
			t.Fatalf("pause of %v after one of %v", pause, last)
		} else {
			last = pause
		}
		now = pace.pauses.Next
	}
	if begun := now - time.Second; begun < startTime || begun > startTime+time.Second || attempts > 50 {
		t.Errorf("%d attempts in %v", attempts, begun)
	}
	for range 100 {
		if next := now + retryInterval; pace.due(next-1) || !pace.due(next) || pace.failed(next) {
			t.Fatalf("tried at another time than %v later", retryInterval)
		} else {
			now = next
		}
	}
}

func TestAttachPaceReport(t *testing.T) {
	pace := newAttachPace()
	pace.due(time.Second)
	for _, c := range []struct {
		at           time.Duration
		passes, want bool
	}{
		{2 * time.Second, true, false},
		{time.Second + patience, true, true},
		{time.Second + 2*patience, true, false}, // already logged
	} {
		if got := pace.report(c.at, c.passes); got != c.want {
			t.Errorf("after %v: %v", c.at, got)
		}
	}
	pace = newAttachPace()
	pace.due(time.Second)
	if !pace.report(time.Second, false) {
		t.Error("what will not pass is not noted at once")
	}
}
