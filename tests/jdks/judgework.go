package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// work judges a CPU profile.
func (m meter) work(ctx context.Context, c jvm.Command) ([]verdict, error) {
	s, err := m.record(ctx, c, events.Working, threads, workMillis, "-F", fmt.Sprint(frequency))
	if err != nil {
		return nil, err
	}
	verdicts := judgeWork(s.truth, stacks.OnThread(stacks.FromProfile(s.recording.Profile), events.Thread))
	if verdicts[0].state == wrong {
		verdicts[0].found += account(s.recording)
	}
	return verdicts, nil
}

// account says what became of a recording's samples.
func account(r *profiler.Recording) string {
	threads := map[string]int64{}
	for _, s := range stacks.FromProfile(r.Profile) {
		threads[s.Thread] += s.Count
	}
	return fmt.Sprintf("; %d samples attempted, dropped %v, discarded %v; by thread %v; notes: %q; log:\n%s",
		r.Stats.Attempted, r.Stats.Dropped,
		r.Stats.Discarded, threads, r.Profile.Comments, r.Output)
}

// judgeWork compares the stacks of the program's threads with what it did.
func judgeWork(truth events.Truth, own []stacks.Stack) []verdict {
	// Before and after its work a thread has little to do, but starts and ends.
	every := own
	own = stacksWhere(every, func(s stacks.Stack) bool { return s.Has("guest.Working.work") || s.Truncated() != "" })
	all := float64(stacks.Count(own, func(stacks.Stack) bool { return true }))
	if all == 0 {
		none := fmt.Sprintf("none of %d samples", stacks.Count(every, func(stacks.Stack) bool { return true }))
		if len(every) > 0 {
			none += ", such as " + every[0].String()
		}
		return []verdict{{shares, wrong, none}, {whole, wrong, none}, {inlined, wrong, none}}
	}
	var cpu time.Duration
	for _, w := range truth.Worked {
		cpu += w.CPU
	}
	worst := verdict{feature: shares}
	furthest := 0.0
	for _, w := range truth.Worked {
		share := float64(w.CPU) / float64(cpu)
		got := float64(stacks.Count(own, func(s stacks.Stack) bool { return s.Self(w.Method) })) / all
		if off := math.Abs(got - share); off >= furthest {
			furthest, worst.found = off, fmt.Sprintf("%s %.1f %%, truth %.1f %%", simple(w.Method), 100*got, 100*share)
		}
	}
	if furthest > sharesTolerance {
		worst.state = wrong
	}
	return []verdict{worst, judgeWhole(own), judgeInlined(truth, own)}
}

func simple(method string) string { return method[strings.LastIndexByte(method, '.')+1:] }

// entry is the outermost Java method of every thread.
const entry = "java.lang.Thread.run"

func judgeWhole(own []stacks.Stack) verdict {
	good := stacks.Count(own, func(s stacks.Stack) bool { return s.Truncated() == "" && s.Has(entry) })
	marked := stacks.Count(own, func(s stacks.Stack) bool { return s.Truncated() != "" })
	all := stacks.Count(own, func(stacks.Stack) bool { return true })
	return nearly(whole, good, marked, all, reasons(own))
}

// reasons are those for which stacks end early.
func reasons(own []stacks.Stack) string {
	var found []string
	for _, s := range own {
		if why := s.Truncated(); why != "" && !slices.Contains(found, why) {
			found = append(found, why)
		}
	}
	slices.Sort(found)
	return strings.Join(found, ", ")
}

func judgeInlined(truth events.Truth, own []stacks.Stack) verdict {
	working := func(s stacks.Stack) bool {
		return s.Truncated() == "" && slices.ContainsFunc(truth.Worked,
			func(w events.Worked) bool { return s.Has(w.Method) })
	}
	good := stacks.Count(own, func(s stacks.Stack) bool {
		for method, times := range truth.Depths {
			if s.Times(method) != times {
				return false
			}
		}
		return working(s)
	})
	v := nearly(inlined, good, 0, stacks.Count(own, working), "")
	if v.state == wrong {
		v.found += "; " + counted(truth, stacksWhere(own, working))
	}
	return v
}

func stacksWhere(own []stacks.Stack, wanted func(stacks.Stack) bool) (some []stacks.Stack) {
	for _, s := range own {
		if wanted(s) {
			some = append(some, s)
		}
	}
	return some
}

// counted says how many calls there are instead.
func counted(truth events.Truth, own []stacks.Stack) string {
	samples := map[int]int64{}
	var times []int
	for method, right := range truth.Depths {
		for _, s := range own {
			n := s.Times(method)
			if n != right && samples[n] == 0 {
				times = append(times, n)
			}
			samples[n] += s.Count
		}
	}
	slices.Sort(times)
	text := "calls"
	for _, n := range times {
		text += fmt.Sprintf(" %d (%d samples)", n, samples[n])
	}
	return text
}
