package agent

import (
	"reflect"
	"time"

	"github.com/cilium/ebpf"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/guest"
	"github.com/vmprof-agent/vmprof-agent/agent/guest/runtimes"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Stats is the agent's health now.
func (a *Agent) Stats() profile.Stats {
	c, err := a.services.Objects.ReadCounts()
	if err != nil {
		a.services.Log.Error("cannot read the kernel side's counters", "err", err)
	}
	pool, resolver := a.services.Pool.Stats(), a.services.Resolver.Stats()
	s := profile.Stats{
		Ready:           a.running.Load(),
		Uptime:          monotonic() - a.began,
		BPFTime:         time.Duration(c[bpf.NsTotal]),
		BPFRuns:         c[bpf.SamplesAttempted],
		MapBytes:        a.mapBytes(),
		RingSize:        uint64(a.ring.Size()),
		RingBytes:       c[bpf.RingBytes],
		WalksCut:        c[bpf.WalksCut],
		StacksDisplaced: c[bpf.StacksDisplaced],
		EventsDropped:   c[bpf.EventsDroppedRingFull] + c[bpf.EventsDroppedBusy],
		Ticks:           !a.opt.tickless(),
		Time:            !a.opt.NoTime,
		Processes:       map[string]int{"": 0},
		Services:        map[string]int{},
		Workloads:       map[profile.Workload]int{},
		Quarantined:     pool.Quarantined,
		StuckReads:      pool.Stuck,
		Redefined:       c[bpf.MethodsChanged],
		Failures:        resolver.Failures,
		Frames:          resolver.Lookups,
		MethodMapsMax:   fold.MaxNames,
	}
	for _, r := range runtimes.Table() {
		if r.Kernel != nil { // a series for each runtime that is always there; others have one while a process has them
			s.Processes[r.Name()] = 0
		}
	}
	s.ProcessesRefused, s.ThreadsRefused, s.ThreadEndsLost = a.processesRefused(&c), c[bpf.ThreadsRefused],
		c[bpf.ThreadEndsDropped]
	a.reportUnwinding(&c, &s)
	reader := a.ring.Stats()
	s.ReaderPauses, s.FlushesCut = reader.Pauses, reader.Unfinished
	for one := range implementing[source.Reporter](&a.sources) {
		one.Report(&c, &s)
	}
	s.Reads, s.ReadFailures = resolver.Reads, resolver.ReadFailures
	a.owner.Do(func(state *fold.State) {
		s.CodeLoads, s.ReaderLag, s.MethodMaps = state.CodeLoads, state.Lag, int(state.Names)
		for _, p := range state.Table {
			if p.Exited.Load() {
				continue
			}
			s.Processes[p.Runtime()]++
			w := p.Workload()
			if w.Service == "" {
				continue
			}
			s.Services[w.Service]++
			s.Workloads[profile.Workload{
				Service: w.Service, ContainerID: w.ContainerID, PodUID: w.PodUID, Pod: w.Pod, Namespace: w.Namespace,
				Main: w.Main,
			}]++
		}
	})
	return s
}

// A Cost is what sampling took so far, for benchmarks.
type Cost struct {
	Samples         uint64        // attempted
	BPFTime         time.Duration // for all of them
	JavaSamples     uint64        // samples of Java threads
	JavaFrames      uint64        // user frames of those
	BPFJavaTime     time.Duration
	RingBytes       uint64
	SegmentMisses   uint64
	StackCopies     uint64
	CodeUnloads     uint64
	FirstGuestFrame time.Duration // from New to the first named guest frame; 0 if there was none
}

// Cost of sampling since the agent started.
func (a *Agent) Cost() Cost {
	c, err := a.services.Objects.ReadCounts()
	if err != nil {
		a.services.Log.Error("cannot read the kernel side's counters", "err", err)
	}
	return Cost{
		Samples: c[bpf.SamplesAttempted], BPFTime: time.Duration(c[bpf.NsTotal]),
		JavaSamples: c[bpf.SamplesJava], JavaFrames: c[bpf.FramesJava], BPFJavaTime: time.Duration(c[bpf.NsJava]),
		RingBytes: c[bpf.RingBytes], SegmentMisses: c[bpf.SegmentMisses], StackCopies: c[bpf.StackCopies],
		CodeUnloads: c[bpf.CodeUnloads], FirstGuestFrame: a.services.Resolver.Stats().FirstNamed,
	}
}

// mapBytes is what the kernel says that the maps of samples, of code and of events take. Objects
// share some of them, such as the ring: each counts once.
func (a *Agent) mapBytes() (n uint64) {
	n = a.tables.Stats().Bytes
	maps := []any{a.services.Objects.ProfileMaps, a.services.Objects.CodeMap.CodeMapMaps}
	for one := range implementing[source.Mapper](&a.sources) {
		maps = append(maps, one.KernelMaps()...)
	}
	counted := map[ebpf.MapID]bool{}
	for _, m := range mapsIn(maps...) {
		info, err := m.Info()
		if err != nil {
			continue
		}
		if id, ok := info.ID(); ok {
			if counted[id] {
				continue
			}
			counted[id] = true
		}
		if b, ok := info.Memlock(); ok {
			n += b
		}
	}
	return n
}

// mapsIn returns the maps that are fields of generated structs, such as bpf.ProbeMaps.
func mapsIn(structs ...any) (all []*ebpf.Map) {
	for _, s := range structs {
		v := reflect.ValueOf(s)
		for i := range v.NumField() {
			if m, ok := v.Field(i).Interface().(*ebpf.Map); ok && m != nil {
				all = append(all, m)
			}
		}
	}
	return all
}

// RequestFailed counts a panic over a request.
func (a *Agent) RequestFailed() { a.services.Resolver.CountFailure(guest.StageAnswer) }
