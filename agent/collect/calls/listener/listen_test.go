//go:build linux && amd64

package listener

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// What the guest below calls.
//
//go:nosplit
//go:noinline
func once() {}

//go:nosplit
//go:noinline
func twice() {}

//go:nosplit
//go:noinline
func never() {}

//go:nosplit
//go:noinline
func never2() {}

//go:nosplit
//go:noinline
func never3() {}

//go:noinline
func step() {
	once()
	twice()
	twice()
}

func entry(f func()) Entry { return Entry{Address: uint64(reflect.ValueOf(f).Pointer())} }

// selfGuest is this process as a guest, with that many threads that step continuously.
func selfGuest(t testing.TB, threads int) Guest {
	t.Helper()
	id, err := proc.DefaultRoot.Identify(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	mem, err := proc.OpenMemory(proc.DefaultRoot, id, proc.NewPool(proc.PoolOptions{}))
	if err != nil {
		t.Fatal(err)
	}
	g := Guest{Identity: id, Memory: mem, Threads: []int{}}
	var stop atomic.Bool
	var ended sync.WaitGroup
	for range threads {
		tid := make(chan int)
		ended.Add(1)
		go func() {
			defer ended.Done()
			runtime.LockOSThread() // and never unlocked: so the thread ends with the goroutine
			tid <- unix.Gettid()
			for !stop.Load() {
				step()
			}
		}()
		g.Threads = append(g.Threads, <-tid)
	}
	t.Cleanup(func() {
		stop.Store(true)
		ended.Wait()
		mem.Close()
	})
	return g
}

var usual = Window{Duration: 20 * time.Millisecond, MaxHits: 250}

func TestListen(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 1)
	r, err := b.Listen(t.Context(), g, []Entry{entry(once), entry(twice), entry(never)}, usual)
	if err != nil {
		t.Fatal(err)
	}
	// A window may begin and end in the middle of a step.
	if n, m := r.Count(0), r.Count(1); n < 5 || m < 2*n-2 || m > 2*n+2 || r.Count(2) != 0 {
		t.Errorf("%d, %d and %d calls: want one to two to none", n, m, r.Count(2))
	}
	if r.Threads != 1 || r.Busy+r.Gone+r.Left != 0 || r.Ran <= 0 || r.Length <= 0 {
		t.Errorf("%+v", r)
	}
	if sites := r.Sites(); len(sites) != 3 {
		t.Errorf("%d call sites, want 3: %v", len(sites), sites)
	}
	for i, h := range r.Hits {
		f := runtime.FuncForPC(uintptr(h.Caller.PC()))
		if h.Thread != g.Threads[0] || h.Callee.Kind() != bpf.FrameNative || !strings.HasSuffix(f.Name(), ".step") {
			t.Errorf("hit %d is %+v of %s", i, h, f.Name())
			break
		}
	}
	if c := b.Cost(); c.Hits < uint64(len(r.Hits)) || c.HitTime < 100*time.Nanosecond || c.Arming <= 0 {
		t.Errorf("cost %+v for %d hits", c, len(r.Hits))
	}
}

// The last permitted hit ends a window, whichever thread it comes from.
func TestListenUntilFull(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 2)
	r, err := b.Listen(t.Context(), g, []Entry{entry(once)}, Window{Duration: MaxDuration, MaxHits: 10})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Capped || len(r.Hits) != 10 || r.Length >= MaxDuration {
		t.Errorf("capped %v after %d hits in %v", r.Capped, len(r.Hits), r.Length)
	}
	if r.Late > 2*10 {
		t.Errorf("%d hits of two threads beyond the limit of 10 each", r.Late)
	}
	r, err = b.Listen(t.Context(), g, []Entry{entry(never)}, usual)
	if err != nil || r.Capped || len(r.Hits) != 0 || r.Length < usual.Duration {
		t.Errorf("nothing to observe: %+v, %v", r, err)
	}
}

func TestListenDelivers(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 1)
	w := usual
	w.Deliver = true
	before, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.Listen(t.Context(), g, []Entry{entry(once)}, w)
	if err != nil {
		t.Fatal(err)
	}
	after, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	for c, want := range map[bpf.Counter]int{
		bpf.CallsAttempted: len(r.Hits), bpf.CallsDelivered: len(r.Hits), bpf.CallHits: len(r.Hits) + r.Late,
	} {
		if got := after[c] - before[c]; got != uint64(want) {
			t.Errorf("%v grew by %d, want %d", c, got, want)
		}
	}
}

// If the agent hangs, a window ends by itself: the kernel side counts hits against the limit.
func TestListenerHangs(t *testing.T) {
	b := newBench(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	bp, err := breakpoint.NewSet(b.objects.ListenerBreakpoint, []uint64{entry(once).Address}, []int{unix.Gettid()},
		6)
	if err != nil {
		t.Fatal(err)
	}
	defer bp.Close()
	before, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if err := bp.Arm(); err != nil {
		t.Fatal(err)
	}
	for range 1000 {
		once()
	}
	after, err := b.agent.ReadCounts()
	if err != nil {
		t.Fatal(err)
	}
	if hits := after[bpf.CallHits] - before[bpf.CallHits]; hits < 6 || hits > 7 { // some kernels count one too many
		t.Errorf("%d hits beyond any window, want the limit of 6", hits)
	}
}

// Windows of one process wait for each other, and those of several goroutines do not mix.
func TestListenInTurn(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 1)
	var all sync.WaitGroup
	for i, f := range []func(){once, twice, never} {
		all.Go(func() {
			for range 5 {
				w := Window{Duration: MaxDuration, MaxHits: 5}
				if i == 2 {
					w.Duration = time.Millisecond
				}
				r, err := b.Listen(t.Context(), g, []Entry{entry(f)}, w)
				if err != nil || (r.Count(0) > 0) != (i < 2) {
					t.Errorf("window %d: %d hits, %v", i, r.Count(0), err)
				}
			}
		})
	}
	all.Wait()
	if n, m := b.watcher.Watches(), b.observer.Watches(); n != 0 || m != 0 {
		t.Errorf("left behind: %d and %d", n, m)
	}
}

// nothingArmed checks that all four debug registers of the guest's threads are free, and no window
// is open.
func nothingArmed(t *testing.T, b *bench, g Guest) {
	t.Helper()
	three := []uint64{entry(once).Address, entry(twice).Address, entry(never).Address}
	for _, addresses := range [][]uint64{three, {entry(step).Address}} {
		bp, err := breakpoint.NewSet(b.objects.ListenerBreakpoint, addresses, g.Threads, 1)
		if err != nil {
			t.Fatalf("set breakpoints: %v", err)
		}
		defer bp.Close()
		if bp.Threads() != len(g.Threads) {
			t.Errorf("%d of %d threads have free debug registers", bp.Threads(), len(g.Threads))
		}
	}
	if err := b.objects.ListenerWatches.Lookup(uint32(g.PID), &bpf.CallWatch{}); err == nil {
		t.Error("a window is open")
	}
}

func TestListenIsCancelled(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 2)
	ctx, cancel := context.WithCancel(t.Context())
	received := make(chan error, 1)
	go func() {
		_, err := b.Listen(ctx, g, []Entry{entry(never), entry(once), entry(twice)},
			Window{Duration: MaxDuration, MaxHits: MaxHits})
		received <- err
	}()
	// Until the window is open, or has been: it may reach its limit between two checks.
	for ended := false; !ended && b.objects.ListenerWatches.Lookup(uint32(g.PID), &bpf.CallWatch{}) != nil; {
		ended = len(received) > 0
		runtime.Gosched()
	}
	waiting := make(chan error, 1)
	go func() { // waits until the first window has ended
		_, err := b.Listen(ctx, g, []Entry{entry(never)}, Window{Duration: MaxDuration, MaxHits: MaxHits})
		waiting <- err
	}()
	cancel()
	if err := <-received; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	nothingArmed(t, b, g)
}

// A guest whose callbacks fail or panic leaves no breakpoint armed either.
func TestListenPanics(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 1)
	asked := 0
	g.Current = func(Entry) bool {
		if asked++; asked == 2 {
			panic("after the window")
		}
		return true
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = b.Listen(t.Context(), g, []Entry{entry(once)}, usual)
	}()
	nothingArmed(t, b, g)
	g.Current = nil
	if _, err := b.Listen(t.Context(), g, []Entry{entry(once)}, usual); err != nil {
		t.Errorf("the next window: %v", err)
	}
}

// A memory in which code changes from one read to the next.
type changing struct {
	looks int
	at    func(look int, addr uint64) []byte
}

func (m *changing) Read(addr uint64, p []byte) error { return errors.New("not asked") }

func (m *changing) ReadBatch(ranges []vmruntime.Range) error {
	m.looks++
	for i := range ranges {
		code := m.at(m.looks, ranges[i].Addr)
		ranges[i].OK = code != nil
		copy(ranges[i].Buf, code)
	}
	return nil
}

func TestListenVoid(t *testing.T) {
	b := newBench(t)
	entries := []Entry{entry(once), entry(twice)}
	push, jump := []byte{0x55, 0x48}, []byte{0xe9, 1, 2, 3, 4}
	for _, c := range []struct {
		name    string
		at      func(look int, addr uint64) []byte
		current func(Entry) bool
		want    error
	}{
		{"nothing changes", func(int, uint64) []byte { return push }, func(Entry) bool { return true }, nil},
		{"a jump", func(_ int, addr uint64) []byte {
			if addr == entries[1].Address {
				return jump
			}
			return push
		}, nil, ErrJump},
		{"becomes a jump", func(look int, _ uint64) []byte { return [][]byte{push, jump}[look-1] }, nil,
			watch.ErrChanged},
		{"a barrier behind the first instruction", func(look int,
			_ uint64) []byte {
			return append(make([]byte, 40), byte(look))
		}, nil, watch.ErrChanged},
		{"is gone", func(look int, _ uint64) []byte { return [][]byte{push, nil}[look-1] }, nil, watch.ErrChanged},
		{"was gone", func(int, uint64) []byte { return nil }, nil, watch.ErrChanged},
		{"not entered any more", func(int, uint64) []byte { return push },
			func(e Entry) bool { return e != entries[1] }, watch.ErrChanged},
	} {
		g := selfGuest(t, 1)
		g.Memory, g.Current = &changing{at: c.at}, c.current
		r, err := b.Listen(t.Context(), g, entries, Window{Duration: 500 * time.Millisecond, MaxHits: 50})
		if !errors.Is(err, c.want) || c.want == nil && len(r.Hits) == 0 || c.want != nil && len(r.Hits) > 0 {
			t.Errorf("%s: %d hits, %v", c.name, len(r.Hits), err)
		}
	}
}

// The hits themselves show that another version has replaced the intended one.
func TestSnapshotVersions(t *testing.T) {
	jit := func(version uint64) bpf.Frame { return bpf.Frame(uint64(bpf.FrameJIT)<<60 | version<<32) }
	for _, c := range []struct {
		name    string
		version uint32
		callee  bpf.Frame
		ok      bool
	}{
		{"the same", 7, jit(7), true},
		{"another", 7, jit(8), false},
		{"none", 7, bpf.Frame(uint64(bpf.FrameStub) << 60), false},
		{"of a VM that the kernel side does not know", 7, bpf.Frame(uint64(bpf.FrameNative) << 60), true},
		{"not asked for", 0, jit(8), true},
	} {
		g := Guest{Memory: &changing{at: func(int, uint64) []byte { return []byte{0x55} }}}
		s, err := snap(&g, []Entry{{Address: 1, Version: c.version}})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.check([]Hit{{Callee: c.callee}}); errors.Is(err, watch.ErrChanged) == c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestIsJump(t *testing.T) {
	for name, c := range map[string]struct {
		code []byte
		want bool
	}{
		"jmp rel32":        {[]byte{0xe9, 0, 0, 0, 0}, true},
		"jmp rel8":         {[]byte{0xeb, 0}, true},
		"jmp [rip + d]":    {[]byte{0xff, 0x25, 0, 0, 0, 0}, true},
		"jmp rax":          {[]byte{0xff, 0xe0}, true},
		"call [rip + d]":   {[]byte{0xff, 0x15, 0, 0, 0, 0}, false},
		"call rel32":       {[]byte{0xe8, 0, 0, 0, 0}, false},
		"push [rax]":       {[]byte{0xff, 0x30}, false},
		"mov [rsp-M], eax": {[]byte{0x89, 0x84, 0x24, 0, 0xc0, 0xfe, 0xff}, false},
		"sub rsp, N":       {[]byte{0x48, 0x81, 0xec}, false},
		"push rbp":         {[]byte{0x55, 0}, false},
	} {
		if got := isJump(c.code); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

const listeningChild = "VMPROF_LISTENER_TEST_CHILD"

// TestListeningChild is not a test but the child process of the test below: an agent that watches
// its parent until it is killed.
func TestListeningChild(t *testing.T) {
	pid, tid, ok := strings.Cut(os.Getenv(listeningChild), " ")
	if !ok {
		return
	}
	b := newBench(t)
	number := func(s string) int {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	id, err := proc.DefaultRoot.Identify(number(pid))
	if err != nil {
		t.Fatal(err)
	}
	mem, err := proc.OpenMemory(proc.DefaultRoot, id, b.pool)
	if err != nil {
		t.Fatal(err)
	}
	g := Guest{Identity: id, Memory: mem, Threads: []int{number(tid)}}
	os.Stdout.WriteString("listening\n")
	for { // the parent is the same program: its functions are at the same addresses
		_, err := b.Listen(t.Context(), g, []Entry{entry(never), entry(never2), entry(never3)},
			Window{Duration: MaxDuration, MaxHits: MaxHits})
		if err != nil && !errors.Is(err, breakpoint.ErrBusy) { // the parent tests its registers
			t.Fatal(err)
		}
	}
}

// An agent that is killed in the middle of a window leaves no breakpoint in the process.
func TestListenerIsKilled(t *testing.T) {
	b := newBench(t)
	g := selfGuest(t, 1)
	agent := exec.Command("/proc/self/exe", "-test.run=^TestListeningChild$")
	agent.Env = append(os.Environ(), listeningChild+"="+strconv.Itoa(g.PID)+" "+strconv.Itoa(g.Threads[0]))
	stdout, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	stands := false
	for attempt := 0; err == nil && !stands && attempt < 2000; attempt++ {
		_, busy := b.Listen(t.Context(), g, []Entry{entry(never), entry(never2)},
			Window{Duration: time.Millisecond, MaxHits: 5})
		stands = errors.Is(busy, breakpoint.ErrBusy)
	}
	_ = agent.Process.Kill()
	_ = agent.Wait()
	if err != nil || !stands {
		t.Fatalf("the child said %q, %v; its breakpoints stood: %v", line, err, stands)
	}
	nothingArmed(t, b, g)
}

// BenchmarkListen measures a window without hits, in addition to its own length of 0.1 ms.
func BenchmarkListen(b *testing.B) {
	bench := newBench(b)
	for _, threads := range []int{1, 8} {
		b.Run(strconv.Itoa(threads)+" threads", func(b *testing.B) {
			g := selfGuest(b, 0)
			var stop sync.WaitGroup
			end := make(chan struct{})
			for range threads { // threads sleep: the benchmark measures the agent
				tid := make(chan int)
				stop.Go(func() {
					runtime.LockOSThread()
					tid <- unix.Gettid()
					<-end
				})
				g.Threads = append(g.Threads, <-tid)
			}
			defer func() { close(end); stop.Wait() }()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begin := proc.OwnThreadTime()
			for b.Loop() {
				if _, err := bench.Listen(b.Context(), g, []Entry{entry(never), entry(never2), entry(never3)},
					Window{Duration: 100 * time.Microsecond, MaxHits: 10}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(proc.OwnThreadTime()-begin)/float64(b.N), "cpu-ns/op")
		})
	}
	b.Logf("a hit takes %v, %v of it the trap", bench.HitTime(), bench.observer.TrapTime())
}
