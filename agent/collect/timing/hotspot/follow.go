package hotspot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

const (
	followEvery  = 100 * time.Millisecond // new threads and new code are looked for that often
	refillAfter  = breakpoint.MaxHits / 4
	followCredit = 10 * time.Millisecond // unused budget that is kept
)

// A Follower has breakpoints stand on the code of a method in some JVMs until it is closed: on its
// entry and on its return instructions, in all threads but those of the VM. The kernel side records
// each invocation that ends (bpf.Invocation). It sees neither inlined, interpreted and OSR entries,
// nor those of threads that began within the last followEvery: Notes says which there are. What is
// called so often that it would cost more than the share of CPU time is not followed: Err says so.
type Follower struct {
	opt    Options
	kernel *bpf.Invocations
	trap   time.Duration // time that a hit takes, without the program
	opened time.Duration // CLOCK_MONOTONIC
	jvms   members[*followed]
}

// followed is a process whose method is followed.
type followed struct {
	ending
	follower *Follower
	process  *process
	points   *breakpoint.Standing // nil while there is no code
	code     []uint64             // what they stand on
	now, old *returning           // the code that calls enter, and what they entered before
	version  uint32               // version of the breakpoints

	used, begun time.Duration // CPU time of the process, and CLOCK_MONOTONIC, at the last look
	credit      time.Duration // unused budget
	seen        bpf.InvocationCounts
	refilled    uint64 // hits at the last refill

	known atomic.Pointer[FollowedCode]

	// By ending.mu.
	sums    bpf.InvocationCounts
	notes   []string
	instead error  // what to follow instead if no call is seen: an InlinedError, or nil
	left    string // sentence on threads that are left out
}

// FollowedCode is what of a process is the method. It does not change.
type FollowedCode struct {
	Versions map[uint32]bool // its compilations so far, by vmruntime.Compilation.Version
	Methods  []uint64        // addresses of the VM's structures
}

// Code is the code of the method in a process; nil if there is none yet.
func (f *Follower) Code(pid int) *FollowedCode {
	for _, g := range f.jvms.list {
		if g.process.PID == pid {
			return g.known.Load()
		}
	}
	return nil
}

// learn adds versions to the known code.
func (g *followed) learn() {
	code := &FollowedCode{Versions: map[uint32]bool{}, Methods: slices.Clone(g.process.methods)}
	if before := g.known.Load(); before != nil {
		maps.Copy(code.Versions, before.Versions)
	}
	maps.Copy(code.Versions, g.process.osr)
	code.Versions[g.now.Version] = true
	g.known.Store(code)
}

// returning is code with the addresses of its return instructions.
type returning struct {
	vmruntime.Compilation
	returns []uint64
}

// OpenFollower attaches to the JVMs and begins to follow. Options and errors are those of Open.
// Close ends it.
func OpenFollower(ctx context.Context, opt Options, kernel *bpf.Invocations) (*Follower, error) {
	opt, err := opt.checked()
	if err != nil {
		return nil, err
	}
	f := &Follower{opt: opt, kernel: kernel, opened: proc.Monotonic()}
	err = f.jvms.attach(ctx, &opt, func(p *process) *followed {
		return &followed{process: p, follower: f, begun: proc.Monotonic(), credit: followCredit}
	})
	if err != nil {
		return nil, err
	}
	if f.trap, err = trapTime(opt.Watcher); err != nil {
		return nil, errors.Join(err, f.jvms.close())
	}
	f.jvms.start()
	return f, nil
}

// trapTime is what a hit takes, without the program, as breakpoints in the agent itself show.
func trapTime(w *watch.Watcher) (time.Duration, error) {
	objects, err := bpf.LoadTimings()
	if err != nil {
		return 0, err
	}
	observer, err := w.Attach(watch.Program{Breakpoint: objects.Breakpoint, Watches: objects.Watches,
		Ends: objects.Ends}, &bpf.TimedWatch{})
	if err != nil {
		return 0, errors.Join(err, objects.Close())
	}
	return observer.TrapTime(), errors.Join(observer.Close(), objects.Close())
}

// Close removes the breakpoints.
func (f *Follower) Close() error { return f.jvms.close() }

// silence is after how long without a call a method that is inlined counts as inlined everywhere.
const silence = 3 * time.Second

// Err is why invocations in a process are not followed any more, or are not seen because they enter
// only code of other methods; nil if all are followed, or it has ended.
func (f *Follower) Err() error {
	if err := f.jvms.err("follow calls"); err != nil {
		return err
	}
	for _, g := range f.jvms.list {
		g.read()
		g.mu.Lock()
		sums, instead := g.sums, g.instead
		g.mu.Unlock()
		if sums.Entered+sums.Nested == 0 && instead != nil && proc.Monotonic()-f.opened > silence {
			return fmt.Errorf("follow calls in process %d: %w", g.process.PID, instead)
		}
	}
	return nil
}

// Counts is what was seen so far, by pid.
func (f *Follower) Counts() map[int]bpf.InvocationCounts {
	counts := map[int]bpf.InvocationCounts{}
	for _, g := range f.jvms.list {
		g.read()
		g.mu.Lock()
		counts[g.process.PID] = g.sums
		g.mu.Unlock()
	}
	return counts
}

// Method is what is followed, as stacks name it.
func (f *Follower) Method() string { return f.opt.Method.Function }

// Profile is a number of calls that were all seen, as Count.Profile has it.
func (f *Follower) Profile(calls uint64) *profile.Calls {
	return Count{Calls: float64(calls)}.Profile(f.opt.Method)
}

// Inside calls each for the threads that are in an invocation.
func (f *Follower) Inside(each func(tid uint32, in *bpf.OpenInvocation)) error {
	var (
		tid uint32
		in  bpf.OpenInvocation
	)
	all := f.kernel.Threads.Iterate()
	for all.Next(&tid, &in) {
		if in.Time != 0 {
			each(tid, &in)
		}
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read which threads are in calls: %w", err)
	}
	return nil
}

// Notes are sentences about what is not followed.
func (f *Follower) Notes() (notes []string) {
	for _, g := range f.jvms.list {
		g.mu.Lock()
		notes = append(notes, g.notes...)
		if g.left != "" {
			notes = append(notes, g.left)
		}
		g.mu.Unlock()
	}
	return notes
}

// run follows until ctx is done or the process has ended.
func (g *followed) run(ctx context.Context) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for {
		if err := g.step(); err != nil {
			return errors.Join(err, g.clear(), g.forget())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// forget forgets the calls that threads are in: nobody sees their ends any more.
func (g *followed) forget() error {
	var inside []uint32
	err := g.follower.Inside(func(tid uint32, in *bpf.OpenInvocation) {
		if int(in.Pid) == g.process.PID {
			inside = append(inside, tid)
		}
	})
	for _, tid := range inside {
		_ = g.follower.kernel.Threads.Delete(tid) // it may have ended
	}
	if errors.Is(err, ebpf.ErrIterationAborted) {
		return nil // others end with their threads
	}
	return err
}

// step keeps the breakpoints where they belong.
func (g *followed) step() error {
	if err := g.follower.opt.Root.Check(g.process.Identity); err != nil {
		return err
	}
	if err := g.govern(); err != nil {
		return err
	}
	if err := g.search(); err != nil {
		return err
	}
	if err := g.stand(); err != nil {
		return err
	}
	if g.points == nil {
		return nil
	}
	return g.followThreads()
}

// search looks for code of the method from time to time.
func (g *followed) search() error {
	searched, notes, _, err := g.process.searchDue("followed")
	if !searched {
		return nil
	}
	if n := g.now; n != nil && len(n.returns) > bpf.FollowedAddresses-1 {
		notes = append(notes, fmt.Sprintf("process %d: %s of %s has %d return instructions, of which %d are watched",
			g.process.PID, versionName(&n.Compilation),
			g.process.method, len(n.returns), bpf.FollowedAddresses-1))
	}
	if list, err := g.process.current(); err == nil && len(list) > 1 {
		notes = append(notes, fmt.Sprintf("process %d: there are %d copies of %s, of several class loaders; only "+
			"calls of the one that was compiled last are followed",
			g.process.PID, len(list), g.process.method))
	}
	instead := g.process.everywhere()
	g.mu.Lock()
	g.notes, g.instead = notes, instead
	g.mu.Unlock()
	if g.now != nil {
		g.learn() // This adds versions that are entered in loops.
	}
	return err
}

// stand has the breakpoints on the code that calls enter now, and on what is left of the one
// before.
func (g *followed) stand() error {
	list, err := g.process.current()
	if err == nil && len(list) == 0 && g.now == nil {
		return g.process.everywhere()
	}
	if err != nil || len(list) == 0 {
		return nil // between two versions of the code, or while the VM moves it
	}
	newest := list[len(list)-1]
	if g.now == nil || g.now.Version != newest.Version {
		next := &returning{Compilation: newest}
		if next.returns, err = g.process.returns(&newest); err != nil {
			return nil // likewise
		}
		g.old, g.now = g.now, next
		g.learn()
	}
	if g.old != nil && !g.process.exists(&g.old.Compilation) {
		g.old = nil
	}
	code := append([]uint64{g.now.VerifiedEntry}, g.now.returns...)
	if g.old != nil {
		code = append(code, g.old.returns...)
	}
	code = code[:min(len(code), bpf.FollowedAddresses)]
	if slices.Equal(code, g.code) {
		return nil
	}
	if err := g.clear(); err != nil {
		return err
	}
	g.version++
	key, of := uint32(g.process.PID), bpf.Followed{StartTicks: g.process.Ticks(), Entries: 1, Generation: g.version}
	copy(of.Addresses[:], code)
	if err := g.follower.kernel.Code.Put(key, &of); err != nil {
		return fmt.Errorf("follow code: %w", err)
	}
	if err := g.follower.kernel.Sums.Update(key, &bpf.InvocationCounts{}, ebpf.UpdateNoExist); err != nil &&
		!errors.Is(err, ebpf.ErrKeyExist) {
		return fmt.Errorf("follow code: %w", err)
	}
	g.points, err = breakpoint.NewStanding(g.follower.kernel.Breakpoint, code)
	g.code = code
	return err
}

// followThreads sets breakpoints in threads that are new, and forgets those that have ended.
func (g *followed) followThreads() error {
	root, pid := g.follower.opt.Root, g.process.PID
	tids, err := root.Threads(pid)
	if err != nil {
		return nil // the process has ended
	}
	exist, left := make(map[int]bool, len(tids)), 0
	for _, tid := range tids {
		exist[tid] = true
	}
	gone, err := g.points.Keep(exist)
	if err != nil {
		return err
	}
	for _, tid := range gone {
		_ = g.follower.kernel.Threads.Delete(uint32(tid)) // it may never have called
	}
	for _, tid := range tids {
		if g.points.Has(tid) {
			continue
		}
		if g.points.Threads() >= breakpoint.MaxThreads {
			left++ // it may be one of the VM's: their names are not read over and over
			continue
		}
		if name, err := root.ThreadComm(pid, tid); err != nil {
			continue
		} else if _, ofVM := profile.VMThread("hotspot", name); ofVM {
			continue
		}
		if err := g.points.Add(tid); err != nil {
			return err
		}
	}
	text := ""
	if n := left + g.points.Busy; n > 0 {
		text = fmt.Sprintf("process %d: calls of %s in %d threads are not followed: %d exceed the limit of %d "+
			"threads, and %d have their debug registers in use",
			pid, g.process.method, n, left, breakpoint.MaxThreads, g.points.Busy)
	}
	g.mu.Lock()
	g.left = text
	g.mu.Unlock()
	return nil
}

// read takes over what the kernel side counted.
func (g *followed) read() {
	var sums bpf.InvocationCounts
	if err := g.follower.kernel.Sums.Lookup(uint32(g.process.PID), &sums); err != nil {
		return // nothing is followed yet
	}
	g.mu.Lock()
	g.sums = sums
	g.mu.Unlock()
}

// govern fails if the hits take more than the budget. Otherwise it makes up for them.
func (g *followed) govern() error {
	now := proc.Monotonic()
	used, _ := proc.CPUTime(g.process.PID)
	passed, ran := now-g.begun, max(used-g.used, 0)
	if g.used == 0 {
		ran = 0
	}
	g.begun, g.used = now, used
	g.read()
	g.mu.Lock()
	sums := g.sums
	g.mu.Unlock()
	hits := sums.Hits - g.seen.Hits
	cost := time.Duration(hits)*g.follower.trap + time.Duration(sums.Ns-g.seen.Ns)
	called := float64(sums.Entered+sums.Nested-g.seen.Entered-g.seen.Nested) / max(passed.Seconds(), 1e-3)
	g.seen = sums
	// As for off-CPU time, a share of one CPU is there for processes that mostly wait.
	g.credit += time.Duration(g.follower.opt.Share*float64(max(ran, passed))) - cost
	if g.credit < 0 {
		return fmt.Errorf("%s is called too often to be followed, %.0f times a second: breakpoints would take %.0f%% "+
			"of a CPU, more than --budget; "+
			"choose a method that is called less often, such as a caller of it", g.process.method, called,
			100*cost.Seconds()/max(passed.Seconds(), 1e-3))
	}
	g.credit = min(g.credit, followCredit)
	more := sums.Hits - g.refilled
	if g.points == nil || more < refillAfter {
		return nil
	}
	g.refilled = sums.Hits
	if more >= breakpoint.MaxHits {
		return g.clear() // one may have stopped, and what has stopped traps without counting: they are set anew
	}
	return g.points.Refill()
}

// clear removes the breakpoints.
func (g *followed) clear() error {
	if g.points == nil {
		return nil
	}
	err := g.points.Close()
	g.points, g.code = nil, nil
	return err
}

func (g *followed) pid() int { return g.process.PID }

func (g *followed) close() error {
	return errors.Join(g.clear(), g.process.Close())
}

// returns finds the return instructions of code, in their order. It ends at what cannot be decoded.
func (p *process) returns(c *vmruntime.Compilation) ([]uint64, error) {
	if c.End <= c.VerifiedEntry {
		return nil, fmt.Errorf("code of %d bytes", c.End-c.Begin)
	}
	code := make([]byte, min(c.End-c.VerifiedEntry, longestCode))
	if err := p.memory.Read(c.VerifiedEntry, code); err != nil {
		return nil, err
	}
	return returnsIn(code, c.VerifiedEntry), nil
}

// returnsIn finds the return instructions in code at an address.
func returnsIn(code []byte, at uint64) (list []uint64) {
	if runtime.GOARCH == "arm64" {
		const size, ret = 4, 0xd65f03c0
		for off := 0; off+size <= len(code); off += size {
			if binary.LittleEndian.Uint32(code[off:]) == ret {
				list = append(list, at+uint64(off))
			}
		}
		return list
	}
	for off := 0; off < len(code); {
		i, err := probesite.Decode(code[off:])
		if err != nil {
			break
		}
		if i.Returns() {
			list = append(list, at+uint64(off))
		}
		off += i.Len
	}
	return list
}
