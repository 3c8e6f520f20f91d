package proc

import (
	"bytes"
	"errors"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/wait"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// directOf returns a Direct of a process that answered a read before, and how often its goroutine
// was given up.
func directOf(t *testing.T, p *Pool, pid int) (*Direct, *atomic.Int32) {
	t.Helper()
	if err := p.do(t.Context(), pid, present, func(*call) error { return nil }); err != nil {
		t.Fatal(err)
	}
	var lost atomic.Int32
	d := NewDirect(&Memory{id: Identity{PID: pid}, pool: p}, func() { lost.Add(1) })
	d.Set(true)
	return d, &lost
}

// TestDirectHangs: a read that hangs is given up after the deadline, once. Its process is left
// alone, and others are not.
func TestDirectHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := timedPool(PoolOptions{Backoff: 10 * time.Second, Owner: owners})
		d, lost := directOf(t, p, target1)
		for range 100 { // quick ones are nobody's concern
			if c := p.begin(d); c == nil || p.end(d, c, nil) {
				t.Fatal("a quick read was given up")
			}
			time.Sleep(50 * time.Millisecond)
		}
		start := time.Now()
		c := p.begin(d)
		time.Sleep(1900 * time.Millisecond)
		if lost.Load() != 0 {
			t.Error("given up early")
		}
		time.Sleep(600 * time.Millisecond)
		if lost.Load() != 1 {
			t.Fatalf("given up %d times after %v, want once", lost.Load(), time.Since(start))
		}
		if s := p.Stats(); s.Abandoned != 1 || s.Stuck != 1 || s.Quarantined != 1 {
			t.Errorf("Stats = %+v, want one abandoned, stuck and quarantined", s)
		}
		if err := p.Do(t.Context(), target1, works); !errors.Is(err, ErrQuarantined) {
			t.Errorf("the process: %v, want %v", err, ErrQuarantined)
		}
		if err := p.Do(t.Context(), target2, works); err != nil {
			t.Errorf("another process: %v", err)
		}
		other, _ := directOf(t, p, 5001)
		if p.begin(other) != nil {
			t.Error("while a read hangs, another one is direct")
		}
		time.Sleep(time.Minute)
		if lost.Load() != 1 {
			t.Errorf("given up %d times", lost.Load())
		}
		if !p.end(d, c, nil) {
			t.Error("the read does not know that it was given up")
		}
		if s := p.Stats(); s.Stuck != 0 {
			t.Errorf("Stats = %+v after it returned", s)
		}
		if p.begin(d) != nil {
			t.Error("a process that hung is read directly")
		}
		if c := p.begin(other); c == nil || p.end(other, c, nil) {
			t.Error("another process is not")
		}
		time.Sleep(time.Second)
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watching || len(p.direct) != 0 {
			t.Errorf("a timer runs, %d reads are under way", len(p.direct))
		}
	})
}

// TestDirectFirst: a process that has not answered yet is read by the pool.
func TestDirectFirst(t *testing.T) {
	p := timedPool(PoolOptions{})
	d := NewDirect(&Memory{id: Identity{PID: target1}, pool: p}, func() {})
	d.Set(true)
	if p.begin(d) != nil {
		t.Error("its first read is direct")
	}
}

// TestDirectRead: it reads what the Memory reads, and what is not there as the Memory does.
func TestDirectRead(t *testing.T) {
	c := startChild(t, "hold")
	m := openMemory(t, c.pid, NewPool(PoolOptions{}))
	d := NewDirect(m, func() { t.Error("the goroutine was given up") })
	for _, on := range []bool{false, true, true} {
		d.Set(on)
		got := make([]byte, len(secret))
		if err := d.Read(c.addr, got); err != nil || string(got) != secret {
			t.Errorf("Read = %q, %v; want %q", got, err, secret)
		}
		copy(got, "untouched")
		if err := d.Read(16, got); !errors.Is(err, ErrUnmapped) || !bytes.HasPrefix(got, []byte("untouched")) {
			t.Errorf("Read of an unmapped address = %q, %v", got, err)
		}
		ranges := []vmruntime.Range{{Addr: 16, Buf: make([]byte, 4)}, {Addr: c.addr, Buf: make([]byte, 4)}}
		if err := d.ReadBatch(ranges); err != nil || ranges[0].OK || !ranges[1].OK ||
			string(ranges[1].Buf) != secret[:4] {
			t.Errorf("ReadBatch = %+v, %v", ranges, err)
		}
		if err := d.ReadBatch(make([]vmruntime.Range, MaxRanges+1)); !errors.Is(err, ErrTooLarge) {
			t.Errorf("ReadBatch over the bound = %v", err)
		}
	}
	c.kill()
	if err := d.Read(c.addr, make([]byte, 1)); !errors.Is(err, ErrGone) {
		t.Errorf("Read of a process that ended = %v, want %v", err, ErrGone)
	}
}

// TestDirectAbsent: pages that somebody has to supply are read by the pool, which gives them up if
// nobody does.
func TestDirectAbsent(t *testing.T) {
	needs.Root(t, "reading other processes")
	c := startChild(t, "hang")
	pool := NewPool(PoolOptions{Deadline: 500 * time.Millisecond, FirstDeadline: 100 * time.Millisecond,
		Backoff: time.Hour})
	m := openMemory(t, c.pid, pool)
	if err := pool.do(t.Context(), c.pid, present, func(*call) error { return nil }); err != nil {
		t.Fatal(err)
	}
	d := NewDirect(m, func() { t.Error("the goroutine was given up") })
	d.Set(true)
	if err := d.Read(c.addr, make([]byte, 8)); !errors.Is(err, ErrTimeout) {
		t.Errorf("Read = %v, want %v", err, ErrTimeout)
	}
	if err := d.Read(c.addr, make([]byte, 8)); !errors.Is(err, ErrQuarantined) {
		t.Errorf("second Read = %v, want %v", err, ErrQuarantined)
	}
	c.kill()
	wait.For(t, wait.Long, "the call that hung returns", func() bool { return pool.Stats().Stuck == 0 })
}

func BenchmarkDirectRead(b *testing.B) {
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
	copy(src, "present")
	d := NewDirect(m, func() { b.Error("the goroutine was given up") })
	if err := d.Read(addressOf(src), dst); err != nil {
		b.Fatal(err)
	}
	d.Set(true)
	b.ReportAllocs()
	for b.Loop() {
		if err := d.Read(addressOf(src), dst); err != nil {
			b.Fatal(err)
		}
	}
}
