//go:build linux

package usdt

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// often makes windows follow each other closely, and last as long as permitted.
var often = profile.Rate{Hz: 997, Burst: profile.Burst{Stride: 7, Samples: 1 << 16}}

// busy makes a program do rounds until the test ends or the returned function is called.
func busy(t *testing.T, g *php.Guest, rounds int) (stop func()) {
	t.Helper()
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-quit:
				return
			default:
				if _, err := g.Run(rounds); err != nil {
					return
				}
			}
		}
	}()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			close(quit)
			<-ended
		}
	}
	t.Cleanup(stop)
	return stop
}

// hits returns how often a process has passed its probe.
func (b *bench) hits(g *php.Guest) uint64 {
	if guest := b.guest(g.PID()); guest != nil {
		return b.counters(guest).hits
	}
	return 0
}

// The engine refuses unsuitable processes, with a note.
func TestLiveRefusals(t *testing.T) {
	b := begin(t, profile.Rate{Hz: 1})
	refused := func(pid int, want error) {
		t.Helper()
		if found, err := b.Look(t.Context(), pid); found || !errors.Is(err, want) {
			t.Errorf("found: %v, %v, want %v", found, err, want)
		}
	}
	refused(os.Getpid(), nil) // no interpreter
	refused(start(t, php.Known).PID(), errPlain)
	if notes := b.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "USE_ZEND_DTRACE=1") {
		t.Errorf("notes %q", notes)
	}
}

// Two agents sample the same process at once, and neither disturbs the other.
func TestLiveTwoEngines(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	want := run(t, start(t, php.Known), 2000)
	a, b := begin(t, often), begin(t, often)
	a.look(g.PID())
	b.look(g.PID())
	wait.For(t, wait.Long, "both sample", func() bool {
		if got := run(t, g, 2000); got != want {
			t.Fatalf("the program answered %q, want %q", got, want)
		}
		return a.hits(g) > 0 && b.hits(g) > 0
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	before := b.hits(g)
	wait.For(t, wait.Long, "the other goes on", func() bool { run(t, g, 2000); return b.hits(g) > before })
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if v := semaphoreOf(t, g); v != 0 {
		t.Errorf("semaphore is %d", v)
	}
}

// A tracer attached with the semaphore keeps its count, and the engine samples all the same. After
// one attached without the semaphore, the kernel refuses attachments with it: that is noted, and
// the process is not sampled.
func TestLiveOtherTracer(t *testing.T) {
	for _, semaphore := range []bool{true, false} {
		g := start(t, php.Known, php.Traced)
		b := begin(t, often)
		b.look(g.PID())
		guest := b.guest(g.PID())
		site := guest.image.sites[0]
		if !semaphore {
			site.RefCtrOffset = 0
		}
		// This process is not sampled: but the site belongs to the file, and the kernel's rule
		// applies to it.
		otherProcess, err := g.Beside(t.Context(), php.Known, php.Traced)
		need(t, err)
		defer otherProcess.Close()
		tracer, err := attach.NewUprobes().AttachProcess(guest.image.file, otherProcess.PID(), b.usdt.UsdtEntry,
			[]attach.Site{site})
		if err != nil {
			t.Fatal(err)
		}
		stop := busy(t, g, 2000)
		if semaphore {
			wait.For(t, wait.Long, "calls are sampled", func() bool { return b.hits(g) > 0 })
			if v := semaphoreOf(t, otherProcess); v != 1 {
				t.Errorf("the tracer's semaphore is %d", v)
			}
		} else {
			wait.For(t, wait.Long, "the engine gives up", func() bool { return b.guest(g.PID()) == nil })
			if notes := b.Notes(); len(notes) != 1 || !strings.Contains(notes[0], "end that tool first") {
				t.Errorf("notes %q", notes)
			}
		}
		stop()
		if err := errors.Join(attach.CloseLinks(tracer), b.Close()); err != nil {
			t.Error(err)
		}
		g.Kill()
		otherProcess.Kill()
	}
}

// Children that a process forks in a window share its probe until the window ends. Their results
// are unchanged, and their calls are not sampled.
func TestLiveForks(t *testing.T) {
	g := start(t, php.Forks, php.Traced)
	b := begin(t, often)
	b.look(g.PID())
	count, err := b.Exact(g.PID()) // a window that stays open: every child inherits the probe
	if err != nil {
		t.Fatal(err)
	}
	const forks = 5
	got := run(t, g, forks)
	if want := run(t, start(t, php.Forks), forks); got != want {
		t.Errorf("the program answered %q, %q without the engine", got, want)
	}
	if _, err := count.Stop(); err != nil {
		t.Error(err)
	}
	before := b.hits(g)
	wait.For(t, wait.Long, "windows that come and go while it forks", func() bool {
		run(t, g, 1)
		return b.hits(g) > before
	})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if v := semaphoreOf(t, g); v != 0 {
		t.Errorf("semaphore is %d", v)
	}
}

// A process that is stopped in a window, and one that ends in a window, do not delay anything else.
func TestLiveStoppedInWindow(t *testing.T) {
	stopped, ending := start(t, php.Known, php.Traced), start(t, php.Known, php.Traced)
	b := begin(t, often)
	for _, g := range []*php.Guest{stopped, ending} {
		b.look(g.PID())
		go g.Run(1 << 30) // until it is killed
	}
	for _, g := range []*php.Guest{stopped, ending} {
		wait.For(t, wait.Long, "a window is open", func() bool {
			b.mu.Lock()
			defer b.mu.Unlock()
			return b.windows[g.PID()] != nil
		})
		if g == stopped {
			unix.Kill(g.PID(), unix.SIGSTOP)
			defer unix.Kill(g.PID(), unix.SIGCONT)
		} else {
			g.Kill()
		}
	}
	wait.For(t, wait.Long, "all windows are closed", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.windows)+b.closings == 0
	})
	if v := semaphoreOf(t, stopped); v != 0 {
		t.Errorf("semaphore of a process that was stopped is %d", v)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	stopped.Kill()
}

// A program that only looks like PHP does not affect others: what the kernel side reads from it is
// truncated and sanitised, and nothing in it is written but its semaphore.
func TestLiveHostile(t *testing.T) {
	g := start(t, php.Fake)
	b := begin(t, often)
	b.look(g.PID())
	stop := busy(t, g, 1<<20)
	wait.For(t, wait.Long, "its calls are sampled", func() bool { return b.hits(g) > 0 })
	stop()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := g.Order("check"); got != "0 words changed" {
		t.Errorf("%q, %v", got, err)
	}
	if v := semaphoreOf(t, g); v != 0 {
		t.Errorf("semaphore is %d", v)
	}
	for e := range b.sampled().Edges() {
		f := e.Callee.Value()
		if len(f.Function) > 110 || strings.Contains(f.File, "\n") || e.Caller.Value().Function != "[no PHP caller]" {
			t.Errorf("edge from %+v to %+v", e.Caller.Value(), f)
		}
	}
}

// A process whose semaphore cannot be reached is not sampled, and does not cost others a burst.
func TestLiveUnreadable(t *testing.T) {
	bad, good := start(t, php.Fake), start(t, php.Known, php.Traced)
	b := begin(t, often)
	b.look(good.PID())
	b.look(bad.PID())
	if got, err := bad.Order("hang"); got != "done" {
		t.Fatalf("%q, %v", got, err)
	}
	for range maxFailed { // it has no ticks while it waits for its own page: as if it had
		guest := b.guest(bad.PID())
		links, err := b.attach(guest) // 6.18 attaches all the same, and counts the semaphore up when the page is there
		err = errors.Join(err, attach.CloseLinks(links))
		b.mu.Lock()
		b.judge(guest, err)
		b.mu.Unlock()
		if left := b.guest(bad.PID()) == nil; err == nil && left {
			t.Error("it was left alone, though its probe could be attached")
		}
	}
	before := b.hits(good)
	wait.For(t, wait.Long, "another process is sampled", func() bool {
		run(t, good, 2000)
		return b.hits(good) > before
	})
	bad.Kill()
}

// A program that calls nothing is noted, with what may be the reason.
func TestLiveSilence(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	b := begin(t, often)
	b.look(g.PID())
	go g.Order("spin 60000")
	wait.For(t, wait.Long, "the silence is noted", func() bool {
		for _, g := range b.all() {
			b.check(g)
		}
		return len(b.Notes()) == 1 && strings.Contains(b.Notes()[0], "USE_ZEND_DTRACE=1")
	})
	g.Kill()
}

// A process that ends is forgotten.
func TestLiveForget(t *testing.T) {
	b := begin(t, profile.Rate{Hz: 1})
	for range 3 {
		g, err := php.Start(t.Context(), php.Known, php.Traced)
		need(t, err)
		b.look(g.PID())
		g.Close()
		for _, g := range b.all() {
			b.check(g)
		}
		if n := len(b.all()); n != 0 {
			t.Errorf("%d guests are left", n)
		}
	}
	var key uint32
	var value bpf.USDTGuest
	if b.usdt.UsdtGuests.Iterate().Next(&key, &value) {
		t.Errorf("the kernel side has kept process %d", key)
	}
}

// Programs of other languages, that make one call all the time.
var otherPrograms = map[string]struct{ tool, file, text, callee string }{
	"Python": {"/usr/bin/python3", "leaf.py", "import sys\n\ndef leaf(n):\n    return n + 1\n\ndef work():\n    n = 0\n    while True:\n        n = leaf(n) & 0xffff\n\nsys.setprofile(lambda *args: None)\nwork()\n", "leaf"},
	"Ruby": {"ruby", "leaf.rb", "class Tree\n  def leaf(n) = n + 1\nend\n" +
		"TracePoint.new(:call) {}.enable\ntree, n = Tree.new, 0\nloop { n = tree.leaf(n) & 0xffff }\n", "Tree#leaf"},
}

// For Python and Ruby the called function is known, but not its caller.
func TestLiveOtherLanguages(t *testing.T) {
	for title, p := range otherPrograms {
		t.Run(title, func(t *testing.T) {
			if _, err := exec.LookPath(p.tool); err != nil {
				t.Skip(err)
			}
			file := filepath.Join(t.TempDir(), p.file)
			if err := os.WriteFile(file, []byte(p.text), 0o644); err != nil {
				t.Fatal(err)
			}
			b := begin(t, often)
			cmd := exec.Command(p.tool, file)
			cmd.Stderr = testWriter{t}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { cmd.Process.Kill(); cmd.Wait() }()
			var err error
			wait.For(t, wait.Long, "it runs", func() bool {
				var found bool
				found, err = b.Look(t.Context(), cmd.Process.Pid)
				return found || errors.Is(err, errNoProbes)
			})
			if errors.Is(err, errNoProbes) {
				t.Skip(err)
			}
			wait.For(t, wait.Long, "its calls are sampled", func() bool {
				_, windows := b.sum()
				return windows >= 5 && b.Cost().Hits > 0
			})
			if err := b.Close(); err != nil {
				t.Fatal(err)
			}
			graph := b.sampled()
			for e, n := range graph.Edges() {
				callee, caller := e.Callee.Value(), e.Caller.Value()
				known := callee.Function == p.callee && callee.File == file || callee.Function == "<lambda>" // the profile function
				if caller.Function != "[unknown caller]" || !known && n > graph.Total()/100 {
					t.Errorf("%.0f calls from %q to %q in %q", n, caller.Function, callee.Function, callee.File)
				}
			}
			if graph.Total() == 0 {
				t.Error("no calls")
			}
		})
	}
}
