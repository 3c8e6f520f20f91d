//go:build linux && amd64

package listener

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

var _ interface {
	calls.Engine
	calls.Watching
} = (*Engine)(nil)

// A fixed source always returns the same guest.
type fixed struct {
	guest   Guest
	entries []Entry
}

func (f fixed) Next() (Guest, []Entry, bool) { return f.guest, f.entries, true }

func (f fixed) Failed(proc.Identity, error) {}

// A buffer is a logger's output that may be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func rate(hz, samples int) profile.Rate {
	return profile.Rate{Hz: hz, Burst: profile.Burst{Stride: 1, Samples: samples}}
}

func TestEngine(t *testing.T) {
	b := newBench(t)
	before, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	var log buffer
	e := NewEngine(b.Listener, fixed{selfGuest(t, 1), []Entry{entry(once), entry(twice), entry(never), entry(never2)}},
		slog.New(slog.NewTextHandler(&log, nil)))
	defer e.Close()
	if s := e.Watches(); s != (calls.Watches{}) || e.Name() != "listener" {
		t.Errorf("%s began untuned: %+v", e.Name(), s)
	}
	if err := e.Tune(rate(500, 8)); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "20 windows, some full", func() bool {
		s := e.Watches()
		return s.Complete+s.Full >= 20 && s.Full > 0
	})
	if err := e.Tune(rate(0, 0)); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	s := e.Watches()
	after, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	delivered := after[bpf.CallsDelivered] - before[bpf.CallsDelivered]
	// One more window may be cut short by the end.
	if s.Failed+s.Void+s.Refused+s.BusyThreads > 0 || delivered < 8*s.Full || delivered > 8*(s.Complete+s.Full+1) {
		t.Errorf("%+v, %d calls: %s", s, delivered, log.String())
	}
	if c := e.Cost(); c.Hits < delivered || c.Time() < time.Duration(delivered)*c.HitTime {
		t.Errorf("cost %+v of %d calls", c, delivered)
	}
}

// ended returns the number of windows that were not cut short.
func (e *Engine) ended() uint64 {
	w := e.Watches()
	return w.Complete + w.Full
}

// After a pause has begun and Wait has returned, no call is observed.
func TestEnginePause(t *testing.T) {
	b := newBench(t)
	e := NewEngine(b.Listener, fixed{selfGuest(t, 1), []Entry{entry(once), entry(twice)}},
		slog.New(slog.DiscardHandler))
	defer e.Close()
	delivered := func() uint64 {
		c, err := b.agent.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		return c[bpf.CallsAttempted]
	}
	for range 20 {
		windows := e.ended()
		if err := e.Tune(rate(500, MaxHits)); err != nil {
			t.Fatal(err)
		}
		wait.For(t, wait.Long, "a window", func() bool { return e.ended() > windows })
		if err := e.Tune(rate(0, 0)); err != nil {
			t.Fatal(err)
		}
		e.Wait()
		before := delivered()
		time.Sleep(2 * listening) // A window that came after all would be over by then.
		if after := delivered(); after != before {
			t.Fatalf("%d calls were observed in a pause", after-before)
		}
	}
}

// Calls observed in a guest with Take are not put into the event stream, and Take decides whether
// the window is void.
func TestEngineTake(t *testing.T) {
	b := newBench(t)
	before, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	g := selfGuest(t, 1)
	var mu sync.Mutex
	taken := map[uint64]int{}
	g.Take = func(r Result) error {
		mu.Lock()
		defer mu.Unlock()
		taken[r.Number] = len(r.Hits)
		if len(taken)%2 == 0 {
			return watch.ErrChanged
		}
		return nil
	}
	e := NewEngine(b.Listener, fixed{g, []Entry{entry(once), entry(twice)}}, slog.New(slog.DiscardHandler))
	defer e.Close()
	if err := e.Tune(rate(500, 8)); err != nil {
		t.Fatal(err)
	}
	wait.For(t, wait.Long, "windows of both kinds", func() bool { return e.ended() >= 5 && e.Watches().Void >= 5 })
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	after, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	hits := 0
	for _, n := range taken {
		hits += n
	}
	s := e.Watches()
	if n := after[bpf.CallsAttempted] - before[bpf.CallsAttempted]; n != 0 || hits == 0 ||
		len(taken) != int(s.Complete+s.Full+s.Void) {
		t.Errorf("%d hits in %d windows are taken, %d calls are in the stream: %+v", hits, len(taken), n, s)
	}
}

func TestEngineTune(t *testing.T) {
	b := newBench(t)
	e := NewEngine(b.Listener, fixed{}, slog.New(slog.DiscardHandler))
	defer e.Close()
	for samples, ok := range map[int]bool{0: false, 1: true, MaxHits: true, MaxHits + 1: true} {
		if err := e.Tune(rate(1, samples)); (err == nil) != ok {
			t.Errorf("%d samples: %v", samples, err)
		}
	}
}

// Failures are counted by reason; those that need attention are logged once.
func TestEngineFailures(t *testing.T) {
	b := newBench(t)
	jump := selfGuest(t, 1)
	jump.Memory = &changing{at: func(int, uint64) []byte { return []byte{0xe9} }}
	gone := selfGuest(t, 0)
	gone.Threads = []int{1 << 23}
	kernel := selfGuest(t, 1)
	kernel.Memory = &changing{at: func(int, uint64) []byte { return []byte{0x55} }}
	for _, c := range []struct {
		name    string
		source  fixed
		counted func(calls.Watches) uint64
		said    int
	}{
		{"a jump", fixed{jump, []Entry{entry(once)}}, func(w calls.Watches) uint64 { return w.Void }, 0},
		{"no thread", fixed{gone, []Entry{entry(once)}}, func(w calls.Watches) uint64 { return w.Refused }, 0},
		{"an address of the kernel", fixed{kernel, []Entry{{Address: 1 << 63}}},
			func(w calls.Watches) uint64 { return w.Failed }, 1},
	} {
		var log buffer
		e := NewEngine(b.Listener, c.source, slog.New(slog.NewTextHandler(&log, nil)))
		if err := e.Tune(rate(1000, 8)); err != nil {
			t.Fatal(err)
		}
		wait.For(t, wait.Long, c.name, func() bool { return c.counted(e.Watches()) >= 2 })
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(log.String(), "cannot observe"); n != c.said {
			t.Errorf("%s: logged %d times, want %d: %s", c.name, n, c.said, log.String())
		}
	}
}
