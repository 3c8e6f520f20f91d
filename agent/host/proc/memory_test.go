package proc

import (
	"bytes"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

func openMemory(t *testing.T, pid int, pool *Pool) *Memory {
	t.Helper()
	id, err := Root("").Identify(pid)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenMemory("", id, pool)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return m
}

func TestMemoryRead(t *testing.T) {
	c := startChild(t, "hold")
	m := openMemory(t, c.pid, NewPool(PoolOptions{}))
	got := make([]byte, len(secret))
	if err := m.Read(c.addr, got); err != nil || string(got) != secret {
		t.Errorf("Read = %q, %v; want %q", got, err, secret)
	}
	copy(got, "untouched")
	if err := m.Read(16, got); !errors.Is(err, ErrUnmapped) {
		t.Errorf("Read of an unmapped address = %v, want %v", err, ErrUnmapped)
	}
	if !bytes.HasPrefix(got, []byte("untouched")) {
		t.Errorf("failed Read wrote %q", got)
	}
	if err := m.Read(c.addr, make([]byte, MaxRead+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("Read over the bound = %v, want %v", err, ErrTooLarge)
	}
	if err := m.ReadBatch(make([]vmruntime.Range, MaxRanges+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("ReadBatch over the bound = %v, want %v", err, ErrTooLarge)
	}
}

// TestMemoryReadBatch reads this process, of which it knows every byte.
func TestMemoryReadBatch(t *testing.T) {
	m := openMemory(t, os.Getpid(), NewPool(PoolOptions{}))
	src := mapPages(t, 6)[:8*3000]
	for i := range src {
		src[i] = byte(i * 7)
	}
	base := uint64(uintptr(unsafe.Pointer(&src[0])))
	bad := func(i int) bool { return i == 0 || i == 1 || i == 1023 || i == 1024 || i == 2999 || i%401 == 400 }
	empty := func(i int) bool { return i%100 == 50 }

	ranges := make([]vmruntime.Range, 3000)
	for i := range ranges {
		ranges[i] = vmruntime.Range{Addr: base + uint64(8*i), Buf: make([]byte, 8), OK: bad(i)}
		if bad(i) {
			ranges[i].Addr = []uint64{16, 1 << 63, 1<<64 - 4}[i%3]
		}
		if empty(i) {
			ranges[i].Buf = nil
		}
	}
	if err := m.ReadBatch(ranges); err != nil {
		t.Fatal(err)
	}
	for i, r := range ranges {
		if r.OK == (bad(i) && !empty(i)) {
			t.Errorf("range %d: OK = %v", i, r.OK)
		}
		want := src[8*i : 8*i+len(r.Buf)]
		if bad(i) {
			want = make([]byte, len(r.Buf))
		}
		if !bytes.Equal(r.Buf, want) {
			t.Errorf("range %d: read %v, want %v", i, r.Buf, want)
		}
	}
}

// TestMemoryShort reads a range whose second page is not mapped.
func TestMemoryShort(t *testing.T) {
	page := os.Getpagesize()
	mem := mapPages(t, 2)
	unmapPage(t, mem[page:])
	m := openMemory(t, os.Getpid(), NewPool(PoolOptions{}))
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	ranges := []vmruntime.Range{
		{Addr: base, Buf: make([]byte, 16)},
		{Addr: base + uint64(page) - 8, Buf: make([]byte, 16)},
		{Addr: base + 16, Buf: make([]byte, 16)},
	}
	if err := m.ReadBatch(ranges); err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{true, false, true} {
		if ranges[i].OK != want {
			t.Errorf("range %d: OK = %v, want %v", i, ranges[i].OK, want)
		}
	}
}

func TestMemoryOfAProcessThatEnded(t *testing.T) {
	c := startChild(t, "hold")
	m := openMemory(t, c.pid, NewPool(PoolOptions{}))
	c.kill()
	if err := m.Read(c.addr, make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("Read = %v, want %v", err, ErrGone)
	}
	if _, err := OpenMemory("", m.id, m.pool); !errors.Is(err, ErrGone) {
		t.Errorf("OpenMemory = %v, want %v", err, ErrGone)
	}
}

func TestMemoryAfterExec(t *testing.T) {
	c := startChild(t, "hold")
	m := openMemory(t, c.pid, NewPool(PoolOptions{}))
	c.stdin.Write([]byte("\n"))
	c.readAddr(t)
	// The address is good in the new program, and the pid is still the same process's.
	if err := m.Read(c.addr, make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("Read with the memory of the old program = %v, want %v", err, ErrGone)
	}
	again := openMemory(t, c.pid, m.pool)
	if err := again.Read(c.addr, make([]byte, 1)); err != nil {
		t.Errorf("Read with the memory of the new program = %v", err)
	}
}

func TestMemoryAfterPIDReuse(t *testing.T) {
	needs.Root(t, "reading other processes")
	old := startChild(t, "hold")
	m := openMemory(t, old.pid, NewPool(PoolOptions{}))
	old.kill()
	// Starts within the same tick cannot be told apart: see Identity.
	time.Sleep(2 * nsPerTick)
	for range 100 {
		// The kernel gives out the next pid above this one. Somebody else may be faster: try again.
		if err := os.WriteFile("/proc/sys/kernel/ns_last_pid", []byte(strconv.Itoa(old.pid-1)), 0); err != nil {
			t.Fatal(err)
		}
		c := startChild(t, "hold")
		if c.pid != old.pid {
			c.kill()
			continue
		}
		if err := m.Read(c.addr, make([]byte, 1)); !errors.Is(err, ErrGone) {
			t.Errorf("Read = %v, want %v", err, ErrGone)
		}
		if _, err := OpenMemory("", m.id, m.pool); !errors.Is(err, ErrGone) {
			t.Errorf("OpenMemory = %v, want %v", err, ErrGone)
		}
		return
	}
	t.Fatal("no process got the pid again")
}

func TestMemoryOfATargetThatHangs(t *testing.T) {
	needs.Root(t, "reading other processes")
	c := startChild(t, "hang")
	pool := NewPool(PoolOptions{Deadline: 500 * time.Millisecond, Backoff: time.Hour})
	m := openMemory(t, c.pid, pool)
	buf := make([]byte, 8)
	if err := m.Read(c.addr, buf); !errors.Is(err, ErrTimeout) {
		t.Fatalf("first Read = %v, want %v", err, ErrTimeout)
	}
	if err := m.Read(c.addr, buf); !errors.Is(err, ErrQuarantined) {
		t.Errorf("second Read = %v, want %v", err, ErrQuarantined)
	}
	m.Close() // must neither block nor disturb the call that is still under way

	other := startChild(t, "hold")
	got := make([]byte, len(secret))
	if err := openMemory(t, other.pid, pool).Read(other.addr, got); err != nil || string(got) != secret {
		t.Errorf("Read of another target = %q, %v", got, err)
	}
	if s := pool.Stats(); s.Abandoned != 1 || s.Stuck != 1 || s.Quarantined != 1 {
		t.Errorf("Stats = %+v, want one abandoned, stuck and quarantined", s)
	}
	c.kill()
	wait.For(t, wait.Long, "the call that hung returns", func() bool { return pool.Stats().Stuck == 0 })
}

// TestMemoryPresence: which reads can hang is known before anybody waits for one.
func TestMemoryPresence(t *testing.T) {
	needs.Root(t, "reading other processes")
	hanging, holding := startChild(t, "hang"), startChild(t, "hold")
	pool := NewPool(PoolOptions{FirstDeadline: 100 * time.Millisecond})
	m := openMemory(t, hanging.pid, pool)
	page := uint64(os.Getpagesize())
	buf := make([]byte, 8)
	check := func(of *Memory, addr uint64, want error) {
		t.Helper()
		if err := resident(of, []vmruntime.Range{{Addr: addr, Buf: buf}}, page); err != want {
			t.Errorf("page of %#x: %v, want %v", addr, err, want)
		}
	}
	check(m, hanging.addr, errAbsent)
	check(openMemory(t, holding.pid, pool), holding.addr, nil)
	check(m, 16, errAbsent)
	check(m, 1<<63, errAbsent)

	mem := mapPages(t, 3*pageRun)
	self := openMemory(t, os.Getpid(), pool)
	base := uint64(uintptr(unsafe.Pointer(&mem[0])))
	check(self, base, errAbsent)
	all := []vmruntime.Range{{Addr: base, Buf: make([]byte, len(mem))}}
	for i := 0; i < len(mem); i += int(page) {
		mem[i] = 1
	}
	if err := resident(self, all, page); err != nil {
		t.Errorf("all pages were written to: %v", err)
	}
	unmapPage(t, mem[2*pageRun*int(page):])
	if err := resident(self, all, page); err != errAbsent {
		t.Errorf("one page is not mapped: %v", err)
	}
}

// Pages that were in memory a moment ago are not looked up again, and no longer than that.
func TestSeenPages(t *testing.T) {
	var seen seenPages
	now := time.Now()
	seen.begin(now)
	if seen.has(0) || seen.has(7) {
		t.Error("pages that nobody saw")
	}
	seen.add(7)
	seen.add(7 + uint64(len(seen.pages)))
	seen.add(0)
	seen.begin(now.Add(seenFor))
	if seen.has(7) || !seen.has(7+uint64(len(seen.pages))) || !seen.has(0) {
		t.Error("the last page of those that share a place counts")
	}
	if seen.begin(now.Add(seenFor + 1)); seen.has(0) {
		t.Error("a page that was seen long ago")
	}

	self := openMemory(t, os.Getpid(), NewPool(PoolOptions{}))
	mem, page := mapPages(t, 2), uint64(os.Getpagesize())
	mem[0], mem[page] = 1, 1
	both := []vmruntime.Range{{Addr: uint64(uintptr(unsafe.Pointer(&mem[0]))), Buf: make([]byte, len(mem))}}
	check := func(seen *seenPages, want error) {
		t.Helper()
		if err := newBatch(both, 0).resident(self.pages, page, seen); err != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	seen = seenPages{}
	check(&seen, nil)
	unmapPage(t, mem[page:])
	check(&seen, nil)
	check(nil, errAbsent)
	check(&seenPages{}, errAbsent)
}

// resident reports what the pages of ranges are.
func resident(m *Memory, ranges []vmruntime.Range, page uint64) error {
	return newBatch(ranges, 0).resident(m.pages, page, nil)
}

func TestMemoryClosed(t *testing.T) {
	c := startChild(t, "hold")
	m := openMemory(t, c.pid, NewPool(PoolOptions{}))
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if err := m.Read(c.addr, make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("Read = %v, want %v", err, ErrGone)
	}
}

func BenchmarkMemoryRead(b *testing.B) {
	id, err := Root("").Identify(os.Getpid())
	if err != nil {
		b.Fatal(err)
	}
	m, err := OpenMemory("", id, NewPool(PoolOptions{}))
	if err != nil {
		b.Fatal(err)
	}
	defer m.Close()
	src, dst := mapPages(b, 1), make([]byte, 64)
	b.ReportAllocs()
	for b.Loop() {
		if err := m.Read(uint64(uintptr(unsafe.Pointer(&src[0]))), dst); err != nil {
			b.Fatal(err)
		}
	}
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(&b[0]))) }
