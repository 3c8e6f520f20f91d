package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/vmprof-agent/vmprof-agent/bpf"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
)

const (
	// chainAim is how much longer than an empty program chain may take, in nanoseconds.
	chainAim = 1500
	// flatAim is what counts as flat: a sample of the deepest stack over one of the shallowest.
	flatAim = 1.2
)

// A depthManner says how much to measure of what samples cost.
type depthManner struct {
	depths []int // calls below which the guest of known depth works
	rates  []int // rates of its samples
	rounds int
	rest   time.Duration // how long the guest rests before it works
	learn  time.Duration // not measured: what the agent needs to know a guest
	settle time.Duration // not measured: after the depth has changed
	span   time.Duration // measured
}

var (
	longDepth = depthManner{
		depths: []int{10, 50, 100, 400, 950},
		rates:  []int{999, 9999}, // one that people use, and one that finds the program's memory still cached
		rounds: 9,                // fewer have one that is far off in their confidence interval
		rest:   time.Second, learn: 4 * time.Second, settle: 500 * time.Millisecond, span: time.Second,
	}
	shortDepth = depthManner{
		depths: []int{10, 950}, rates: []int{999}, rounds: 1,
		rest: 200 * time.Millisecond, learn: 300 * time.Millisecond, settle: 200 * time.Millisecond,
		span: 300 * time.Millisecond,
	}
)

// A mode is a way to find calling contexts, or the program that does nothing.
type mode string

const (
	modeEmpty   mode = "empty"
	modeChain   mode = "chain"
	modeLinks   mode = "links" // chain, without the walks that are drawn to see whether links are still right
	modePartial mode = "partial"
	modeWalk    mode = "walk"
)

var modes = []mode{modeEmpty, modeChain, modeLinks, modePartial, modeWalk}

// flags are the agent's.
func (m mode) flags() []string {
	if m == modeLinks {
		return []string{"--context=chain", "--walk-every=1000000000"}
	}
	return []string{"--context=" + string(m)}
}

// A place is where samples are taken.
type place struct {
	guest string // empty: the one of known depth
	depth int    // its calls; 0 if the guest's stacks are what they are
	rate  int    // samples a second of each CPU
}

// A sampleCost is what one sample costs on average.
type sampleCost struct {
	nanos  float64 // in BPF, by the kernel's statistics of the program
	own    float64 // the same as the program measures it itself; 0 of the empty one
	bytes  float64 // in the ring
	frames float64 // frames of a Java stack, as far as they are in the sample
	walked float64 // part of the samples that are no links
}

func (c sampleCost) String() string {
	text := fmt.Sprintf("%.0f ns", c.nanos)
	if c.own > 0 {
		text += fmt.Sprintf(", by its own clock %.0f; %.0f bytes", c.own, c.bytes)
	}
	if c.walked > 0 && c.walked < 1 {
		text += fmt.Sprintf(", %.1f %% walked", percentOf(c))
	}
	return text
}

// errNoSamples says that a reading tells nothing.
var errNoSamples = errors.New("no tick of the guest while it worked, or no other while it rested: is the machine " +
	"overloaded?")

// costOfSamples returns what a sample costs. rest is a reading of the same program while the guest
// did nothing.
func costOfSamples(m mode, work, rest reading) (sampleCost, error) {
	if m == modeEmpty && work.runs > 0 {
		return sampleCost{nanos: float64(work.time) / float64(work.runs)}, nil
	}
	c := work.counts
	attempted := float64(c[bpf.SamplesAttempted])
	if attempted == 0 || rest.runs == 0 {
		return sampleCost{}, errNoSamples
	}
	return sampleCost{
		nanos:  nanosPerSample(work, rest),
		own:    harness.Per(float64(c[bpf.NsTotal]), attempted),
		bytes:  harness.Per(float64(c[bpf.RingBytes]), float64(c[bpf.SamplesDelivered])),
		frames: harness.Per(float64(c[bpf.FramesJava]), float64(c[bpf.SamplesJava])),
		walked: 1 - harness.Per(float64(c[bpf.SamplesLinked]), attempted),
	}, nil
}

// nanosPerSample is the time that a tick of the guest takes, in nanoseconds. The kernel tells only
// that of all ticks together; what the others take, of CPUs that idle and of other processes, shows
// while the guest rests. Two readings are two equations:
//
//	time = samples x (ns of a sample) + others x (ns of another)
func nanosPerSample(work, rest reading) float64 {
	samples, resting := float64(work.counts[bpf.SamplesAttempted]), float64(rest.counts[bpf.SamplesAttempted])
	others, restingOthers := float64(work.runs)-samples, float64(rest.runs)-resting
	return harness.Per(float64(work.time)*restingOthers-float64(rest.time)*others, samples*restingOthers-resting*others)
}

// sampleCosts are all rounds' costs. The zero value has none.
type sampleCosts struct {
	places []place // in the order of tables
	rounds map[place]map[mode][]sampleCost
}

func (s *sampleCosts) add(at place, m mode, c sampleCost) {
	if s.rounds == nil {
		s.rounds = map[place]map[mode][]sampleCost{}
	}
	if s.rounds[at] == nil {
		s.rounds[at] = map[mode][]sampleCost{}
		s.places = append(s.places, at)
	}
	s.rounds[at][m] = append(s.rounds[at][m], c)
}

// figures returns a figure of a mode in every round.
func (s *sampleCosts) figures(at place, m mode, figure func(sampleCost) float64) []float64 {
	var values []float64
	for _, c := range s.rounds[at][m] {
		values = append(values, figure(c))
	}
	return values
}

func nanosOf(c sampleCost) float64   { return c.nanos }
func bytesOf(c sampleCost) float64   { return c.bytes }
func framesOf(c sampleCost) float64  { return c.frames }
func percentOf(c sampleCost) float64 { return 100 * c.walked }

// inTurn has every mode watch in every round, in another order each time: whatever else the machine
// does hits all alike.
func (b bench) inTurn(watch func(round int, m mode) error) error {
	statistics, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return fmt.Errorf("have the kernel time BPF programs: %w: needs Linux 5.8 and CAP_SYS_ADMIN", err)
	}
	defer statistics.Close()
	for round, m := range harness.Rotated(b.how.depth.rounds, modes) {
		if err := watch(round, m); err != nil {
			return fmt.Errorf("%s: %w", m, err)
		}
	}
	return nil
}

func sleep(d time.Duration) func() error {
	return func() error { time.Sleep(d); return nil }
}

// over is how much longer a mode takes than the empty program of the same round.
func (s *sampleCosts) over(at place, m mode) harness.Ratio {
	var differences []float64
	took, empty := s.figures(at, m, nanosOf), s.figures(at, modeEmpty, nanosOf)
	for i := range min(len(took), len(empty)) {
		differences = append(differences, took[i]-empty[i])
	}
	return harness.RatioOf(differences)
}

// costHeader has the modes in their own order.
var costHeader = []string{
	"frames", "empty, ns", "chain, ns", "walked, %", "bytes", "links only, ns", "bytes",
	"partial, ns", "bytes", "walk, ns", "bytes",
}

// costCells are those of costHeader.
func costCells(costs *sampleCosts, at place) []string {
	cells := []string{harness.RatioOf(costs.figures(at, modeWalk, framesOf)).Middle(),
		harness.RatioOf(costs.figures(at, modeEmpty, nanosOf)).Whole()}
	for _, m := range modes[1:] {
		cells = append(cells, harness.RatioOf(costs.figures(at, m, nanosOf)).Whole())
		if m == modeChain {
			cells = append(cells, fmt.Sprintf("%.1f", harness.RatioOf(costs.figures(at, m, percentOf)).Median))
		}
		cells = append(cells, harness.RatioOf(costs.figures(at, m, bytesOf)).Middle())
	}
	return cells
}
