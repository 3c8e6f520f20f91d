//go:build linux

package page

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/ring"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

// A graph for comparison: caller, line of the call, callee.
type (
	graph = cct.Graph[string, int32]
	edge  = cct.Edge[string, int32]
)

// A stage is an engine with a reader of its stream.
type stage struct {
	*Engine
	objects *bpf.Objects
	socket  string
	reader  *ring.Reader
	done    sync.WaitGroup

	mu    sync.Mutex
	calls []bpf.Call
	graph graph // weighed

	// For TestLiveAccuracy.
	control *budget.Controller
	sampled time.Duration // CPU time of guests while they were
	last    profile.Rate
}

func newStage(t testing.TB, change func(*Options)) *stage {
	t.Helper()
	needs.Root(t, "sampling")
	o, err := bpf.Load(bpf.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { o.Close() })
	dir := t.TempDir()
	// Guests run as nobody.
	for d := dir; d != os.TempDir() && d != "/"; d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &stage{objects: o, socket: filepath.Join(dir, "guest.sock")}
	opt := Options{Objects: o, Socket: s.socket}
	if change != nil {
		change(&opt)
	}
	if s.Engine, err = New(opt); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Engine.Close(); err != nil {
			t.Error(err)
		}
	})
	if s.reader, err = ring.NewReader(o.Events); err != nil {
		t.Fatal(err)
	}
	s.done.Go(s.read)
	t.Cleanup(func() { s.reader.Close(); s.done.Wait() })
	return s
}

// read names calls as they arrive. The BPF programs send no wakeups, so it polls ten times a
// second.
func (s *stage) read() {
	for {
		s.reader.SetDeadline(time.Now())
		record, err := s.reader.Next()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err != nil {
			return
		}
		if bpf.Kind(record) != bpf.EventCall {
			continue
		}
		c, err := bpf.DecodeCall(record)
		if err != nil {
			panic(err)
		}
		s.mu.Lock()
		s.calls = append(s.calls, *c)
		s.Fold(c, s.add)
		s.mu.Unlock()
	}
}

func (s *stage) add(_ *bpf.Header, e profile.Edge, weight float64) {
	s.graph.Add(plainEdge(e), weight)
}

func plainEdge(e profile.Edge) edge {
	return edge{Caller: e.Caller.Value().Function, Site: e.Site.Line, Callee: e.Callee.Value().Function}
}

// plain waits for all calls, and returns the graph in which each call counts as one.
func (s *stage) plain(t testing.TB) *graph {
	t.Helper()
	var g graph
	for _, c := range s.drained(t) {
		if e, ok := s.edge(&c); ok {
			g.Add(plainEdge(e), 1)
		}
	}
	return &g
}

// drained waits until everything that was delivered was read.
func (s *stage) drained(t testing.TB) []bpf.Call {
	t.Helper()
	wait.For(t, wait.Long, "all calls of the stream", func() bool {
		c, err := s.objects.ReadCounts()
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return uint64(len(s.calls)) == c[bpf.CallsDelivered]
	})
	s.Flush(s.add)
	return s.calls
}

// buildGuest compiles testdata/guest.c, once for all tests.
var buildGuest func() (path string, err error)

func compileGuest(dir string) (string, error) {
	bin := filepath.Join(dir, "guest")
	out, err := exec.Command("cc", "-O2", "-I", "../../../../contrib/guest", "-o", bin, "testdata/guest.c",
		"-lpthread").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
}

func TestMain(m *testing.M) {
	if os.Getenv(agentVariable) != "" {
		playAgent()
		return
	}
	if os.Getenv(peerVariable) != "" {
		playPeer()
		return
	}
	dir, err := os.MkdirTemp("", "vmprof-guest-")
	if err == nil {
		err = os.Chmod(dir, 0o755) // guests run as nobody
	}
	if err != nil {
		panic(err)
	}
	buildGuest = sync.OnceValues(func() (string, error) { return compileGuest(dir) })
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// A testGuest is a running testdata/guest.c.
type testGuest struct {
	*exec.Cmd
	out   *bufio.Reader
	truth graph
	state string // "armed" or "unarmed", at its end
}

// startGuest runs the guest as nobody, and returns when it has its page.
func startGuest(t testing.TB, socket string, args ...string) *testGuest {
	t.Helper()
	bin, err := buildGuest()
	if errors.Is(err, exec.ErrNotFound) && os.Getenv("CI") != "true" {
		t.Skip("needs a C compiler")
	}
	if err != nil {
		t.Fatal(err)
	}
	g := &testGuest{Cmd: exec.Command(bin, args...)}
	g.Env = []string{"VMPROF_SOCKET=" + socket}
	g.Stderr = os.Stderr
	g.SysProcAttr = &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: 65534, Gid: 65534}, Pdeathsig: syscall.SIGKILL,
	}
	out, err := g.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.out = bufio.NewReader(out)
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Process.Kill(); _ = g.Wait() })
	if line, err := g.out.ReadString('\n'); line != "ready\n" {
		t.Fatalf("guest said %q, %v", line, err)
	}
	return g
}

// finish reads what the process prints at its end.
func (g *testGuest) finish(t testing.TB) {
	t.Helper()
	all, err := io.ReadAll(g.out)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(all)) {
		line = strings.TrimSpace(line)
		var caller, site, callee int
		var n float64
		if _, err := fmt.Sscanf(line, "edge %d %d %d %g", &caller, &site, &callee, &n); err == nil {
			e := edge{Caller: "[native]", Callee: fmt.Sprintf("m%d", callee)}
			if caller != 0 {
				e.Caller, e.Site = fmt.Sprintf("m%d", caller), int32(100*caller+site)
			}
			g.truth.Add(e, n)
		} else {
			g.state = line
		}
	}
	if err := g.Wait(); err != nil || g.state == "" {
		t.Fatalf("guest ended with %v: %q", err, all)
	}
}

func tune(t testing.TB, s *stage, hz, stride, samples int) {
	t.Helper()
	if err := s.Tune(profile.Rate{Hz: hz, Burst: profile.Burst{Stride: stride, Samples: samples}}); err != nil {
		t.Fatal(err)
	}
}
