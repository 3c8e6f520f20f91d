package fold

import (
	"bytes"
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A Process is one process that was sampled or announced, as a State knows it. Everything outside
// of guest.Process belongs to the State: only functions that have the State use it, or call
// methods, unless these say otherwise.
type Process struct {
	*guest.Process
	ID        proc.Identity
	Precise   bool                        // ID.Start came from the kernel side, in ns; otherwise in 10 ms
	Requested map[guest.RawFrame]struct{} // frames whose names were requested
	Samples   uint64                      // received
	comm      [16]byte                    // the process's name in the latest record that has it
	// ClassEpoch is how many times its VM had unloaded classes when it was last sampled.
	ClassEpoch uint32
	Top        TopEdges     // recent samples by edge, if an engine or uncontended lock acquisitions need them
	Hot        HotAddresses // recent samples by address, in code that its map names
	strangers  strangers
	Chaining   *Chaining // nil unless contexts are chained
	measuring  map[*measurement]struct{}
	Holders    int           // open and closing windows that have samples of it
	lingering  bool          // names were in use when they should have been forgotten: the next Trim forgets them
	renewed    time.Duration // when it was noticed, or its VM last unloaded classes, CLOCK_MONOTONIC
	submitted  time.Duration // when a worker last got it from the drainer, CLOCK_MONOTONIC
	expedited  bool          // it does not wait for the next time
}

const (
	// New work waits one part in pauseShare of the time for which a process has been known, and no
	// longer than maxPause.
	pauseShare = 20
	maxPause   = time.Second
)

// pauseOf is how long new work of a process waits for more of it, if the process was noticed then,
// or unloaded classes. What is unloaded, and a process that ends, take along the names of frames
// that wait.
func pauseOf(since, now time.Duration) time.Duration { return min((now-since)/pauseShare, maxPause) }

// NewProcess returns a process of which only the identity is known.
func NewProcess(id proc.Identity, precise bool) *Process {
	p := &Process{Process: guest.NewProcess(id), ID: id, Precise: precise, Requested: map[guest.RawFrame]struct{}{}}
	p.renewed = p.Noticed
	return p
}

// Targets are the same processes as workers know them.
func Targets(processes []*Process) (list []*guest.Process) {
	for _, p := range processes {
		list = append(list, p.Process)
	}
	return list
}

// ProfileOf returns the part of p in a profile, with only its identity. It needs no State.
func ProfileOf(p *guest.Process) *profile.Process {
	d := p.Describe()
	return &profile.Process{
		PID: p.PID, Comm: d.Comm, Service: d.Service, Executable: d.Executable, Notes: d.Notes, Runtime: d.Runtime,
		VM: d.VM,
	}
}

// Earlier orders processes as a Profile does.
func Earlier(a, b *Process) int {
	return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Ticks, b.Ticks), cmp.Compare(a.ID.Exec, b.ID.Exec))
}

// Bounds on named frames, each about 150 bytes with its map entry.
const (
	MaxNames  = 1 << 18 // names of all processes; frames beyond it stay unnamed, and are counted, until windows close
	TrimNames = 1 << 14 // names of a process: above it, those that no window needs are forgotten when one closes
)

// Want requests the names of those frames of a stack that were not requested yet, and reports
// whether there were any. total counts those of all processes, MaxNames at most.
func (p *Process) Want(stack []guest.RawFrame, epoch uint32, total *int64) bool {
	var fresh []guest.Wanted
	for _, r := range stack {
		if _, ok := p.Requested[r]; !ok && *total < MaxNames {
			p.Requested[r] = struct{}{}
			*total++
			w := guest.Wanted{RawFrame: r, Epoch: epoch}
			if r.Kind <= guest.RawExact && r.Frame.Kind() == bpf.FrameInterpreted {
				w.Epoch = r.Epoch // the epoch of a context may be older: another method may be at that address now
			}
			fresh = append(fresh, w)
		}
	}
	if fresh == nil {
		return false
	}
	p.Ask(fresh)
	return true
}

// Trim forgets the names that are not needed, and subtracts them from the total.
func (p *Process) Trim(needed map[guest.RawFrame]struct{}, total *int64) {
	for r := range p.Requested {
		if _, ok := needed[r]; !ok {
			delete(p.Requested, r)
			*total--
		}
	}
	// A worker may have named frames after they were last forgotten here.
	p.lingering = !p.Forget(func(r guest.RawFrame) bool {
		_, ok := p.Requested[r]
		return ok
	})
}

const (
	strangersPeriod = 10 * time.Second // period in which the list of threads is read once for an unknown thread
	maxStrangers    = 4096             // strangers of a process in a period
)

// strangers are the sampled threads of a process that are not known. Most are not Java threads.
type strangers struct {
	seen   map[uint32]struct{} // by thread id
	until  time.Duration       // CLOCK_MONOTONIC: end of the period
	wanted bool                // the list is to be read for one of them
}

// called records the name of the process, which ends with a zero byte.
func (p *Process) called(comm []byte) {
	if !bytes.Equal(p.comm[:], comm) {
		copy(p.comm[:], comm)
		p.Called(comm)
	}
}

// ObserveThread records a sample's thread. It reports whether a worker should read the VM's list of threads,
// or their names, now.
func (p *Process) ObserveThread(s *bpf.Sample) bool {
	now := time.Duration(s.Time)
	if s.Tid == s.Pid { // the name of the first thread is that of the process
		p.called(s.Comm)
	}
	nameless := p.MissesThreadName(s.Tid, s.Comm, now)
	return p.missesThread(s, now) || nameless
}

// missesThread reports whether a worker should read the VM's list of threads now.
func (p *Process) missesThread(s *bpf.Sample, now time.Duration) bool {
	next, st := p.ThreadsDue(), &p.strangers
	if next == 0 {
		return false
	}
	if s.Flags&(bpf.SampleAttached|bpf.SampleJavaThread) == bpf.SampleAttached {
		if st.seen == nil || now >= st.until {
			st.seen, st.until = map[uint32]struct{}{}, now+strangersPeriod
		}
		if _, ok := st.seen[s.Tid]; !ok && len(st.seen) < maxStrangers {
			st.seen[s.Tid] = struct{}{}
			st.wanted = true
		}
	}
	if !st.wanted || now < next {
		return false
	}
	st.wanted = false
	p.WantThreads()
	return true
}

// Profile returns the process's part of a profile, from these threads of a window, with the present
// names of frames. It adds to the counts. It needs no State: a closed window does not change.
func (p *Process) Profile(threads map[ThreadKey]*Thread, c *profile.Counts) *profile.Process {
	out := ProfileOf(p.Process)
	names := p.Names()
	defer names.Close()
	for _, key := range slices.Sorted(maps.Keys(threads)) {
		t := threads[key]
		name := t.Comm
		// A new thread has the name of the one that made it, until it names itself. A thread of a
		// VM does so before it runs any code of the program.
		if next := threads[keyOf(uint32(key.TID()), 1, key.Stopped())]; key.nth() == 0 && next != nil && !t.ofGuest() {
			name = next.Comm
		}
		for certainty := range t.Trees {
			raw := &t.Trees[certainty]
			if raw.Total() == 0 && certainty != int(profile.Certain) {
				continue
			}
			tally(raw, names, c)
			tree := cct.Map(raw, func(r guest.RawFrame) []symbol.Symbol { return names.Lookup(r).Symbols })
			out.Threads = append(out.Threads, &profile.Thread{TID: key.TID(),
				Name: p.NameOf(uint32(key.TID()), name[:]), Stopped: key.Stopped(),
				Context: profile.Certainty(certainty), Tree: tree})
		}
	}
	return out
}

// tally counts, over all samples of a tree, frames without a name and walks that ended early.
func tally(t *cct.Tree[guest.RawFrame], names guest.Names, c *profile.Counts) {
	totals := t.Totals()
	for id, n := range t.Nodes() {
		if id == cct.Root {
			continue
		}
		name := names.Lookup(n.Key)
		if name.Stale {
			c.Stale += totals[id]
		}
		if name.Unknown {
			c.Unknown += totals[id]
		}
		if n.Key.End.Truncated() && !name.Root {
			c.Truncated[n.Key.End.String()] += totals[id]
		}
	}
}

// NameOf returns the name of a thread as profiles show it. comm, the kernel's name, ends with a
// zero byte.
func (p *Process) NameOf(tid uint32, comm []byte) string {
	return p.ThreadName(int(tid), symbol.CommName(comm))
}

// compileIDs returns the ids of the compiled frames in the trees of threads.
func compileIDs(threads map[ThreadKey]*Thread) map[uint32]struct{} {
	ids := map[uint32]struct{}{}
	for _, t := range threads {
		t.Frames(func(r guest.RawFrame) {
			if r.Kind <= guest.RawExact && r.Frame.Kind() == bpf.FrameJIT {
				ids[r.Frame.CompileID()] = struct{}{}
			}
		})
	}
	return ids
}

var versionStates = [...]profile.VersionState{
	vmruntime.CodeUnknown: profile.VersionUnknown,
	vmruntime.CodeInUse:   profile.VersionInUse,
	vmruntime.CodeGivenUp: profile.VersionGivenUp,
	vmruntime.CodeFreed:   profile.VersionFreed,
}

// levelOf is the level of a version. If the version could not be read, its frames may still say that it
// is C2's; otherwise the level is -1.
func levelOf(v *guest.CodeVersion) int {
	switch {
	case v.Level == 0 && v.Tier == vmruntime.TierC2:
		return 4
	case v.Level == 0 && v.Tier != vmruntime.TierNative:
		return -1
	}
	return v.Level
}

// AddVersions adds the code versions in the samples of these threads to the process's part of a
// window's profile. began is the beginning of the window (CLOCK_MONOTONIC). It needs no State.
func (p *Process) AddVersions(threads map[ThreadKey]*Thread, began time.Duration, out *profile.Process) {
	ids := compileIDs(threads)
	if len(ids) == 0 {
		return
	}
	since := func(at time.Duration) time.Duration {
		if at == 0 {
			return 0
		}
		return at - began
	}
	list, beyond := p.Versions(ids, began)
	for i := range list {
		v := &list[i]
		version := profile.Version{
			ID: v.Version, Level: levelOf(v), EntryBCI: v.EntryBCI, Size: uint32(v.End - v.Begin),
			Method: v.Function, SystemName: v.Function + v.Signature,
			Since: since(v.Since), Seen: !v.Announced, State: versionStates[v.State], InUse: since(v.InUse),
			Until:   since(v.Until),
			Inlined: v.Inlined, Decompiles: v.Decompiles,
		}
		for _, t := range v.Traps {
			version.Traps = append(version.Traps, profile.Trap{Method: t.Function, Reason: t.Reason, Count: t.Count})
		}
		out.Versions = append(out.Versions, version)
	}
	if beyond > 0 {
		out.Notes = append(out.Notes, fmt.Sprintf("process %d: %d further code versions were sampled while %d were "+
			"in use; their samples do "+
			"not say which version they are of", p.PID, beyond, guest.MaxVersions))
	}
}
