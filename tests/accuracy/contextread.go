package main

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/compare"
	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A contextResult is the results of one program's recordings, in the order of their settings.
type contextResult struct {
	contextTrial
	iteration time.Duration // mean time of an iteration of the program
	recorded  []contextRecording
}

// A contextRecording is one recording's results for the recorded process.
type contextRecording struct {
	windows []contextLine
	java    float64 // share of the samples that have a Java frame
	// For Whaley's partial tree, averages per sample: the number of frames that its thread's
	// previous sample did not have, and the number of all frames. Inlined ones count.
	fresh, frames float64
	// alike is how alike consecutive windows are, by what is compared; nil unless frames were
	// counted as new.
	alike map[string]likeness
}

// sum is that of all windows.
func (r *contextRecording) sum() profile.Contexts { return sumContexts(r.windows) }

// last is what was learned in the end.
func (r *contextRecording) last() *contextLine { return &r.windows[len(r.windows)-1] }

// readContexts reads a recording's results for its first windows, as many as requested if it has
// them, and checks that all samples are accounted for.
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
	if length.windows > 1 && stacks.HasEntries(p) {
		r.alike, err = windowsAlike(p)
	}
	return r, err
}

// first returns the requested first windows. A recording with one window has a line without a
// number.
func (l contextLength) first(lines []contextLine) ([]contextLine, error) {
	if l.windows == 1 {
		return lines[:1], nil
	}
	n := 0
	for n < min(len(lines), l.windows) && lines[n].Window == int64(n)+1 {
		n++
	}
	if n < l.least {
		return nil, fmt.Errorf("window %d has no samples of the program, and %d are needed: is the machine too busy?",
			n+1, l.least)
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
	return l.Mapping != nil && (strings.HasPrefix(l.Mapping.File, "[jit") ||
		strings.HasPrefix(l.Mapping.File, "[interpreter"))
}

// A contextLine is a profile's statement on the contexts of one process, in one of its windows.
type contextLine struct{ stored.ProcessContexts }

// contextLines returns the lines for one process, in the order of its windows, one line each.
func contextLines(p *pprof.Profile, pid int) (lines []contextLine, err error) {
	m, err := stored.MetadataOf(p)
	if err != nil {
		return nil, fmt.Errorf("metadata of the profile: %w", err)
	}
	for _, l := range m.Contexts {
		if l.PID == int64(pid) {
			lines = append(lines, contextLine{l})
		}
	}
	slices.SortFunc(lines, func(a, b contextLine) int { return cmp.Compare(a.Window, b.Window) })
	for i := 1; i < len(lines); i++ {
		if lines[i].Window == lines[i-1].Window {
			return nil, fmt.Errorf("the profile has twice the contexts of process %d in window %d", pid,
				lines[i].Window)
		}
	}
	if len(lines) == 0 {
		return nil, fmt.Errorf("the profile does not say how contexts were found of process %d", pid)
	}
	return lines, nil
}

// checkIdentities returns an error unless the counts of a line add up to the number of samples of
// the process in the window.
func (l *contextLine) checkIdentities(samples uint64) error {
	if l.Walked+l.Linked != samples {
		return fmt.Errorf("%d samples, but %d walked and %d linked", samples, l.Walked, l.Linked)
	}
	if l.Ambiguous+l.Fitted+l.Unplaced > l.Linked {
		return fmt.Errorf("%d samples linked, but %d ambiguous, %d fitted and %d unplaced", l.Linked, l.Ambiguous,
			l.Fitted, l.Unplaced)
	}
	for _, levels := range [][3]uint64{l.ByDepth, l.BySite} {
		if levels[0] > samples || levels[1] > levels[0] || levels[2] > levels[1] {
			return fmt.Errorf("of %d samples, %v have unique callers for one level, three and all", samples, levels)
		}
	}
	if c := l.Check; c != nil {
		// Samples that cannot be placed at all may have nothing to check.
		if c.Samples > l.Linked || c.Samples+l.Unplaced < l.Linked {
			return fmt.Errorf("%d samples linked, %d of them unplaced, but %d checked", l.Linked, l.Unplaced, c.Samples)
		}
		if c.Right[0] > c.Samples || c.Right[1] > c.Right[0] || c.Right[2] > c.Right[1] {
			return fmt.Errorf("of %d contexts that were checked, %v are right for one level, three and all", c.Samples,
				c.Right)
		}
	}
	return nil
}

// A likeness is how well the windows of a recording predict the next ones: geometric means over all
// pairs. NaN means no value.
type likeness struct {
	correlation float64 // -1 to 1: Whaley's precision
	overlap     float64 // 0 to 100
}

// The compared parts of windows, as named by compare.
const (
	hotMethods = "methods"
	partialCCT = "PCCT" // nodes and edges of Whaley's tree as one set
)

// windowsAlike compares the windows of a recording as the agent's compare does.
func windowsAlike(p *pprof.Profile) (map[string]likeness, error) {
	var text bytes.Buffer
	if err := compare.Windows(&text, compare.Named{Name: "recording", Profile: p}, &compare.Options{N: 1}); err != nil {
		return nil, err
	}
	return parseLikeness(text.String())
}

// parseLikeness reads the means in a comparison. The line above the one that begins with "windows"
// has the names of what is compared; the
// line that begins with "mean" has a correlation and an overlap for each.
func parseLikeness(text string) (map[string]likeness, error) {
	var names, before, mean []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
		case fields[0] == "windows":
			names = before
		case fields[0] == "mean":
			mean = fields[1:]
		}
		before = fields
	}
	if len(names) == 0 || len(mean) != 2*len(names) {
		return nil, fmt.Errorf("the comparison of windows has no means of %q:\n%s", names, text)
	}
	alike := make(map[string]likeness)
	for i, name := range names {
		var l likeness
		for j, to := range []*float64{&l.correlation, &l.overlap} {
			var err error
			if *to, err = parseDecimal(mean[2*i+j]); err != nil {
				return nil, fmt.Errorf("mean of %s: %w", name, err)
			}
		}
		alike[name] = l
	}
	return alike, nil
}

// parseDecimal reads a number, or - for NaN.
func parseDecimal(text string) (float64, error) {
	if text == "-" {
		return math.NaN(), nil
	}
	return strconv.ParseFloat(text, 64)
}

// likenessOf returns NaNs of what was not compared.
func (r *contextRecording) likenessOf(name string) likeness {
	if l, ok := r.alike[name]; ok {
		return l
	}
	return likeness{math.NaN(), math.NaN()}
}
