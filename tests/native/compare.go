package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// rate is that of both profilers: that which perf copies of stacks is several MB a second.
const rate = 199

// The first stacks of a program are cut, and have the agent make unwind tables. So both are compared
// from then on, in the windows of a second in which perf records as well.
const (
	warmUp      = 4 // s, as are the others
	length      = 8
	shortLength = 4
)

// recorded are the user stacks of a profile: names of functions, innermost first, of which those
// without a name are "?". Samples in the kernel count with the user part of their stacks.
type recorded struct {
	samples, cut int
	depths       []int // of the whole ones
	// stacks are those of samples in user mode: the two profilers differ in how often they sample
	// programs that enter and leave the kernel all the time.
	stacks events.Weights
}

func newRecorded() recorded { return recorded{stacks: events.Weights{}} }

func (r *recorded) add(stack []string, inKernel bool, count int) {
	r.samples += count
	if !inKernel {
		r.stacks[strings.Join(stack, ";")] += float64(count)
	}
	for range count {
		r.depths = append(r.depths, len(stack))
	}
}

// whole is the share of the stacks that have an outermost frame.
func (r recorded) whole() float64 {
	if r.samples == 0 {
		return 0
	}
	return 1 - float64(r.cut)/float64(r.samples)
}

// depth is the median number of frames.
func (r recorded) depth() int {
	if len(r.depths) == 0 {
		return 0
	}
	slices.Sort(r.depths)
	return r.depths[len(r.depths)/2]
}

// compare has the agent and perf record a program at the same time.
func (b bench) compare(ctx context.Context, p program) (result, error) {
	r := result{program: p}
	if _, err := exec.LookPath(p.command[0]); err != nil {
		r.missing = true
		return r, nil
	}
	ready, err := p.prepare(ctx, b.dir)
	if err != nil {
		return r, err
	}
	ctx, stop := context.WithCancel(ctx)
	pid, wait, err := ready.start(ctx)
	defer func() {
		stop()
		wait()
	}()
	if err != nil {
		return r, err
	}
	agent, err := b.agent.Start(ctx, profiler.Options{PID: pid, Frequency: rate, Extra: []string{"--window", "1"}})
	if err != nil {
		return r, err
	}
	if err := agent.WaitSampling(); err != nil {
		_, stopped := agent.Stop()
		return r, errors.Join(err, stopped)
	}
	both := length
	if b.short {
		both = shortLength
	}
	time.Sleep(warmUp * time.Second)
	names, err := aliasesIn(pid)
	if err != nil {
		_, stopped := agent.Stop()
		return r, errors.Join(err, stopped)
	}
	perfs, perfErr := recordByPerf(ctx, pid, both, b.dir, names)
	recording, err := agent.Stop()
	if err := errors.Join(err, perfErr); err != nil {
		return r, err
	}
	r.ours, r.perfs = ofAgent(recording.Profile, names, warmUp+2, warmUp+int64(both)), perfs
	r.same = r.ours.stacks.Overlap(perfs.stacks)
	r.most, r.chance = events.Alike(r.ours.stacks, perfs.stacks)
	if !r.ok() {
		r.explain(b.out)
	}
	return r, nil
}

// explain prints the stacks whose shares differ most.
func (r result) explain(out io.Writer) {
	fmt.Fprintf(out, "%s: percent of the agent's stacks and of perf's that are\n", r.name)
	ours, perfs := r.ours.stacks, r.perfs.stacks
	all := events.Weights{}
	for _, w := range []events.Weights{ours, perfs} {
		for stack := range w {
			all[stack] = 100 * (ours[stack]/ours.Total() - perfs[stack]/perfs.Total())
		}
	}
	const most = 8
	differ := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return cmp.Compare(math.Abs(all[b]), math.Abs(all[a])) })
	for _, stack := range differ[:min(most, len(differ))] {
		fmt.Fprintf(out, "  %5.1f %5.1f  %s\n", 100*ours[stack]/ours.Total(), 100*perfs[stack]/perfs.Total(), stack)
	}
}

// ofAgent are the stacks of the windows from the first to the last of these numbers.
func ofAgent(p *profile.Profile, names aliases, first, last int64) recorded {
	r := newRecorded()
	for _, s := range p.Sample {
		count := int(s.Value[0])
		if n := s.NumLabel["window"]; len(n) != 1 || n[0] < first || n[0] > last {
			continue
		}
		frames := stacks.FramesOf(s)
		if why := (stacks.Stack{Frames: frames}).Truncated(); why != "" {
			if why != "time" {
				r.cut += count
			}
			r.samples += count
			continue
		}
		var stack []string
		inKernel := false
		for _, l := range s.Location {
			if l.Mapping != nil && strings.HasPrefix(l.Mapping.File, "[kernel") {
				inKernel = true
				continue
			}
			for _, line := range l.Line {
				stack = append(stack, names.one(line.Function.SystemName))
			}
		}
		r.add(stack, inKernel, count)
	}
	return r
}
