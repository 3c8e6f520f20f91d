package agent

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Stats is the agent's health now.
func (a *Agent) Stats() profile.Stats {
	c, err := a.objects.ReadCounts()
	if err != nil {
		a.log.Error("cannot read the kernel side's counters", "err", err)
	}
	pool, resolver := a.pool.Stats(), a.resolver.Stats()
	s := profile.Stats{
		Ready:           a.running.Load(),
		Uptime:          monotonic() - a.began,
		BPFTime:         time.Duration(c[bpf.NsTotal]),
		BPFRuns:         c[bpf.SamplesAttempted],
		MapBytes:        a.mapBytes(),
		RingSize:        uint64(a.ring.Size()),
		RingBytes:       c[bpf.RingBytes],
		StacksDisplaced: c[bpf.StacksDisplaced],
		EventsDropped:   c[bpf.EventsDroppedRingFull] + c[bpf.EventsDroppedBusy],
		Ticks:           !a.opt.tickless(),
		Time:            !a.opt.NoTime,
		Processes:       map[string]int{"": 0, "hotspot": 0},
		Services:        map[string]int{},
		Quarantined:     pool.Quarantined,
		StuckReads:      pool.Stuck,
		Redefined:       c[bpf.MethodsChanged],
		Failures:        resolver.Failures,
		Frames:          resolver.Lookups,
		MethodMaps:      int(a.nameCount.Load()),
		MethodMapsMax:   fold.MaxNames,
	}
	s.ProcessesRefused, s.ThreadsRefused = a.processesRefused(&c), c[bpf.ThreadsRefused]
	reader := a.ring.Stats()
	s.ReaderPauses, s.FlushesCut = reader.Pauses, reader.Unfinished
	for source := range a.sources.all() {
		source.addStats(&c, &s)
	}
	s.Reads, s.ReadFailures = resolver.Reads, resolver.ReadFailures
	a.mu.Lock()
	defer a.mu.Unlock()
	s.CodeLoads, s.ReaderLag = a.codeLoads, a.lag
	for _, p := range a.table {
		if p.Exited.Load() {
			continue
		}
		runtime, service := p.Runtime(), p.Service()
		s.Processes[runtime]++
		if service != "" {
			s.Services[service]++
		}
	}
	return s
}

// A Cost is what sampling took so far, for benchmarks.
type Cost struct {
	Samples         uint64        // attempted
	BPFTime         time.Duration // for all of them
	JavaSamples     uint64        // of Java threads
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
	c, err := a.objects.ReadCounts()
	if err != nil {
		a.log.Error("cannot read the kernel side's counters", "err", err)
	}
	return Cost{
		Samples: c[bpf.SamplesAttempted], BPFTime: time.Duration(c[bpf.NsTotal]),
		JavaSamples: c[bpf.SamplesJava], JavaFrames: c[bpf.FramesJava], BPFJavaTime: time.Duration(c[bpf.NsJava]),
		RingBytes: c[bpf.RingBytes], SegmentMisses: c[bpf.SegmentMisses], StackCopies: c[bpf.StackCopies],
		CodeUnloads: c[bpf.CodeUnloads], FirstGuestFrame: a.resolver.Stats().FirstNamed,
	}
}
