package main

import (
	"context"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

const (
	// waitRounds is the number of rounds of all threads together: some seconds.
	waitRounds = 16_000
	// waitTolerance is the permitted error of delays: the paper's aim.
	waitTolerance = 0.05
	// leastWaits is the number of long waits that a class needs to be judged.
	leastWaits = 100
	// kindWait is the kind of waits for a notification, which are not contention.
	kindWait = "wait"
)

// measureWaits records a program whose threads measure how long they wait for one another.
func (t eventTrial) measureWaits(ctx context.Context, m meter) ([]figure, error) {
	guest, err := events.Start(ctx, t.jdk, events.Waiting)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, waitRounds/t.threads/10); err != nil {
		return nil, err
	}
	s, err := m.seeRun(ctx, guest, t.threads, waitRounds/t.threads, "-e", "lock")
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "contentions", "delay")
	if err != nil {
		return nil, err
	}
	return judgeWaits(s.truth, events.Own(rows), s.recording.Stats.EventCost()), nil
}

// judgeWaits requires delays as long as the threads measured, and of the right classes. The
// threads' clocks run on while a probe writes the record of a finished wait, which takes them cost,
// so cost is subtracted from their measurements.
func judgeWaits(truth events.Truth, own []events.Row, cost time.Duration) (figures []figure) {
	contended := events.Where(own, func(r events.Row) bool { return r.Kind != kindWait })
	in := func(method string) []events.Row {
		return events.Where(contended, func(r events.Row) bool { return r.Has(method) })
	}
	for _, w := range truth.Waits {
		if w.LongTimes < leastWaits {
			continue
		}
		rows := in(w.Method)
		of := events.Where(rows, func(r events.Row) bool { return r.Class == w.Class })
		long := float64(w.LongTimes)
		waited := millis(w.LongSum) - float64(w.LongTimes)*millis(cost)
		figures = append(figures,
			figure{
				group: "delay", what: w.Class, unit: "ms", aim: true, truth: waited,
				measured: events.Sum(rows, 1) / 1e6, tolerance: within(waitTolerance, waited),
			},
			// Short ones are also recorded if the JVM had to do something for them.
			figure{
				group: "waits, at least", what: w.Class, aim: true, truth: long,
				measured: min(events.Sum(rows, 0), long), tolerance: within(waitTolerance, long),
			},
			figure{
				group: "delay of the right class", what: w.Class, unit: "%", truth: 100,
				measured: 100 * share(events.Sum(of, 1), events.Sum(rows, 1)), tolerance: 1,
			})
	}
	for _, w := range truth.Idle {
		figures = append(figures, figure{
			group: "delay without contention", what: w.Method, unit: "ms",
			measured: events.Sum(in(w.Method), 1) / 1e6, tolerance: within(0.01, millis(w.Sum)),
		})
	}
	return figures
}

func millis(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
