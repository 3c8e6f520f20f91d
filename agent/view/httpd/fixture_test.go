package httpd

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"time"
	"unique"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// fake is a Source. Collect returns a shop window as soon as it is let.
type fake struct {
	hold   chan struct{}                   // if not nil, Collect waits until it is closed or its context ends
	window func(n uint64) *profile.Profile // what Collect returns; nil for busyShop

	mu     sync.Mutex
	calls  []call
	ended  []error // context error of each Collect when it returned
	stats  profile.Stats
	noTime bool // where time goes is not sampled
}

type call struct {
	d    time.Duration
	pids []int
}

// missingPID does not exist.
const missingPID = 4242

func (f *fake) Collect(ctx context.Context, d time.Duration, pids []int) (*profile.Profile, error) {
	f.mu.Lock()
	f.calls = append(f.calls, call{d, pids})
	f.mu.Unlock()
	for _, pid := range pids {
		if pid == missingPID {
			return nil, fmt.Errorf("pid %d: %w", pid, ErrNoProcess)
		}
	}
	if f.hold != nil {
		select {
		case <-f.hold:
		case <-ctx.Done():
		}
	}
	f.mu.Lock()
	f.ended = append(f.ended, ctx.Err())
	f.mu.Unlock()
	if f.window != nil {
		return f.window(0), nil
	}
	return busyShop(0), nil
}

func (f *fake) RequestFailed() {}

func (f *fake) Stats() profile.Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Time = !f.noTime
	return s
}

func (f *fake) called() []call {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]call(nil), f.calls...)
}

func newServer(t *testing.T, f *fake) *Server {
	t.Helper()
	reg := prometheus.NewRegistry()
	up := prometheus.NewGauge(prometheus.GaugeOpts{Name: "vmprof_up", Help: "Test."})
	reg.MustRegister(up)
	return New(f, reg, quiet())
}

func start(t *testing.T, f *fake) (*Server, *httptest.Server) {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", os.DevNull) // see New
	s := newServer(t, f)
	hs := httptest.NewServer(s.handler)
	t.Cleanup(hs.Close)
	return s, hs
}

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// shop is a window of a busy JVM beside a little of everything else; n varies the counts.
func shop(n uint64) *profile.Profile {
	jit := unique.Make(symbol.Mapping{File: "[jit:HotSpot]", Start: 0x7f0000000000, Limit: 0x7f0010000000})
	java := func(name, file string, line int, inlined bool) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, SystemName: name + "()V", File: file, Line: line,
			Kind: symbol.KindJIT, Inlined: inlined, Mapping: jit, Address: 0x7f0000000000 + uint64(line)})
	}
	native := func(name, lib string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindNative,
			Mapping: unique.Make(symbol.Mapping{File: lib, BuildID: "abcdef0123", Start: 0x7e0000000000,
				Limit: 0x7e0000100000}), Address: 0x7e0000000000 + uint64(len(name))})
	}
	kernel := func(name string) symbol.Symbol {
		return symbol.Intern(symbol.Frame{Function: name, SystemName: name, Kind: symbol.KindKernel,
			Mapping: unique.Make(symbol.Mapping{File: "[kernel]"})})
	}
	type stack = []symbol.Symbol
	var (
		libjvm = "/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so"
		base   = stack{java("com.acme.shop.Server.handle", "Server.java", 88, false),
			java("java.util.concurrent.ThreadPoolExecutor.runWorker", "ThreadPoolExecutor.java", 1136, false),
			java("java.lang.Thread.run", "Thread.java", 840, false), native("thread_native_entry(Thread*)", libjvm),
			native("start_thread", "/lib/x86_64-linux-gnu/libc.so.6")}
		over    = func(s stack, frames ...symbol.Symbol) stack { return append(append(stack{}, frames...), s...) }
		cart    = over(base, java("com.acme.shop.Cart.total", "Cart.java", 42, false))
		search  = over(base, java("com.acme.shop.Catalog.search", "Catalog.java", 120, false))
		workers [4]*profile.Thread
		r       = rand.New(rand.NewPCG(1, n))
	)
	for i := range workers {
		var tree cct.Tree[symbol.Symbol]
		for _, s := range []struct {
			stack  stack
			weight uint64
		}{
			{over(cart, java("java.util.HashMap.getNode", "HashMap.java", 572, true),
				java("java.util.HashMap.get", "HashMap.java", 557, true)), 90},
			{over(cart, java("java.math.BigDecimal.add", "BigDecimal.java", 1307, false)), 55},
			{over(cart, java("java.math.BigInteger.add", "BigInteger.java", 1400, true),
				java("java.math.BigDecimal.add", "BigDecimal.java", 1310, false)), 25},
			{cart, 18},
			{over(search, java("java.lang.String.indexOf", "String.java", 1700, false)), 60},
			{over(search, java("java.util.regex.Pattern$BmpCharProperty.match", "Pattern.java", 3974, false),
				java("java.util.regex.Matcher.find", "Matcher.java", 700, false)), 44},
			{over(search, java("com.acme.shop.Catalog.lambda$search$0", "Catalog.java", 125, true),
				java("java.util.stream.ReferencePipeline$3$1.accept", "ReferencePipeline.java", 197, false)), 30},
			{over(base, kernel("tcp_sendmsg"), kernel("do_syscall_64"),
				native("__send", "/lib/x86_64-linux-gnu/libc.so.6"),
				java("sun.nio.ch.SocketChannelImpl.write", "SocketChannelImpl.java", 520, false)), 22},
		} {
			tree.Add(s.stack, s.weight+r.Uint64N(10))
		}
		workers[i] = &profile.Thread{TID: 1010 + i, Name: fmt.Sprint("http-", i), Tree: &tree}
	}
	one := func(weight uint64, frames ...symbol.Symbol) *cct.Tree[symbol.Symbol] {
		var tree cct.Tree[symbol.Symbol]
		tree.Add(frames, weight)
		return &tree
	}
	called := new(profile.Graph)
	called.Add(profile.Edge{Caller: base[0], Callee: base[1], Site: profile.Site{Line: 90, Offset: 7}}, 12)
	gc := &profile.Thread{TID: 1002, Name: "G1 Conc#0", Tree: one(70,
		native("G1CMTask::do_marking_step(double, bool, bool)", libjvm), native("WorkerThread::run()", libjvm),
		native("thread_native_entry(Thread*)", libjvm), native("start_thread", "/lib/x86_64-linux-gnu/libc.so.6"))}
	return &profile.Profile{
		Start:    time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC).Add(time.Duration(n) * 10 * time.Second),
		Duration: 10 * time.Second, Period: time.Second / 99, Event: "cpu-clock",
		Processes: []*profile.Process{
			{PID: 1000, Comm: "java", Runtime: "hotspot", VM: "OpenJDK 64-Bit Server VM 17.0.15+6",
				Service:    "shop.service",
				Executable: symbol.Mapping{File: "/usr/lib/jvm/java-17-openjdk-amd64/bin/java"},
				Threads:    append(workers[:], gc), Calls: []*profile.Calls{{Engine: "page", Graph: called}}},
			{PID: 2000, Comm: "postgres", Service: "postgresql.service", Threads: []*profile.Thread{
				{TID: 2000, Name: "postgres", Tree: one(130, native("ExecScan", "/usr/lib/postgresql/15/bin/postgres"),
					native("PostgresMain", "/usr/lib/postgresql/15/bin/postgres"),
					native("main", "/usr/lib/postgresql/15/bin/postgres"))}}},
			{PID: 3000, Comm: hostile, Service: hostile, Threads: []*profile.Thread{
				{TID: 3000, Name: hostile, Tree: one(40, native(hostile, hostile))}}},
		},
		Counts: profile.Counts{Attempted: 1600, Delivered: 1600, Folded: 1600},
	}
}

// hostile is a name that would break out of HTML, scripts, headers and paths.
const hostile = "</script><script>alert(1)</script>\"'`\r\nX-Evil: 1\x00../../etc/passwd\xff${alert(2)}"
