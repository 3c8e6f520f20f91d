// Package page is the call engine for VMs that cooperate (contrib/guest/vmprof.h). Agent and VM
// share one page of memory. At a tick, the kernel side arms the thread that it interrupted, in the
// thread's slot of the page. The thread then counts its own calls and runs over a probe at every
// STRIDE-th, SAMPLES times (Arnold & Grove, CGO 2005, section 4). A thread that is not armed pays a
// load, a compare and a branch per call.
//
//	e, err := page.New(page.Options{Objects: objects})
//	defer e.Close()
//	err = e.Tune(profile.Rate{Hz: 100, Burst: profile.Burst{Stride: 127, Samples: 64}})
//	ok := e.Fold(call, add)             // for every call of the event stream whose engine is bpf.EnginePage
//
// Processes connect to a socket, register which code belongs to which method, and get their page.
// Everything that they send is hostile: it is bounded and names nothing but their own calls. What
// they write into the page can waste only their own time. When an agent ends in any way, the
// connection breaks. Its processes then replace the shared page by an empty one, so that no thread
// stays armed.
package page

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
	"unique"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/budget"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// Options configure an Engine. Only Objects and Socket are needed.
type Options struct {
	Objects *bpf.Objects       // the agent's; they must outlive the engine
	Socket  string             // path at which guests connect
	Wanted  func(pid int) bool // whether a process is profiled; nil: all are. Called from several goroutines
	Proc    proc.Root          // where procfs is
	Log     *slog.Logger       // nil means none

	CountRead func(error) // counts a file of a process that was not opened, by its error; nil counts nothing
}

// upkeep is how often CPUs that came or went are looked for.
const upkeep = 10 * time.Second

// An Engine samples calls of cooperating processes from its creation until it is closed. Its
// methods may be called from several goroutines.
type Engine struct {
	*host
	objects bpf.BurstObjects
	inner   *ebpf.MapSpec // spec of a page
	probes  *probes
	hit     hitCost
	weigher weigher
	tick    time.Duration // time that an interruption takes, without the program

	mu    sync.Mutex // guards what follows
	ticks *attach.Ticks
	hz    int
}

var _ interface {
	calls.Engine
	calls.Folder
	calls.SampleHolder
	calls.Unweigher
	calls.Connector
} = (*Engine)(nil)

// New lets processes connect. Nothing is sampled before Tune.
func New(opt Options) (_ *Engine, err error) {
	if opt.CountRead == nil {
		opt.CountRead = func(error) {}
	}
	e := &Engine{}
	e.host = newHost(opt.Log, opt.Proc, opt.Wanted, e)
	defer func() {
		if err != nil {
			e.stop()
		}
	}()
	spec, err := bpf.LoadBurst()
	if err != nil {
		return nil, fmt.Errorf("read burst object: %w", err)
	}
	e.inner = spec.Maps["pages"].InnerMap
	if err := opt.Objects.LoadBeside(spec, &e.objects); err != nil {
		return nil, fmt.Errorf("load burst programs: %w", err)
	}
	defer func() {
		if err != nil {
			e.objects.Close()
		}
	}()
	e.tick = measureTick(e.objects.BurstArm)
	e.probes = newProbes(&e.objects, opt.Proc, proc.NewPool(proc.PoolOptions{FirstDeadline: firstSearch}),
		opt.CountRead)
	if err := e.listen(opt.Socket); err != nil {
		return nil, err
	}
	e.running.Go(e.follow)
	return e, nil
}

// Name implements calls.Engine.
func (e *Engine) Name() string { return calls.Page }

// Notes implements calls.Engine. There are none.
func (e *Engine) Notes() []string { return nil }

// follow adapts the ticks to CPUs that come and go.
func (e *Engine) follow() {
	for e.sleep(upkeep) {
		e.mu.Lock()
		if e.ticks != nil {
			if err := e.ticks.Refresh(); err != nil {
				e.log.Warn("cannot follow CPUs that went online or offline", "err", err)
			}
		}
		e.mu.Unlock()
	}
}

// Close disarms all threads, ends the connections and removes the engine from the kernel.
func (e *Engine) Close() error {
	return errors.Join(e.setTicks(0), e.close(), e.objects.Close())
}

// admit implements owner: it attaches to the process's probes and gives it a page.
func (e *Engine) admit(g *guest) (page int, err error) {
	if g.probes, err = e.probes.attach(g.peer.id.PID); err != nil {
		return 0, err
	}
	if err := e.share(g); err != nil {
		return 0, err
	}
	return g.page.FD(), nil
}

// welcomed implements owner.
func (e *Engine) welcomed(*net.UnixConn, *guest) error { return nil }

// registered implements owner. An engine offers no timings, so that a process must not send it
// names of versions.
func (e *Engine) registered(_ *guest, message any) bool {
	_, names := message.(*named)
	return !names
}

// share makes g's page and announces g to the kernel side.
func (e *Engine) share(g *guest) (err error) {
	if g.page, err = ebpf.NewMap(e.inner.Copy()); err != nil {
		return fmt.Errorf("make page: %w", err)
	}
	pid := uint32(g.peer.id.PID)
	if err := e.objects.Pages.Put(pid, g.page); err != nil {
		return fmt.Errorf("register the VM's page in the kernel: %w", err)
	}
	// This comes last: every process in this map must have a page.
	k := bpf.PageGuest{StartTicks: g.peer.id.Ticks(), Serial: g.serial}
	if err := e.objects.PageGuests.Put(pid, &k); err != nil {
		return fmt.Errorf("register the VM in the kernel: %w", err)
	}
	return nil
}

// release implements owner.
func (e *Engine) release(g *guest) {
	pid := uint32(g.peer.id.PID)
	if g.page != nil {
		_ = e.objects.PageGuests.Delete(pid)
		_ = e.objects.Pages.Delete(pid)
		// The process keeps the page, but no thread is armed in it.
		_ = g.page.Put(uint32(0), &bpf.Page{})
		g.page.Close()
	}
	if g.probes != nil {
		g.probes.close()
	}
}

// native stands for callers outside of registered code, such as a VM that calls its compiled
// methods.
var native = symbol.Intern(symbol.Frame{
	Function: "[native]", SystemName: "[native]", Kind: symbol.KindMarker, Mapping: unique.Make(symbol.Mapping{}),
})

// edge names a call of the event stream, by the registrations that have arrived and were valid when
// the call was made. It returns false if the call cannot be named; Stats counts the reasons. Every
// call must be passed once, in the order of the stream, as the cost of a hit is measured on them.
func (e *Engine) edge(c *bpf.Call) (profile.Edge, bool) {
	e.hit.observe(c)
	g := e.table.find(c.Attachment)
	if g == nil || g.peer.id.PID != int(c.Header.Pid) {
		e.tally.unresolved(causeGuest)
		return profile.Edge{}, false
	}
	callee, ok := g.code.callee(c.Callee)
	if !ok {
		e.tally.unresolved(causeCallee)
		return profile.Edge{}, false
	}
	e.tally.resolved()
	caller, offset, line, ok := g.code.caller(c.Caller, c.Header.Time)
	if !ok {
		e.tally.unresolved(causeCaller)
		return profile.Edge{Caller: native, Site: profile.Site{Offset: -1}, Callee: callee}, true
	}
	return profile.Edge{Caller: caller, Site: profile.Site{Line: clip(line), Offset: clip(offset)}, Callee: callee},
		true
}

// Fold names and weighs a call of the event stream. Once its burst is over, add gets its edge and
// the number of calls that it stands for. add may get earlier calls than c, all of the same
// process. The weights are right in proportion to each other; their absolute values may be off by a
// factor of two for calls of a few nanoseconds. Fold returns false if the call cannot be named;
// Stats counts the reasons. Every call must be passed once, in the order of the stream.
func (e *Engine) Fold(c *bpf.Call, add calls.Add) bool {
	edge, ok := e.edge(c)
	e.weigher.take(c, edge, ok, e.costs(), add)
	return ok
}

// Flush hands out the samples of unfinished bursts of all processes: at the end of a window.
func (e *Engine) Flush(add calls.Add) {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	e.weigher.flush(e.costs(), add)
	for key := range e.weigher.threads {
		if !e.table.connected(key.guest) {
			delete(e.weigher.threads, key)
		}
	}
}

// Held returns the number of samples that wait for the end of their burst.
func (e *Engine) Held() (n int) {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	for _, b := range e.weigher.threads {
		n += b.Len()
	}
	return n
}

// costs are the costs that bursts are corrected by. Until a hit has been measured, a usual value is
// assumed.
func (e *Engine) costs() costs {
	const usual = 700 * time.Nanosecond
	hit := e.hit.time()
	if hit == 0 {
		hit = usual
	}
	return costs{hit: hit, skip: skipLeast, tick: e.tick / 2} // the way into the kernel came before the burst's time
}

// clip limits a number from a process to the range of profiles.
func clip(n uint32) int32 { return int32(min(n, 1<<31-1)) }

// Connected implements calls.Connector.
func (e *Engine) Connected() map[int]string {
	runtimes := map[int]string{}
	e.table.each(func(g *guest) { runtimes[g.peer.id.PID] = symbol.CleanName(g.name) })
	return runtimes
}

// EverConnected implements calls.Connector.
func (e *Engine) EverConnected() bool { return e.tally.stats().Accepted > 0 }

// Stats returns what was done with processes so far.
func (e *Engine) Stats() Stats {
	s := e.tally.stats()
	s.Guests, s.Unweighed = e.table.len(), e.Unweighed()
	return s
}

// Unweighed implements calls.Unweigher.
func (e *Engine) Unweighed() map[string]uint64 {
	e.weigher.mu.Lock()
	defer e.weigher.mu.Unlock()
	return map[string]uint64{"calibration": e.weigher.calibrations, "time": e.weigher.unmeasured}
}

// Tune changes how much is sampled. Bursts that are under way keep their parameters.
func (e *Engine) Tune(r profile.Rate) error {
	k := bpf.BurstRate{Stride: uint32(max(r.Stride, 1)), Samples: uint32(max(r.Samples, 0)), Calibrate: calibrateEvery}
	if err := e.objects.BurstRates.Put(uint32(0), &k); err != nil {
		return fmt.Errorf("set the sampling rate in the kernel: %w", err)
	}
	e.weigher.tune(r)
	return e.setTicks(r.Hz)
}

// setTicks makes all CPUs tick hz times per second of CPU time; 0 ends all ticks.
func (e *Engine) setTicks(hz int) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if hz == e.hz {
		return nil
	}
	// Reopened, since what the kernel can change of an open event depends on what it counts.
	if e.ticks != nil {
		e.ticks.Close()
		e.ticks, e.hz = nil, 0
	}
	if hz <= 0 {
		return nil
	}
	t, err := attach.NewTicks(e.objects.BurstArm, hz)
	if err != nil {
		return fmt.Errorf("arm bursts: %w", err)
	}
	if err := t.Start(); err != nil {
		t.Close()
		return fmt.Errorf("arm bursts: %w", err)
	}
	e.ticks, e.hz = t, hz
	return nil
}

// Cost is what processes paid since the engine was created. Calls beyond the armed ones are not in
// it: a process that makes up calls pays for them itself, and must not slow down the sampling of
// others.
func (e *Engine) Cost() budget.Cost {
	var perCPU []bpf.BurstCost
	if err := e.objects.BurstCosts.Lookup(uint32(0), &perCPU); err != nil {
		return budget.Cost{} // the engine is closed
	}
	var sum bpf.BurstCost
	for _, c := range perCPU {
		sum.Hits += c.Hits
		sum.Skipped += c.Skipped
		sum.Ticks += c.Ticks
		sum.TickNs += c.TickNs
	}
	tick := e.tick
	if sum.Ticks > 0 {
		tick += time.Duration(sum.TickNs / sum.Ticks)
	}
	return budget.Cost{
		Hits: sum.Hits, HitTime: e.hit.time(), TickTime: tick, SkipTime: skipTime,
		Arming: time.Duration(sum.TickNs) + time.Duration(sum.Ticks)*e.tick + time.Duration(sum.Skipped)*skipTime,
	}
}
