package page

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/timing"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// TimerOptions configure a Timer.
type TimerOptions struct {
	Socket string             // path at which guests connect
	Wanted func(pid int) bool // whether a process is audited; nil: all are. Called from several goroutines
	Method func(string) bool  // whether a method of that name is audited. Called from several goroutines
	Loops  bool               // also time iterations
	Proc   proc.Root          // where procfs is
	Log    *slog.Logger       // nil means none
}

// Bounds of a Timer.
const (
	drainEvery = 20 * time.Millisecond // a ring of 4096 then holds 200,000 timings a second
	takeAtMost = 1 << 16               // timings at a time, about: the others stay in their rings
	maxNames   = 4096                  // names of versions of a guest
	maxOfName  = 64                    // versions, and loops, of a method of a guest
)

// A Timer is an engine for timings of processes that include vmprof.h. A process gets memory with a
// ring of timings for each of its threads, and a table of the audited methods. Everything in that
// memory is untrusted, except what the timer writes and does not read back: an entry that cannot be
// a timing is counted and left out.
//
// The timer owns the socket, so no engine for calls can use the same socket at the same time.
type Timer struct {
	*host
	opt TimerOptions

	mu    sync.Mutex // guards what follows, and timed
	taken uint64
	lost  map[string]uint64 // lost timings of processes that have disconnected, by cause
	last  [2]float64        // Cost of the process that disconnected last, ns
}

var _ timing.Engine = (*Timer)(nil)

// A timed is a Timer's state for one process.
type timed struct {
	page    *os.File // empty: nothing samples calls
	memory  *memory
	pid     int
	methods map[uint32]*timedMethod
	names   map[[2]uint32]string // names of versions, by method and version
	cost    [calibrations]sampler
	lost    map[string]uint64
}

// A timedMethod is a method that is audited.
type timedMethod struct {
	name     string
	versions map[uint32]bool
	loops    map[uint32]bool
}

// Causes of lost timings, as shown to people.
const (
	causeFull      = "a thread's ring was full"
	causeDeep      = "nested too deeply, or in too many loops"
	causeAbandoned = "invocation left without a stop"
	causeUnmatched = "stop or loop of an invocation that began before the audit"
	causeUnslotted = "thread without a slot"
	causeBad       = "not a timing: the process's memory is damaged"
	causeUnknown   = "of a method that is not audited"
	causeVersions  = "more than 64 versions or loops of a method"
)

// NewTimer lets processes connect.
func NewTimer(opt TimerOptions) (*Timer, error) {
	t := &Timer{opt: opt, lost: map[string]uint64{}}
	t.host = newHost(opt.Log, opt.Proc, opt.Wanted, t)
	if err := t.listen(opt.Socket); err != nil {
		t.stop()
		return nil, err
	}
	return t, nil
}

// Close ends the connections of all guests. These stop taking timings.
func (t *Timer) Close() error { return t.close() }

// admit implements owner.
func (t *Timer) admit(g *guest) (page int, err error) {
	timed := &timed{pid: g.peer.id.PID, methods: map[uint32]*timedMethod{}, names: map[[2]uint32]string{},
		lost: map[string]uint64{}}
	t.mu.Lock()
	g.timed = timed
	t.mu.Unlock()
	fd, err := unix.MemfdCreate("vmprof-page", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return 0, fmt.Errorf("make page: %w", err)
	}
	timed.page = os.NewFile(uintptr(fd), "vmprof-page")
	if err := timed.page.Truncate(maxPage); err != nil {
		return 0, fmt.Errorf("make page: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS,
		unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL); err != nil {
		return 0, fmt.Errorf("make page: %w", err)
	}
	memory, err := newMemory(t.opt.Loops)
	t.mu.Lock()
	timed.memory = memory
	t.mu.Unlock()
	return fd, err
}

// welcomed implements owner: it offers the process the memory for timings. Older headers without
// timings ignore it.
func (t *Timer) welcomed(conn *net.UnixConn, g *guest) error {
	_, _, err := conn.WriteMsgUnix(timingsPacket(), unix.UnixRights(int(g.timed.memory.file.Fd())), nil)
	if err != nil {
		return fmt.Errorf("offer memory for timings: %w", err)
	}
	return nil
}

// registered implements owner.
func (t *Timer) registered(g *guest, message any) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch m := message.(type) {
	case *method:
		t.register(g, m)
	case *named:
		key := [2]uint32{m.method, m.version}
		if _, known := g.timed.names[key]; known || len(g.timed.names) < maxNames {
			g.timed.names[key] = symbol.CleanName(string(m.name))
		}
	}
	return true
}

// register starts the audit of a method, if it was selected.
func (t *Timer) register(g *guest, m *method) {
	timed := g.timed
	name := symbol.CleanName(string(m.name))
	if timed.methods[m.id] != nil || len(timed.methods) >= maxAudited || t.opt.Method == nil || !t.opt.Method(name) {
		return
	}
	for _, other := range timed.methods {
		if other.name == name {
			name = fmt.Sprintf("%s (method %d)", name, m.id)
			break
		}
	}
	timed.methods[m.id] = &timedMethod{name: name, versions: map[uint32]bool{}, loops: map[uint32]bool{}}
	if err := timed.memory.audit(slices.Collect(maps.Keys(timed.methods))); err != nil {
		t.log.Warn("cannot tell a VM which methods are audited", "pid", timed.pid, "err", err)
	}
}

// release implements owner.
func (t *Timer) release(g *guest) {
	t.mu.Lock()
	defer t.mu.Unlock()
	timed := g.timed
	if timed.page != nil {
		timed.page.Close()
	}
	if timed.memory == nil {
		return
	}
	for cause, n := range timed.losses() {
		t.lost[cause] += n
	}
	if cost, within := timed.cost[wholeTiming].get(); cost > 0 {
		t.last = [2]float64{cost, within}
	}
	timed.memory.file.Close()
	timed.memory = nil
}

// losses returns the number of lost timings of a process, by cause.
func (t *timed) losses() map[string]uint64 {
	lost := maps.Clone(t.lost)
	for i := range t.memory.ring {
		r := &t.memory.ring[i]
		for c, cause := range [lostByGuest]string{causeFull, causeDeep, causeAbandoned, causeUnmatched} {
			lost[cause] += r.lost[c]
		}
		lost[causeBad] += r.bad
	}
	lost[causeUnslotted] += uint64(t.memory.word(unslottedAt))
	return lost
}

// Take implements timing.Engine. Timings of one thread are in order.
func (t *Timer) Take(ctx context.Context, list []timing.Timing) ([]timing.Timing, error) {
	tick := time.NewTicker(drainEvery)
	defer tick.Stop()
	for before := len(list); ; {
		var err error
		if list, err = t.drain(list); len(list) > before || err != nil {
			return list, err
		}
		select {
		case <-ctx.Done():
			return list, ctx.Err()
		case <-t.ctx.Done():
			return list, net.ErrClosed
		case <-tick.C:
		}
	}
}

// drain reads the rings of all processes.
func (t *Timer) drain(list []timing.Timing) ([]timing.Timing, error) {
	var guests []*guest
	t.table.each(func(g *guest) { guests = append(guests, g) })
	slices.SortFunc(guests, func(a, b *guest) int { return cmp.Compare(a.serial, b.serial) })
	t.mu.Lock()
	defer t.mu.Unlock()
	var errs []error
	before := len(list)
	for _, g := range guests {
		timed := g.timed
		if timed == nil || timed.memory == nil { // it is connecting or disconnecting
			continue
		}
		errs = append(errs, timed.memory.drain(takeAtMost/len(guests), func(e *entry) {
			if one, ok := timed.timing(e); ok {
				list = append(list, one)
			}
		}))
	}
	t.taken += uint64(len(list) - before)
	return list, errors.Join(errs...)
}

// timing converts an entry to a timing. It returns false for calibrations, and for entries that are
// counted as lost.
func (t *timed) timing(e *entry) (timing.Timing, bool) {
	if e.method == 0 {
		if e.loop < calibrations {
			t.cost[e.loop].add(e.duration)
		}
		return timing.Timing{}, false
	}
	m := t.methods[e.method]
	if m == nil {
		t.lost[causeUnknown]++
		return timing.Timing{}, false
	}
	if !admitted(m.versions, e.version) || e.loop != 0 && !admitted(m.loops, e.loop) {
		t.lost[causeVersions]++
		return timing.Timing{}, false
	}
	kind := emptyInvocation
	if e.loop != 0 {
		kind = emptyIteration
	}
	empty, _ := t.cost[kind].get()
	invocation, _ := t.cost[wholeTiming].get()
	iteration, _ := t.cost[emptyIteration].get()
	inner := float64(e.timers)*invocation + float64(e.points)*iteration
	return timing.Timing{
		Region:   timing.Region{Method: m.name, Loop: e.loop},
		Version:  timing.Version{PID: t.pid, ID: uint64(e.version), Name: t.names[[2]uint32{e.method, e.version}]},
		Thread:   int(e.thread & math.MaxInt32),
		Duration: time.Duration(math.Round(float64(e.duration) - empty - inner)),
		Part:     time.Duration(math.Round(float64(e.part) - empty)),
		Runs:     e.runs,
	}, true
}

// admitted reports whether a number is one of a bounded set, adding it if there is room.
func admitted(set map[uint32]bool, n uint32) bool {
	if !set[n] && len(set) >= maxOfName {
		return false
	}
	set[n] = true
	return true
}

// Cost implements timing.Engine: the cost of timing one invocation, in the process where it is
// highest. The processes measure it themselves, eight times in 1024 timings; it is 0 before the
// first measurement.
func (t *Timer) Cost() (cost, within time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	highest := t.last
	t.each(func(timed *timed) {
		if c, w := timed.cost[wholeTiming].get(); c > highest[0] {
			highest = [2]float64{c, w}
		}
	})
	return time.Duration(math.Round(highest[0])), time.Duration(math.Ceil(highest[1]))
}

// each calls f for every connected process. The caller holds the lock.
func (t *Timer) each(f func(*timed)) {
	t.table.each(func(g *guest) {
		if g.timed != nil && g.timed.memory != nil {
			f(g.timed)
		}
	})
}

// Stats implements timing.Engine.
func (t *Timer) Stats() timing.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := timing.Stats{Taken: t.taken, Lost: maps.Clone(t.lost)}
	t.each(func(timed *timed) {
		for cause, n := range timed.losses() {
			s.Lost[cause] += n
		}
	})
	maps.DeleteFunc(s.Lost, func(_ string, n uint64) bool { return n == 0 })
	return s
}

// Targets implements timing.Finder.
func (t *Timer) Targets() (targets []timing.Target) {
	var guests []*guest
	t.table.each(func(g *guest) { guests = append(guests, g) })
	for _, g := range guests {
		target := timing.Target{PID: g.peer.id.PID, Methods: g.code.names()}
		t.mu.Lock()
		if g.timed != nil && g.timed.memory != nil {
			if g.timed.memory.word(guestAt) != timingsVersion {
				target.Problem = "its vmprof.h is from before there were timings: rebuild it with a newer one"
			}
			for _, m := range g.timed.methods {
				target.Audited = append(target.Audited, m.name)
			}
		}
		t.mu.Unlock()
		slices.Sort(target.Audited)
		targets = append(targets, target)
	}
	slices.SortFunc(targets, func(a, b timing.Target) int { return cmp.Compare(a.PID, b.PID) })
	return targets
}
