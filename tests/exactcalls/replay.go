package exactcalls

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/exact"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/calls/listener"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/breakpoint"
	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/javavm"
)

// A Replay counts the calls that a stock JVM really makes, of a few methods at a time: the guest
// repeats the same work, and each time hardware breakpoints count all calls of three of them. No
// flag is needed, so that the code is the same that was sampled; inlined calls do not count here.
//
//	replay, err := exactcalls.StartReplay(pid)
//	defer replay.Close()
//	codes, err := replay.Codes()
//	graph, err := replay.Count(codes[:3], iterate)
//
// Only one goroutine at a time may use its methods.
type Replay struct {
	session *Session
	objects ReplayObjects
	pid     int
}

// MaxReplayed is how many codes are replayed at once.
const MaxReplayed = breakpoint.MaxAddresses

// ErrReplayed says that a method got other code while its calls were counted: calls of that code
// are missing.
var ErrReplayed = errors.New("the method was compiled again meanwhile")

// StartReplay attaches to a JVM.
func StartReplay(pid int) (_ *Replay, err error) {
	r := &Replay{session: &Session{}, pid: pid}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	s := r.session
	if s.objects, err = bpf.Load(bpf.Options{FilterByPID: true}); err != nil {
		return nil, err
	}
	vm, lib, _, err := s.open(pid)
	if err != nil {
		return nil, err
	}
	if err := lib.Close(); err != nil {
		return nil, err
	}
	if s.names, err = newNames(s.objects, vm); err != nil {
		return nil, err
	}
	spec, err := LoadReplay()
	if err != nil {
		return nil, fmt.Errorf("read the replay's object: %w", err)
	}
	if err := s.objects.LoadBeside(spec, &r.objects); err != nil {
		return nil, fmt.Errorf("load the replay's program: %w", err)
	}
	return r, r.describe(vm.Layout())
}

// describe adds what the kernel side needs to find callers behind native code and deoptimised ones.
func (r *Replay) describe(l *javavm.Layout) error {
	var k bpf.HotspotProcess
	if err := r.session.objects.Processes.Lookup(uint32(r.pid), &k); err != nil {
		return fmt.Errorf("describe the VM: %w", err)
	}
	k.BlobDeoptHandler, k.BlobDeoptMhHandler, k.BlobOrigPc = l.Blob.DeoptHandler, l.Blob.DeoptHandlerMH, l.Blob.OrigPC
	k.CallStubReturn, k.EntryWrapperOffset, k.WrapperAnchor = l.Thread.CallStubReturn, l.Thread.CallWrapper,
		l.Thread.WrapperAnchor
	k.AnchorSp, k.AnchorFp, k.AnchorPc = l.Thread.LastSP, l.Thread.LastFP, l.Thread.LastPC
	k.ConstMethodCodeSize = l.Method.CodeSize
	if l.Blob.DeoptHandlerIs32 {
		k.Flags |= bpf.HotspotDeoptOffset
	}
	if l.Blob.HasDeoptHandlerMH {
		k.Flags |= bpf.HotspotDeoptMH
	}
	if err := r.session.objects.Processes.Update(uint32(r.pid), &k, ebpf.UpdateExist); err != nil {
		return fmt.Errorf("describe the VM: %w", err)
	}
	return nil
}

// Codes returns all code where calls arrive now, including wrappers of native methods.
func (r *Replay) Codes() (codes []vmruntime.Compilation, err error) {
	n := r.session.names
	n.mu.Lock()
	defer n.mu.Unlock()
	err = n.vm.Compilations(func(c vmruntime.Compilation) bool {
		if _, entered := listener.EntryOf(c); entered {
			codes = append(codes, c)
		}
		return true
	})
	return codes, err
}

// Method names the method of a code.
func (r *Replay) Method(c vmruntime.Compilation) symbol.Symbol {
	return r.session.names.Method(exact.Method{Addr: c.Method, Epoch: r.session.epoch()})
}

// Count counts all calls that arrive in up to MaxReplayed codes while iterate runs. Callers are the
// innermost methods at the call sites. ErrReplayed if a code is no longer entered: then the counts
// are incomplete.
func (r *Replay) Count(codes []vmruntime.Compilation, do func() error) (_ *profile.Graph, err error) {
	threads, err := proc.DefaultRoot.Threads(r.pid)
	if err != nil {
		return nil, err
	}
	var entries []uint64
	for _, c := range codes {
		entries = append(entries, c.VerifiedEntry)
	}
	// Hits do not count towards the limit: see replay.bpf.c.
	b, err := breakpoint.NewSet(r.objects.ReplayBreakpoint, entries,
		threads[:min(len(threads), breakpoint.MaxThreads)], 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close(), r.forget()) }()
	if err := b.Arm(); err != nil {
		return nil, err
	}
	if err := do(); err != nil {
		return nil, err
	}
	if err := b.Disarm(); err != nil {
		return nil, err
	}
	var lost uint64
	if err := r.objects.ReplayLost.Get(&lost); err != nil || lost > 0 {
		return nil, errors.Join(err, fmt.Errorf("%d calls found no room", lost))
	}
	if !r.entered(codes) {
		return nil, ErrReplayed
	}
	return r.graph(codes)
}

// entered reports whether calls still arrive in these codes.
func (r *Replay) entered(codes []vmruntime.Compilation) bool {
	n := r.session.names
	n.mu.Lock()
	defer n.mu.Unlock()
	return !slices.ContainsFunc(codes, func(c vmruntime.Compilation) bool {
		now, err := n.vm.Compilation(vmruntime.Site{Kind: vmruntime.Compiled, PC: c.VerifiedEntry, Version: c.Version,
			Exact: true})
		return err != nil || !now.InUse
	})
}

// graph names the counted calls.
func (r *Replay) graph(codes []vmruntime.Compilation) (*profile.Graph, error) {
	counted := map[ReplayReplayCall]uint64{}
	if err := readReplayed(r.objects.ReplayCalls, counted); err != nil {
		return nil, err
	}
	g := &profile.Graph{}
	for call, n := range counted {
		i := slices.IndexFunc(codes, func(c vmruntime.Compilation) bool { return c.VerifiedEntry == call.Entry })
		if i < 0 {
			continue
		}
		edge := profile.Edge{
			Caller: r.session.names.Method(exact.Unknown), Site: profile.Site{Offset: -1}, Callee: r.Method(codes[i]),
		}
		if at := r.session.names.Places(exact.Site{Frame: bpf.Frame(call.Caller),
			Epoch: call.ClassEpoch}); len(at) > 0 {
			edge.Caller, edge.Site = at[0].Method, at[0].Site
		}
		g.Add(edge, float64(n))
	}
	return g, nil
}

func readReplayed(m *ebpf.Map, to map[ReplayReplayCall]uint64) error {
	var call ReplayReplayCall
	var n uint64
	all := m.Iterate()
	for all.Next(&call, &n) {
		to[call] = n
	}
	if err := all.Err(); err != nil {
		return fmt.Errorf("read replayed calls: %w", err)
	}
	return nil
}

// forget empties the table.
func (r *Replay) forget() error {
	counted := map[ReplayReplayCall]uint64{}
	if err := readReplayed(r.objects.ReplayCalls, counted); err != nil {
		return err
	}
	for call := range counted {
		if err := r.objects.ReplayCalls.Delete(call); err != nil {
			return fmt.Errorf("forget replayed calls: %w", err)
		}
	}
	return nil
}

// Close removes everything.
func (r *Replay) Close() error { return errors.Join(r.objects.Close(), r.session.Close()) }
