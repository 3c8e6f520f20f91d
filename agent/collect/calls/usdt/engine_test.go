//go:build linux

package usdt

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// need skips a test if something is missing that CI must have.
func need(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CI") == "true" || os.Getuid() == 0 && !errors.Is(err, php.ErrMissing) {
		t.Fatal(err)
	}
	t.Skip(err)
}

// A bench is an engine with the event stream that it fills.
type bench struct {
	*Engine
	t       testing.TB
	objects *bpf.Objects
	graph   profile.Graph // weighed
	plain   profile.Graph // the same, each sample as one call
	samples int           // number of samples in it
	done    chan struct{} // closed when the stream has ended
	ring    *ring.Reader
}

// begin starts an engine, and closes it with the test.
func begin(t testing.TB, rate profile.Rate) *bench {
	t.Helper()
	objects, err := bpf.Load(bpf.Options{})
	need(t, err)
	t.Cleanup(func() { objects.Close() })
	e, err := Try(Options{Objects: objects, Rate: rate, Log: slog.New(slog.NewTextHandler(testWriter{t}, nil))})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{Engine: e, t: t, objects: objects, done: make(chan struct{})}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	if b.ring, err = ring.NewReader(objects.Events); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.ring.Close() })
	go b.drain()
	return b
}

// drain folds sampled calls until the stream is closed or flushed.
func (b *bench) drain() {
	defer close(b.done)
	for {
		b.ring.SetDeadline(time.Now().Add(20 * time.Millisecond))
		record, err := b.ring.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err != nil {
			return
		}
		if bpf.Kind(record) != bpf.EventNamedCall {
			continue
		}
		c, err := bpf.DecodeNamedCall(record)
		if err != nil {
			b.t.Error(err)
			continue
		}
		b.Fold(c, b.add)
	}
}

func (b *bench) add(_ *bpf.Header, e profile.Edge, weight float64) {
	b.graph.Add(e, weight)
	b.plain.Add(e, 1)
	b.samples++
}

// sampled ends the stream and returns what was sampled.
func (b *bench) sampled() *profile.Graph {
	b.ring.Flush()
	<-b.done
	b.Flush(b.add)
	return &b.graph
}

// look makes a process a guest.
func (b *bench) look(pid int) {
	b.t.Helper()
	if found, err := b.Look(b.t.Context(), pid); err != nil || !found {
		b.t.Fatalf("look at process %d: %v, %v", pid, found, err)
	}
}

// start starts a program.
func start(t testing.TB, p php.Program, env ...string) *php.Guest {
	t.Helper()
	g, err := php.Start(t.Context(), p, env...)
	need(t, err)
	t.Cleanup(func() { g.Close() })
	return g
}

// run does n rounds.
func run(t *testing.T, g *php.Guest, n int) string {
	t.Helper()
	answer, err := g.Run(n)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

type testWriter struct{ t testing.TB }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", b)
	return len(b), nil
}

// semaphoreOf reads the semaphore of a PHP process.
func semaphoreOf(t *testing.T, g *php.Guest) uint16 {
	t.Helper()
	v, err := g.Semaphore()
	if err != nil {
		t.Fatal(err)
	}
	return v
}
