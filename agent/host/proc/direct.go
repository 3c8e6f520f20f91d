package proc

import (
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Direct reads a Memory on the goroutine that calls it. A Memory has each read done by a
// goroutine of the pool, as nothing can end a read that hangs, and waits for that with a timer:
// this costs more than the read. It is for goroutines that can be replaced: one whose read hangs is
// given up, and a new one takes its place.
//
// It only reads pages that were there some seconds ago, of a process that answered such reads
// before, while no read of any process hangs. All other reads are the Memory's. So a read hangs only if the
// process takes a page away at the right moment, or keeps its memory map locked. Deadlines,
// quarantine and counts are those of the pool.
//
// One goroutine uses it at a time.
type Direct struct {
	*Memory
	lost func() // makes another goroutine take the place of the one that reads
	on   bool
	last *call // the last one, to be used again
	seen seenPages
}

var _ vmruntime.Memory = (*Direct)(nil)

// NewDirect returns a Direct for a memory, which the caller closes. It reads as the Memory does
// until Set. When a read passes the deadline, lost is called on another goroutine, once; the read
// fails with ErrTimeout, whenever it returns.
func NewDirect(m *Memory, lost func()) *Direct { return &Direct{Memory: m, lost: lost} }

// Set says whether the goroutine that reads from now on can be replaced.
func (d *Direct) Set(on bool) { d.on = on }

// Read is Memory.Read.
func (d *Direct) Read(addr uint64, p []byte) error {
	r := [1]vmruntime.Range{{Addr: addr, Buf: p}}
	if err := d.ReadBatch(r[:]); err != nil {
		return err
	}
	if !r[0].OK {
		return d.unmapped(addr, len(p))
	}
	return nil
}

// ReadBatch is Memory.ReadBatch.
func (d *Direct) ReadBatch(ranges []vmruntime.Range) error {
	m := d.Memory
	if !d.on || m.pages == nil {
		return m.ReadBatch(ranges)
	}
	b, err := m.batch(ranges)
	if err != nil {
		return err
	}
	c := m.pool.begin(d)
	if c == nil {
		batches.Put(b)
		return m.ReadBatch(ranges)
	}
	d.seen.begin(c.began)
	err = m.readPresent(b, c, &d.seen)
	if m.pool.end(d, c, err) {
		return fmt.Errorf("process %d: %w (%v)", m.id.PID, ErrTimeout, c.terms.deadline)
	}
	return m.finish(b, ranges, err)
}

// begin begins a read of d. It is nil if the Memory is to read.
func (p *Pool) begin(d *Direct) *call {
	now, pid := time.Now(), d.id.PID
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.targets[pid]
	if t == nil || !t.answered[present] || p.stats.Stuck > 0 || t.refuses(now) {
		return nil
	}
	c := d.last
	if c == nil {
		c = &call{pool: p, pid: pid, kind: present}
		d.last = c
	}
	c.terms = terms{trust: proven, deadline: p.opt.Deadline, owner: t.owner}
	c.began, c.finished = now, false
	c.number++
	c.thread.Store(0)
	p.direct[d] = c
	if !p.watching {
		p.watching = true
		time.AfterFunc(p.opt.Deadline/checksPerDeadline, p.watch)
	}
	return c
}

// end ends a read of d, and reports whether it was given up before.
func (p *Pool) end(d *Direct, c *call, err error) (abandoned bool) {
	p.mu.Lock()
	delete(p.direct, d)
	abandoned = c.abandoned
	if !abandoned {
		c.finished = true
		p.stats.Calls++
	}
	p.mu.Unlock()
	if abandoned {
		c.finish(err)
		d.last = nil
	}
	return abandoned
}

// watch looks at the reads that are under way, and gives up those that passed the deadline. While
// there are any it comes back: each read would have to set a timer otherwise, and nearly all end
// before any does.
func (p *Pool) watch() {
	type look struct {
		d      *Direct
		c      *call
		number uint64
		began  time.Time
	}
	var looks []look
	p.mu.Lock()
	for d, c := range p.direct {
		if !c.abandoned {
			looks = append(looks, look{d, c, c.number, c.began})
		}
	}
	p.watching = len(looks) > 0
	p.mu.Unlock()
	pause := p.opt.Deadline / checksPerDeadline
	for _, l := range looks {
		clock := &l.c.clock
		if l.c.watched != l.number { // met for the first time
			l.c.watched, *clock = l.number, callClock{look: p.look, pause: pause}
			clock.begin(l.began)
		}
		if clock.check(int(l.c.thread.Load()), time.Now()) >= pause*checksPerDeadline && l.c.abandonRead(l.number) {
			l.d.lost()
		}
	}
	if len(looks) > 0 {
		time.AfterFunc(pause, p.watch)
	}
}
