package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/report"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A contextResult is what one program's recordings say, in the order of their settings.
type contextResult struct {
	contextTrial
	iteration time.Duration // of the program, on average
	recorded  []contextRecording
}

// A contextRecording is what one recording says of the process that it was made of.
type contextRecording struct {
	windows []contextLine
	java    float64 // share of the samples that have a Java frame
	// Of Whaley's partial tree, on average: how many frames of a sample its thread's previous sample did not have, and how
	// many there are. Inlined ones count.
	fresh, frames float64
	alike         map[string]likeness // of consecutive windows, by what is compared; nil unless frames were counted as new
}

// sum is that of all windows.
func (r *contextRecording) sum() profile.Contexts { return sumContexts(r.windows) }

// last is what was learned in the end.
func (r *contextRecording) last() *contextLine { return &r.windows[len(r.windows)-1] }

// readContexts reads what a recording says of its first windows, as many as are wanted if it has them, and checks that all
// is accounted for.
func readContexts(recording *profiler.Recording, pid int, length contextLength) (r contextRecording, err error) {
	if err := recording.Stats.CheckIdentities(); err != nil {
		return r, err
	}
	p := recording.Profile
	lines, err := contextLines(p, pid)
	if err != nil {
		return r, err
	}
	own, err := samplesOf(p, pid)
	if err != nil {
		return r, err
	}
	for i := range lines {
		if err := lines[i].checkIdentities(own.byWindow[lines[i].Window]); err != nil {
			return r, fmt.Errorf("window %d: %w", lines[i].Window, err)
		}
	}
	if r.windows, err = length.first(lines); err != nil {
		return r, err
	}
	r.java = float64(own.java) / float64(own.samples)
	r.fresh, r.frames = float64(own.entries)/float64(own.samples), float64(own.frames)/float64(own.samples)
	if length.windows > 1 && report.HasEntries(p) {
		r.alike, err = windowsAlike(p)
	}
	return r, err
}

// first returns the first windows that are wanted. A recording that is one window has a line without a number.
func (l contextLength) first(lines []contextLine) ([]contextLine, error) {
	if l.windows == 1 {
		return lines[:1], nil
	}
	n := 0
	for n < min(len(lines), l.windows) && lines[n].Window == int64(n)+1 {
		n++
	}
	if n < l.least {
		return nil, fmt.Errorf("window %d has no samples of the program, and %d are needed: is the machine too busy?", n+1, l.least)
	}
	return lines[:n], nil
}

// ownSamples are sums over the samples of one process.
type ownSamples struct {
	byWindow              map[int64]uint64
	samples, java, frames uint64
	entries               uint64 // 0 if they were not counted
}

func samplesOf(p *pprof.Profile, pid int) (own ownSamples, err error) {
	own.byWindow = map[int64]uint64{}
	column := func(name string) int {
		return slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == name })
	}
	samples, entries := column("samples"), column("entries")
	if samples < 0 {
		return own, fmt.Errorf("the profile does not count samples")
	}
	for _, sample := range p.Sample {
		if !slices.Contains(sample.NumLabel["pid"], int64(pid)) {
			continue
		}
		n, window := uint64(sample.Value[samples]), int64(0)
		if numbers := sample.NumLabel["window"]; len(numbers) > 0 {
			window = numbers[0]
		}
		own.byWindow[window] += n
		own.samples += n
		if slices.ContainsFunc(sample.Location, javaLocation) {
			own.java += n
		}
		for _, location := range sample.Location {
			own.frames += n * uint64(len(location.Line))
		}
		if entries >= 0 {
			own.entries += uint64(sample.Value[entries])
		}
	}
	if own.samples == 0 {
		return own, fmt.Errorf("the profile has no samples of process %d", pid)
	}
	return own, nil
}

func javaLocation(l *pprof.Location) bool {
	return l.Mapping != nil && (strings.HasPrefix(l.Mapping.File, "[jit") || strings.HasPrefix(l.Mapping.File, "[interpreter"))
}
