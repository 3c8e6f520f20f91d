// Command measure records programs that compute at a pace, and compares the CPU time of the
// profile, in all and in their units, with their own clocks; then it compares recordings of such
// programs with each other, and counts how often the interval of `compare --per` contains the
// truth.
//
//	go run ./tests/paced/measure             # six minutes, on a quiet machine
//	go run ./tests/paced/measure -pairs 0    # only the profiles
//	go run ./tests/paced/measure -update     # also rewrites the tables in docs/measurements/cpu-profiles.md
package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/paced"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	table "github.com/vmprof-agent/vmprof-agent/tests/report"
)

const docs = "docs/measurements/cpu-profiles.md"

func main() { harness.Main("paced", run) }

// paces have units a second that take 5 to 30 % of a CPU.
var paces = []struct {
	length time.Duration
	rate   int
}{
	{20 * time.Microsecond, 3000},
	{50 * time.Microsecond, 2000},
	{110 * time.Microsecond, 1000},
	{110 * time.Microsecond, 1500},
	{500 * time.Microsecond, 400},
	{5 * time.Millisecond, 40},
}

var frequencies = []int{99, 999, 3999}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o harness.Options
	flags := o.Flags("paced", "one pace, and one pair", docs)
	length := flags.Duration("length", 8*time.Second, "of a recording")
	pairs := flags.Int("pairs", 5, "of recordings, for each difference")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if o.Short {
		paces, frequencies, slower = paces[3:4], frequencies[1:2], slower[:1]
		*pairs = min(*pairs, 1)
	}
	return o.WithAgent(ctx, func(agent profiler.Agent, dir string) error {
		grid, wrong, err := measureAll(ctx, agent, *length)
		if err != nil {
			return err
		}
		if err := grid.Print(out); err != nil {
			return err
		}
		compared, outside, all, err := comparePairs(ctx, agent, dir, *length, *pairs)
		if err != nil {
			return err
		}
		if err := compared.Print(out); err != nil {
			return err
		}
		if o.Update {
			if err := table.Update(docs, "paced", grid.Markdown()); err != nil {
				return err
			}
			if *pairs > 0 {
				if err := table.Update(docs, "paced-pairs", compared.Markdown()); err != nil {
					return err
				}
			}
		}
		// With a probability of 1 % each: more are outside once in a thousand runs.
		if most := 0.01*float64(all) + 3.1*math.Sqrt(0.01*float64(all)) + 1; wrong > 0 || float64(outside) > most {
			return fmt.Errorf("%d profiles disagree with the clocks of their programs, and %d of %d intervals do not "+
				"contain the truth", wrong, outside, all)
		}
		return nil
	})
}

// A result is a recording of one pace.
type result struct {
	truth, total time.Duration // CPU time
	units, shown time.Duration // CPU time of units: true, and as the profile shows it
	samples      int64
	unobserved   time.Duration // part of the CPU time that was not observed, by the profile itself
}

// chance is the standard error of the shown CPU time of units, as a part of it: it is a share of
// all samples, and the total is exact.
func (r *result) chance() float64 {
	share := float64(r.units) / float64(r.truth)
	return math.Sqrt((1 - share) / (share * float64(max(r.samples, 1))))
}

const (
	mostTotal = 0.01 // what a total may be off
	mostUnits = 0.02 // what units may be off in addition to chance
)

func (r *result) totalHolds() bool { return math.Abs(paced.Off(r.truth, r.total)) <= mostTotal }

// unitsHold reports whether what is shown for units is right but for chance, and for some time that
// the profile may have given to the wrong rows.
func (r *result) unitsHold(misplaced time.Duration) bool {
	return math.Abs(paced.Off(r.units, r.shown)) <= mostUnits+3*r.chance()+float64(misplaced)/float64(r.units)
}

// missed is the verdict on a profile that is wrong and does not say so.
const missed = "MISSED"

// verdict is ok if total and units are right, and said if units are wrong by no more than the part
// that the profile says was not observed.
func (r *result) verdict() string {
	switch {
	case r.totalHolds() && r.unitsHold(0):
		return "ok"
	case r.totalHolds() && r.unitsHold(r.unobserved):
		return "said"
	}
	return missed
}

// measureAll records all paces at all frequencies.
func measureAll(
	ctx context.Context, agent profiler.Agent, length time.Duration,
) (grid table.Table, wrong int, err error) {
	grid.Header = []string{"unit", "units/s", "Hz", "samples", "CPU time", "recorded", "", "in units", "recorded", "",
		"by chance", ""}
	for _, p := range paces {
		for _, hz := range frequencies {
			r, err := measure(ctx, agent, hz, paced.Order{Units: int(length.Seconds() * float64(p.rate)),
				Length: p.length, Rate: p.rate})
			if err != nil {
				return grid, 0, fmt.Errorf("units of %v at %d Hz: %w", p.length, hz, err)
			}
			verdict := r.verdict()
			if verdict == missed {
				wrong++
			}
			grid.Add(p.length.String(), fmt.Sprint(p.rate), fmt.Sprint(hz), fmt.Sprint(r.samples),
				milliseconds(r.truth), milliseconds(r.total),
				percent(paced.Off(r.truth, r.total)), milliseconds(r.units), milliseconds(r.shown),
				percent(paced.Off(r.units, r.shown)),
				fmt.Sprintf("±%.1f %%", 100*r.chance()), verdict)
		}
	}
	return grid, wrong, nil
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.0f ms", float64(d)/1e6) }

func percent(off float64) string { return fmt.Sprintf("%+.1f %%", 100*off) }

// measure records a guest while it does what it is ordered.
func measure(ctx context.Context, agent profiler.Agent, hz int, order paced.Order) (r result, err error) {
	guest, err := paced.Start(ctx)
	if err != nil {
		return r, err
	}
	defer guest.Close()
	before, err := guest.Do(paced.Order{Rate: 1})
	if err != nil {
		return r, err
	}
	var truth paced.Truth
	recording, err := agent.While(ctx, profiler.Options{PID: guest.PID(), Frequency: hz},
		(*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error {
			truth, err = guest.Do(order)
			return err
		})
	if err != nil {
		return r, err
	}
	all, err := paced.Measure(recording.Profile, "")
	if err != nil {
		return r, err
	}
	units, err := paced.Measure(recording.Profile, paced.Unit)
	if err != nil {
		return r, err
	}
	r = result{truth: truth.Process - before.Process, total: all.CPU, units: truth.Units, shown: units.CPU,
		samples: all.Samples}
	m, err := stored.MetadataOf(recording.Profile)
	if err != nil {
		return r, err
	}
	for _, e := range m.ExtentsTogether() {
		if e.Subject == profile.SubjectCPU {
			r.unobserved = time.Duration(e.There - e.Observed)
		}
	}
	return r, nil
}
