//go:build linux

package semaphore

import (
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/ringbuf"

	"github.com/vmprof-agent/vmprof-agent/agent/calls"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// orderOf gives an order and wants that answer.
func orderOf(t *testing.T, g *php.Guest, text, want string) {
	t.Helper()
	if got, err := g.Order(text); err != nil || got != want {
		t.Fatalf("%q was answered %q, %v, want %q", text, got, err, want)
	}
}

// A program that only looks like PHP gets its own semaphore set and cleared, and nothing else changed. What it makes
// the kernel side read is cut and cleaned.
func TestLiveHostile(t *testing.T) {
	g := start(t, php.Fake)
	b := begin(t, calls.Rate{Hz: 997, Burst: calls.Burst{Stride: 1, Samples: 16}})
	b.look(g.PID())
	orderOf(t, g, "run 300000000", "300000000")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	orderOf(t, g, "check", "0 words changed")
	if v, err := semaphoreOf(g.PID()); v != 0 || err != nil {
		t.Errorf("semaphore is %d, %v", v, err)
	}
	graph := b.sampled()
	if graph.Total() == 0 {
		t.Fatal("nothing was sampled")
	}
	for e := range graph.Edges() {
		f := e.Callee.Value()
		if len(f.Function) > 110 || strings.Contains(f.File, "\n") || e.Caller.Value().Function != "[no PHP caller]" {
			t.Errorf("edge from %+v to %+v", e.Caller.Value(), f)
		}
	}
}

// A process that takes its semaphore's page away is let go, and costs nobody else a burst. The kernel refuses to wait
// for such a page (6.18) or waits for ever; both must be survived.
func TestLiveUnreadable(t *testing.T) {
	bad, good := start(t, php.Fake), start(t, php.Known, php.Traced)
	b := begin(t, calls.Rate{Hz: 997, Burst: calls.Burst{Stride: 7, Samples: 32}})
	b.look(good.PID())
	b.look(bad.PID())
	orderOf(t, bad, "hang", "done")
	if err := b.guard.give(verbHold, b.guest(bad.PID()).id, 0, nil); err == nil {
		t.Error("a page that nobody can read was written")
	}
	go bad.Order("run 1") // waits for its own page for ever
	before := b.counters(b.guest(good.PID())).hits
	for began := time.Now(); time.Since(began) < 500*time.Millisecond; {
		run(t, good, 20000)
	}
	if after := b.counters(b.guest(good.PID())).hits; after == before {
		t.Error("no calls of another process were sampled meanwhile")
	}
	bad.Kill()
}

// A writer that hangs in the memory of a process is replaced, and the process let go.
func TestLiveWriterHangs(t *testing.T) {
	ring, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.RingBuf, MaxEntries: 4096})
	need(t, err)
	defer ring.Close()
	notices, err := ringbuf.NewReader(ring)
	if err != nil {
		t.Fatal(err)
	}
	g := &guard{notices: notices, wards: wards{byPID: map[uint32]*ward{}}, told: make(chan order, 1)}
	stuck := &ward{ticks: 7}
	g.wards.put(4711, stuck)
	stuck.mu.Lock() // as a read of its memory would that does not return
	w, err := g.newWriter()
	if err != nil {
		t.Fatal(err)
	}
	go w.do(&bpf.PHPNotice{Pid: 4711, StartTicks: 7, Action: uint32(bpf.PHPArm)})
	go g.watch(w)
	if got, want := <-g.told, (order{Verb: verbHung, PID: 4711, StartTicks: 7}); got != want {
		t.Errorf("the guard told %+v, want %+v", got, want)
	}
	if g.wards.find(4711, 7) != nil || !w.done.Load() {
		t.Error("the process is still under guard, or the writer still at work")
	}
	stuck.gone = true
	stuck.mu.Unlock()
	notices.Close() // ends the new writer
}

// A program that calls nothing is disarmed, and told of.
func TestLiveSilence(t *testing.T) {
	g := start(t, php.Known, php.Traced)
	b := begin(t, calls.Rate{Hz: 100, Burst: calls.Burst{Stride: 1, Samples: 1}})
	b.look(g.PID())
	done := make(chan struct{})
	go func() { defer close(done); g.Order("spin 8000") }()
	eventually(t, "the silence is noted", func() bool {
		for _, g := range b.all() {
			b.check(t.Context(), g)
		}
		return len(b.Notes()) == 1 && strings.Contains(b.Notes()[0], "USE_ZEND_DTRACE=1")
	})
	g.Kill()
	<-done
}
