package tests

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// A recursion is what a profile must show of a guest that works at the bottom of so many calls.
type recursion struct {
	calls int
	last  string // the outermost Java method, or the marker that ends the stack
	least int    // frames left out, as the marker has it; 0: there is none
}

// TestDeepRecursion: stacks with more frames than a sample has room for keep their root, up to a
// bound.
func TestDeepRecursion(t *testing.T) {
	needs.Root(t, "sampling")
	jdk := needs.JDK(t)
	classes, err := guests.Compile(t.Context(), jdk)
	if err != nil {
		t.Fatal(err)
	}
	const root = "guest.Depth.work"
	recursions := []recursion{
		{200, root, 0},
		{1_500, root, 256},
		{5_000, root, 2048},
		{60_000, "[truncated: deeper than 5120 frames]", 0},
	}
	var all []*jvm.Guest
	for range recursions {
		guest, err := jvm.Start(t.Context(), jvm.Command{
			JDK:       jdk,
			Flags:     []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,guest.Depth::*", "-Xss64m"},
			Classpath: []string{classes},
			Main:      "guest.Depth",
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { guest.Close() })
		all = append(all, guest) // it rests until all are there
	}
	path := output(t, "out.pb.gz")
	record := []string{"record", "-d", "2s", "-F", strconv.Itoa(frequency), "-o", path}
	for i, r := range recursions {
		if _, err := all[i].Order(fmt.Sprintf("depth %d", r.calls)); err != nil {
			t.Fatal(err)
		}
		record = append(record, "-p", strconv.Itoa(all[i].PID()))
	}
	mustSucceed(t, record...)
	p, err := profiler.ReadProfile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range recursions {
		one := &profile.Profile{SampleType: p.SampleType}
		for _, s := range p.Sample {
			if s.NumLabel["pid"][0] == int64(all[i].PID()) {
				one.Sample = append(one.Sample, s)
			}
		}
		r.check(t, stacks.FromProfile(one))
	}
}

func (r recursion) check(t *testing.T, own []stacks.Stack) {
	t.Helper()
	var all, right int64
	var wrong []string
	for _, s := range own {
		names := make([]string, len(s.Frames))
		for i, f := range s.Frames {
			names[i] = f.Function
		}
		if s.Thread != "depth" || !slices.Contains(names, "guest.Depth.hold") {
			continue // on its way
		}
		all += s.Count
		if r.shown(names) {
			right += s.Count
		} else {
			wrong = append(wrong, fmt.Sprintf("%d samples of %d frames: %v … %v", s.Count, len(names), names[:3],
				names[len(names)-3:]))
		}
	}
	t.Logf("%d calls: %d samples, %d as they must be", r.calls, all, right)
	const least = 0.95 // some are taken while the stack is built or unwound
	if all == 0 || float64(right) < least*float64(all) {
		t.Errorf("%d calls: %d of %d samples are as they must be; others: %q", r.calls, right, all,
			wrong[:min(len(wrong), 5)])
	}
}

// shown says whether the frames, innermost first, are those of the recursion.
func (r recursion) shown(names []string) bool {
	last := slices.Index(names, r.last)
	at := slices.IndexFunc(names, func(name string) bool { return strings.HasSuffix(name, "left out]") })
	switch {
	case r.calls > 1_000 && names[len(names)-1] == "[… cut: time]":
		return true // a slow CPU
	case last < 0:
		return false
	case r.least > 0:
		marker := fmt.Sprintf("[%d to %d frames left out]", r.least, 2*r.least-1)
		return at > 880 && names[at] == marker && last-at > 100
	case strings.HasPrefix(r.last, "["):
		return at < 0 && last > 880
	}
	return at < 0 && last >= r.calls
}
