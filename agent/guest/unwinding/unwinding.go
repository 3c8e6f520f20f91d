package unwinding

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A Config is what Tables need.
type Config struct {
	Root    proc.Root
	Pool    *proc.Pool // pool for reads of processes
	Objects *bpf.Objects
	Log     *slog.Logger
	// Failed is called with a panic of the goroutine, which goes on.
	Failed func(error)
}

// Requests are looked for without a call of Look as well, for some time after one that was answered: a
// walk that comes further asks for the next table. The pauses before these looks begin with
// shortestPause, and each is twice as long as the one before; after longestPause there are none.
const (
	shortestPause = 20 * time.Millisecond
	longestPause  = 640 * time.Millisecond
)

// A request that led to no new table stays in the map for a while, so that the kernel side leaves no
// other one of that process: for firstPause, and then twice as long each time. The longest pause is
// maxMovedPause if the process had mapped or unmapped code, as processes do that compile.
const (
	firstPause    = 100 * time.Millisecond
	maxMovedPause = time.Second
	maxPause      = 30 * time.Second
	forgetPause   = time.Minute // after so long without a request, pauses begin anew
)

// What answers may cost: buildShare of the time, after the first timeCredit of it. Whoever maps ever
// new files delays the tables of others, but does not take a CPU.
const (
	buildShare = 10 // one part of so many
	timeCredit = 10 * time.Second
)

const (
	sweepInterval = 30 * time.Second
	maxProcesses  = 4096 // that are remembered; of more, all are forgotten
)

// A Loss is why code has no table, or a table does not serve.
type Loss string

// The losses.
const (
	LossNone       Loss = "no_unwind_information" // files without .eh_frame
	LossTooLarge   Loss = "too_large"             // files whose tables are above the bounds
	LossUnreadable Loss = "unreadable"            // files that cannot be read, or are malformed
	LossMappings   Loss = "mappings"              // mappings of processes that have too many
	LossProcess    Loss = "process"               // processes that cannot be read, or changed while they were
	LossKernel     Loss = "kernel"                // the kernel refused a table or a record
	LossEvicted    Loss = "evicted"               // tables that made room
	LossFull       Loss = "full"                  // requests for a table for which there was no room
	LossLate       Loss = "late"                  // times that requests had to wait, as tables took too much time
)

var losses = []Loss{LossNone, LossTooLarge, LossUnreadable, LossMappings, LossProcess, LossKernel, LossEvicted,
	LossFull, LossLate}

// Stats are what Tables hold and did.
type Stats struct {
	Tables int               // gauge
	Bytes  uint64            // gauge: kernel memory of the tables
	Losses map[string]uint64 // counter by cause, every cause
}

// Tables are the unwind tables of an agent.
type Tables struct {
	config Config
	kernel kernel
	cancel context.CancelFunc
	ended  chan struct{}
	asked  chan struct{} // there are requests
	left   atomic.Pointer[leftAlone]
	vdso   []byte

	// These belong to the goroutine.
	processes map[uint32]*process
	store     store
	serial    uint32 // number of the last record
	swept     time.Time
	credit    time.Duration // what answers may still take
	credited  time.Time
	pause     time.Duration // before the next look without a call of Look; 0: there is none

	mu      sync.Mutex // guards the rest
	stats   Stats
	without []string // files without unwind information
}

// A process is what is remembered of one that left a request.
type process struct {
	layout   proc.Layout
	mappings map[uint64]mapped // by start: what was asked for
	pause    time.Duration
	until    time.Time // the request is left until then; zero if it is not
	answered time.Time // when the last one was taken out
}

// A mapped is what there is for a mapping.
type mapped struct {
	key   fileKey
	table *table // nil if it gets none
}

// Start begins to answer requests: those that Look finds.
func Start(c Config) *Tables {
	ctx, cancel := context.WithCancel(context.Background())
	t := newTables(c, objects{c.Objects})
	t.cancel, t.ended = cancel, make(chan struct{})
	go func() {
		defer close(t.ended)
		t.run(ctx)
	}()
	return t
}

func newTables(c Config, k kernel) *Tables {
	t := &Tables{
		config: c, kernel: k, asked: make(chan struct{}, 1), processes: map[uint32]*process{}, vdso: c.Root.ReadVDSO(),
		credit: timeCredit, credited: time.Now(),
	}
	t.store = newStore(k, t.count)
	t.stats.Losses = map[string]uint64{}
	for _, l := range losses {
		t.stats.Losses[string(l)] = 0
	}
	return t
}

// Look looks for requests, and has them answered. It does not wait for that.
func (t *Tables) Look() {
	if t == nil {
		return
	}
	var left map[uint32]struct{}
	if l := t.left.Load(); l != nil && time.Now().Before(l.until) {
		left = l.processes
	}
	if !t.kernel.asked(left) {
		return
	}
	select {
	case t.asked <- struct{}{}:
	default: // that is known
	}
}

// Close ends that. Tables stay in the kernel until the maps are closed.
func (t *Tables) Close() {
	if t != nil {
		t.cancel()
		<-t.ended
	}
}

// Stats are the counts so far.
func (t *Tables) Stats() Stats {
	if t == nil {
		return Stats{Losses: map[string]uint64{}}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Losses = maps.Clone(s.Losses)
	return s
}

// maxWithout bounds the files that a note names.
const maxWithout = 5

// Notes say which native stacks are cut, and what helps.
func (t *Tables) Notes() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var notes []string
	for _, path := range t.without {
		notes = append(notes, fmt.Sprintf("native stacks may be cut at %s: it has neither frame pointers nor unwind "+
			"information (.eh_frame); compile it with -fno-omit-frame-pointer or -fasynchronous-unwind-tables", path))
	}
	if n := t.stats.Losses[string(LossFull)]; n > 0 {
		notes = append(notes, fmt.Sprintf("%d times there was no room for another unwind table (limit %d tables, %d MB): "+
			"some native stacks are cut; profile fewer processes", n, bpf.MaxUnwindTables, maxTableBytes>>20))
	}
	return notes
}

func (t *Tables) count(l Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Losses[string(l)]++
}

// noteWithout notes a file without unwind information, for readers of profiles.
func (t *Tables) noteWithout(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.without) < maxWithout && !slices.Contains(t.without, path) {
		t.without = append(t.without, path)
	}
}

// run answers requests until ctx ends.
func (t *Tables) run(ctx context.Context) {
	timer := time.NewTimer(sweepInterval)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.asked:
		case <-timer.C:
			if t.pause *= 2; t.pause > longestPause {
				t.pause = 0
			}
		}
		err := proc.Catch(func() error {
			t.answerAll(ctx)
			if time.Since(t.swept) >= sweepInterval {
				t.sweep()
			}
			return nil
		})
		if err != nil && t.config.Failed != nil {
			t.config.Failed(err)
		}
		timer.Reset(cmp.Or(t.pause, sweepInterval))
	}
}

// answerAll answers the requests that are there, once each.
func (t *Tables) answerAll(ctx context.Context) {
	now := time.Now()
	t.credit = min(timeCredit, t.credit+now.Sub(t.credited)/buildShare)
	t.credited = now
	t.left.Store(nil)
	left := &leftAlone{processes: map[uint32]struct{}{}}
	for pid, want := range t.kernel.requests() {
		if ctx.Err() != nil {
			return
		}
		if t.credit <= 0 {
			t.count(LossLate)
			return
		}
		began := time.Now()
		t.answer(ctx, pid, want)
		t.credit -= time.Since(began)
		if p := t.processes[pid]; p != nil && !p.until.IsZero() {
			left.processes[pid] = struct{}{}
			if left.until.IsZero() || p.until.Before(left.until) {
				left.until = p.until
			}
		}
	}
	t.left.Store(left)
}

// A leftAlone is the processes whose requests are not to be answered until that time.
type leftAlone struct {
	processes map[uint32]struct{}
	until     time.Time
}

// answer does what can be done for a request.
func (t *Tables) answer(ctx context.Context, pid uint32, want bpf.UnwindWant) {
	p := t.processes[pid]
	if p == nil {
		if len(t.processes) >= maxProcesses {
			clear(t.processes)
		}
		p = &process{}
		t.processes[pid] = p
	}
	now := time.Now()
	if !p.until.IsZero() { // it is left
		if now.After(p.until) {
			t.kernel.takeOut(pid)
			p.until = time.Time{}
			p.answered = now
		}
		return
	}
	if now.Sub(p.answered) > forgetPause {
		p.pause = 0
	}
	switch more, moved := t.serve(ctx, pid, p, want); {
	case more:
		p.pause = 0
		t.pause = shortestPause
		t.kernel.takeOut(pid)
		p.answered = now
		return
	case moved:
		p.pause = min(max(2*p.pause, firstPause), maxMovedPause)
	default:
		p.pause = min(max(2*p.pause, firstPause), maxPause)
	}
	p.until = now.Add(p.pause)
}

// serve gives a process the tables that it wants. It reports whether there is one more than before,
// and whether the process had changed its code.
func (t *Tables) serve(ctx context.Context, pid uint32, p *process, want bpf.UnwindWant) (more, moved bool) {
	img, err := t.read(ctx, int(pid))
	if err != nil {
		t.count(LossProcess)
		t.config.Log.Debug("cannot read the mappings of a process for unwind tables", "pid", pid, "err", err)
		return false, false
	}
	if p.layout.Stack != img.layout.Stack {
		p.mappings = map[uint64]mapped{} // another program
	}
	moved = p.layout != img.layout
	mappings, more := t.mappings(ctx, int(pid), p, img, want)
	if !more && !moved {
		return false, false
	}
	t.serial++
	if t.serial == 0 {
		t.serial = 1
	}
	record := bpf.UnwoundProcess{Stack: img.layout.Stack, CodePages: img.layout.CodePages, Serial: t.serial}
	record.SetMappings(mappings)
	if err := t.kernel.setProcess(pid, &record); err != nil {
		t.count(LossKernel)
		t.config.Log.Debug("cannot set the unwind tables of a process", "pid", pid, "err", err)
		return false, false
	}
	p.layout = img.layout
	// Had it ended before, nobody would take the record out.
	if now, err := t.config.Root.Identify(int(pid)); err != nil || now != img.identity {
		t.kernel.dropProcess(pid)
		return false, false
	}
	return more, moved
}

// sweep forgets processes that have ended, and drops tables that no process has had for a while.
func (t *Tables) sweep() {
	t.swept = time.Now()
	var pids []uint32
	t.kernel.eachProcess(func(pid uint32, record *bpf.UnwoundProcess) {
		pids = append(pids, pid)
		for i := range record.Mappings {
			t.store.use(record.Mappings[i])
		}
	})
	for _, pid := range pids {
		if _, err := t.config.Root.Identify(int(pid)); errors.Is(err, proc.ErrGone) {
			t.kernel.dropProcess(pid)
		}
	}
	for pid := range t.processes {
		if !slices.Contains(pids, pid) {
			if _, err := t.config.Root.Identify(int(pid)); errors.Is(err, proc.ErrGone) {
				delete(t.processes, pid)
				t.kernel.takeOut(pid)
			}
		}
	}
	t.store.dropIdle()
	t.publish()
}

// publish updates the gauges.
func (t *Tables) publish() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stats.Tables, t.stats.Bytes = len(t.store.bySum), uint64(t.store.bytes)
}
