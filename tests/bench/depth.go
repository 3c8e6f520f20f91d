package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// depths measures what a sample costs against the depth of the stack, in all modes.
func (b bench) depths(ctx context.Context) ([]harness.Table, error) {
	guest, err := startDeep(ctx, b.jdk)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	var costs sampleCosts
	for _, rate := range b.how.depth.rates {
		if err := b.inTurn(func(round int, m mode) error {
			return b.visit(ctx, guest, &costs, round, m, rate)
		}); err != nil {
			return nil, fmt.Errorf("%d Hz: %w", rate, err)
		}
	}
	return []harness.Table{{Marker: "depth", Table: depthTable(&costs)}, {Marker: "flat", Table: flatTable(&costs)}},
		nil
}

// visit has one mode watch the guest at all depths.
func (b bench) visit(
	ctx context.Context, guest deepGuest, costs *sampleCosts, round int, m mode, rate int,
) (err error) {
	how := b.how.depth
	p, err := b.startProbe(ctx, m, guest.PID(), rate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guest.rest(), p.close()) }()
	rest, err := p.during(sleep(how.rest))
	if err != nil {
		return err
	}
	at := slices.Clone(how.depths)
	if round%2 == 1 {
		slices.Reverse(at)
	}
	if err := guest.goTo(at[0]); err != nil {
		return err
	}
	time.Sleep(how.learning(m, rate))
	for _, depth := range at {
		if err := guest.goTo(depth); err != nil {
			return err
		}
		time.Sleep(how.settle)
		work, err := p.during(sleep(how.span))
		if err != nil {
			return err
		}
		cost, err := costOfSamples(m, work, rest)
		if err != nil {
			return err
		}
		if m == modeWalk {
			if err := checkDepth(depth, cost.frames); err != nil {
				return err
			}
		}
		costs.add(place{"", depth, rate}, m, cost)
		fmt.Fprintf(b.out, "%d Hz, %s, below %d calls: %v\n", rate, m, depth, cost)
	}
	return nil
}

// learning is how long the guest of known depth is watched before anything is measured. Chain walks
// less and less of the samples, until after six thousand it is as few as it will be.
func (d depthManner) learning(m mode, hz int) time.Duration {
	const samples = 8000
	if m != modeChain {
		return d.settle
	}
	return min(d.learn, samples*time.Second/time.Duration(hz*runtime.NumCPU()))
}

// A deepGuest is a running tests/guests/java/guest/Depth.java: it keeps all CPUs busy at the bottom
// of a recursion of compiled calls.
type deepGuest struct {
	*jvm.Guest
}

func startDeep(ctx context.Context, jdk jvm.JDK) (deepGuest, error) {
	classes, err := guests.Compile(ctx, jdk)
	if err != nil {
		return deepGuest{}, err
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK: jdk,
		// A frame for each call, and nobody who works beside it.
		Flags: []string{"-XX:CompileCommand=quiet", "-XX:CompileCommand=dontinline,guest.Depth::*",
			"-XX:+UseSerialGC"},
		Classpath: []string{classes},
		Main:      "guest.Depth",
	})
	if err != nil {
		return deepGuest{}, fmt.Errorf("start the guest of known depth: %w", err)
	}
	return deepGuest{guest}, nil
}

// goTo has all threads work below so many calls, and returns when they do.
func (g deepGuest) goTo(calls int) error {
	_, err := g.Order(fmt.Sprintf("depth %d", calls))
	return err
}

// rest has no thread work.
func (g deepGuest) rest() error { return g.goTo(0) }

// maxMoreFrames is how many frames there may be beside those of the recursion: what begins the
// thread, holds it there and works, and no more than that again.
const maxMoreFrames = 16

// checkDepth returns an error unless walked stacks have as many frames as there are calls. Those on
// the way down, and walks that end early, must not be worth mentioning.
func checkDepth(calls int, frames float64) error {
	if frames < 0.9*float64(calls) || frames > float64(calls+maxMoreFrames) {
		return fmt.Errorf("below %d calls stacks have %.1f frames", calls, frames)
	}
	return nil
}

// depthTable is what samples cost against the depth of the stack.
func depthTable(costs *sampleCosts) report.Table {
	table := report.Table{Header: slices.Concat([]string{"calls deep", "Hz"}, costHeader)}
	for _, at := range costs.places {
		table.Add(slices.Concat([]string{fmt.Sprint(at.depth), fmt.Sprint(at.rate)}, costCells(costs, at))...)
	}
	return table
}

// flatTable says how what chain costs depends on the depth, and how far it is above an empty
// program.
func flatTable(costs *sampleCosts) report.Table {
	table := report.Table{Header: []string{"Hz", "", "measured", "aim", ""}}
	for _, rate := range costs.rates() {
		shallow, deep := costs.ends(rate)
		add := func(what string, r harness.Ratio, shown string, aim float64) {
			table.Add(fmt.Sprint(rate), what, shown, fmt.Sprintf("≤ %g", aim), r.AtMost(aim))
		}
		for _, m := range []mode{modeChain, modeLinks} {
			name := string(m)
			if m == modeLinks {
				name = "links only"
			}
			took := quotients(costs.figures(deep, m, nanosOf), costs.figures(shallow, m, nanosOf))
			add(fmt.Sprintf("%s: ns below %d calls over %d", name, deep.depth, shallow.depth), took, took.String(),
				flatAim)
			took = quotients(costs.figures(deep, m, bytesOf), costs.figures(shallow, m, bytesOf))
			add(fmt.Sprintf("%s: bytes below %d calls over %d", name, deep.depth, shallow.depth), took, took.String(),
				flatAim)
			took = costs.over(deep, m)
			add(fmt.Sprintf("%s: ns above the empty program's below %d calls", name, deep.depth), took, took.Whole(),
				chainAim)
		}
	}
	return table
}

// quotients is what a is over b in the same rounds.
func quotients(a, b []float64) harness.Ratio {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, harness.Per(a[i], b[i]))
	}
	return harness.RatioOf(all)
}

// rates are the rates of all places.
func (s *sampleCosts) rates() []int {
	var rates []int
	for _, at := range s.places {
		if len(rates) == 0 || rates[len(rates)-1] != at.rate {
			rates = append(rates, at.rate)
		}
	}
	return rates
}

// ends are the places of the shallowest and the deepest stack at a rate.
func (s *sampleCosts) ends(rate int) (shallow, deep place) {
	shallow.depth = math.MaxInt
	for _, at := range s.places {
		if at.rate == rate && at.depth < shallow.depth {
			shallow = at
		}
		if at.rate == rate && at.depth > deep.depth {
			deep = at
		}
	}
	return shallow, deep
}
