package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A clockManner says how much to measure of clocks.
type clockManner struct {
	overlap time.Duration // length of the recordings whose profiles are compared
	pairs   int           // pairs of such recordings of a guest
	rounds  int           // rounds of interrupts
	segment time.Duration // with an agent, and before that without
}

var (
	longClocks  = clockManner{overlap: 30 * time.Second, pairs: 8, rounds: 6, segment: time.Second}
	shortClocks = clockManner{overlap: 2 * time.Second, pairs: 2, rounds: 1, segment: 500 * time.Millisecond}
)

// defaultClockGuests are the programs whose profiles are compared.
var defaultClockGuests = []string{"Xalan", "Jython", "Javac", "Luindex", "H2"}

// clockRate is the default rate of the agent, at which clocks are compared.
const clockRate = 99

// clockAim is how far the profile at the kernel's tick may be below what chance allows, in points
// of overlap.
const clockAim = 1.0

// clocks compares the profiles of both clocks. The last row is the mean of all guests.
func (b bench) clocks(ctx context.Context) ([]harness.Table, error) {
	table := report.Table{Header: []string{
		"guest", "recordings", "samples compared", "tick with cpu-clock, overlap %", "cpu-clock with itself",
		"difference", "aim", "",
	}}
	all := make([]float64, b.how.clock.pairs)
	for _, name := range b.clockGuests {
		compared, err := b.compareClocks(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		var mean clockComparison
		by := make([]float64, len(compared))
		for i, c := range compared {
			n := float64(len(compared))
			mean.samples += c.samples / len(compared)
			mean.tick += c.tick / n
			mean.itself += c.itself / n
			by[i] = c.tick - c.itself
			all[i] += by[i] / float64(len(b.clockGuests))
		}
		difference := meanOf(by)
		table.Add(name, fmt.Sprint(len(compared)), fmt.Sprint(mean.samples), fmt.Sprintf("%.1f", mean.tick),
			fmt.Sprintf("%.1f", mean.itself),
			difference.String(), fmt.Sprintf("≥ -%.0f", clockAim), report.Verdict(difference.mean >= -clockAim))
	}
	mean := meanOf(all)
	table.Add("mean", "", "", "", "", mean.String(), fmt.Sprintf("interval ≥ -%.0f", clockAim),
		report.Verdict(mean.low() >= -clockAim))
	return []harness.Table{{Marker: "clocks", Table: table}}, nil
}

// A sampleMean is the mean of figures that vary at random, with the half of its 95 % confidence
// interval.
type sampleMean struct{ mean, half float64 }

func meanOf(figures []float64) (m sampleMean) {
	n := float64(len(figures))
	for _, f := range figures {
		m.mean += f / n
	}
	var squares float64
	for _, f := range figures {
		squares += (f - m.mean) * (f - m.mean)
	}
	m.half = profile.StudentT(len(figures)-1) * math.Sqrt(squares/(n-1)/n)
	return m
}

func (m sampleMean) low() float64   { return m.mean - m.half }
func (m sampleMean) String() string { return fmt.Sprintf("%+.1f ± %.1f", m.mean, m.half) }

// An interrupter is an agent whose interrupts are counted.
type interrupter struct {
	name, flags string
}

// interrupters are an agent that takes no samples, and one at each clock.
func interrupters() []interrupter {
	list := []interrupter{{"added by an agent that takes no samples (-e safepoint)", "-e safepoint"}}
	for _, clock := range []attach.Clock{attach.CPUClock, attach.TickClock} {
		flag := "--clock=" + string(clock)
		list = append(list, interrupter{fmt.Sprintf("added with %s -F %d", flag, clockRate),
			fmt.Sprintf("%s -F %d", flag, clockRate)})
	}
	return list
}

// interrupts counts the timer interrupts of the machine while this process keeps all CPUs busy,
// without an agent and with each in turn.
func (b bench) interrupts(ctx context.Context) ([]harness.Table, error) {
	stop := keepBusy()
	defer stop()
	perSecond := func() (rate float64, err error) {
		before, err := timerInterrupts()
		if err != nil {
			return 0, err
		}
		began := time.Now()
		time.Sleep(b.how.clock.segment)
		after, err := timerInterrupts()
		return float64(after-before) / time.Since(began).Seconds(), err
	}
	agents := interrupters()
	turns, err := harness.Alternate(harness.Rotated(b.how.clock.rounds, agents), perSecond,
		func(agent interrupter) (rate float64, err error) {
			options := profiler.Options{PID: os.Getpid(), Extra: strings.Fields(agent.flags)}
			_, err = b.agent.While(ctx, options, (*profiler.AgentRun).WaitSampling,
				func(*profiler.AgentRun) (err error) {
					rate, err = perSecond()
					return err
				})
			return rate, err
		}, nil)
	if err != nil {
		return nil, err
	}
	return []harness.Table{{Marker: "interrupts", Table: interruptTable(turns, agents)}}, nil
}

// keepBusy uses every CPU until it is told to stop.
func keepBusy() (stop func()) {
	var over atomic.Bool
	var spinning sync.WaitGroup
	for range runtime.NumCPU() {
		spinning.Go(func() {
			for !over.Load() {
			}
		})
	}
	return func() {
		over.Store(true)
		spinning.Wait()
	}
}

// interruptTable compares each turn with the mean of its neighbours.
func interruptTable(turns *harness.Turns[interrupter, float64], agents []interrupter) report.Table {
	added := map[interrupter][]float64{}
	for i, turn := range turns.On {
		added[turn.Kind] = append(added[turn.Kind], turn.Sample-(turns.Off[i]+turns.Off[i+1])/2)
	}
	table := report.Table{Header: []string{"timer interrupts a second, all CPUs", "median [95 % interval]"}}
	table.Add("without an agent", harness.RatioOf(turns.Off).Whole())
	for _, agent := range agents {
		table.Add(agent.name, harness.RatioOf(added[agent]).Whole())
	}
	return table
}

// timerInterrupts is how many interrupts of their own timers all CPUs have had.
func timerInterrupts() (uint64, error) {
	f, err := os.Open("/proc/interrupts")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	return readTimerInterrupts(f)
}

// readTimerInterrupts adds up the row of local timers, which each architecture names otherwise.
func readTimerInterrupts(r io.Reader) (sum uint64, err error) {
	found := false
	for lines := bufio.NewScanner(r); lines.Scan(); {
		name, rest, _ := strings.Cut(strings.TrimSpace(lines.Text()), ":")
		if name != "LOC" && !strings.HasSuffix(rest, "arch_timer") {
			continue
		}
		found = true
		for _, word := range strings.Fields(rest) {
			n, err := strconv.ParseUint(word, 10, 64)
			if err != nil {
				break // the description
			}
			sum += n
		}
	}
	if !found {
		return 0, errors.New("/proc/interrupts has no row of local timers")
	}
	return sum, nil
}

// A clockComparison compares profiles of the same time, each with the same number of samples.
type clockComparison struct {
	samples      int
	tick, itself float64 // overlap of the tick's profile and of one half of cpu-clock's with the other half, in percent
}

// compareClocks records a guest at both clocks at once, several times. cpu-clock samples twice as
// often, so that its profile has two halves, of which one takes the place of the tick's: their
// overlap is what chance allows.
func (b bench) compareClocks(ctx context.Context, name string) ([]clockComparison, error) {
	guest, err := suite.Start(ctx, b.jdk, name)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if err := b.warmUp(guest); err != nil {
		return nil, err
	}
	options := func(clock attach.Clock, rate int) profiler.Options {
		return profiler.Options{PID: guest.PID(), Frequency: rate, Extra: []string{"--clock=" + string(clock)}}
	}
	record := func() (byTick, byTimer *profiler.Recording, err error) {
		byTimer, err = b.agent.While(ctx, options(attach.CPUClock, 2*clockRate), (*profiler.AgentRun).WaitSampling,
			func(*profiler.AgentRun) error {
				byTick, err = b.agent.While(ctx, options(attach.TickClock, clockRate),
					(*profiler.AgentRun).WaitSampling,
					func(*profiler.AgentRun) error { return runFor(b.how.clock.overlap)(guest) })
				return err
			})
		return byTick, byTimer, err
	}
	compared := make([]clockComparison, b.how.clock.pairs)
	for i := range compared {
		byTick, byTimer, err := record()
		if err != nil {
			return nil, err
		}
		compared[i] = compareSamples(leafSamples(byTick.Profile), leafSamples(byTimer.Profile), 100)
		fmt.Fprintf(b.out, "%s: %d samples, %+.2f points\n", name, compared[i].samples,
			compared[i].tick-compared[i].itself)
	}
	return compared, nil
}

// leafSamples are the innermost functions of all samples.
func leafSamples(p *pprof.Profile) (leaves []string) {
	for _, s := range stacks.FromProfile(p) {
		leaf := "(none)"
		if len(s.Frames) > 0 {
			leaf = s.Frames[0].Function
		}
		for range s.Count {
			leaves = append(leaves, leaf)
		}
	}
	return leaves
}

// compareSamples compares samples at the tick with as many of the timer's, and those with as many
// others of the timer's. It takes the mean of that many random choices.
func compareSamples(tick, timer []string, choices int) (c clockComparison) {
	c.samples = min(len(tick), len(timer)/2)
	random := rand.New(rand.NewPCG(1, 2)) // the same choices each time
	choose := func(samples []string) {
		random.Shuffle(len(samples), func(i, k int) { samples[i], samples[k] = samples[k], samples[i] })
	}
	for range choices {
		choose(tick)
		choose(timer)
		half := weigh(timer[:c.samples])
		c.tick += half.Overlap(weigh(tick[:c.samples])) / float64(choices)
		c.itself += half.Overlap(weigh(timer[c.samples:2*c.samples])) / float64(choices)
	}
	return c
}

// weigh counts equal samples.
func weigh(samples []string) events.Weights {
	w := events.Weights{}
	for _, s := range samples {
		w[s]++
	}
	return w
}
