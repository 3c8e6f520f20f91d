package main

import (
	"context"
	"os"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

const (
	// faultTolerance is the permitted error of the number of faults in a method: objects do not
	// begin with pages.
	faultTolerance = 0.1
	// rightFaults is the fraction of the faults with a class that must have the right one.
	rightFaults = 0.99
	// classedFaults is the fraction that should have a class: the value first achieved under G1.
	classedFaults = 0.8
)

// measureFaults records a program that knows whose memory it touches first.
func (t eventTrial) measureFaults(ctx context.Context, m meter) ([]figure, error) {
	guest, err := events.Start(ctx, t.jdk, events.Faulting)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	const warm = events.FaultingMegabytes / 5
	if _, err := guest.Run(t.threads, warm/t.threads); err != nil {
		return nil, err
	}
	s, err := m.seeRun(ctx, guest, t.threads, (events.FaultingMegabytes-warm)/t.threads, "-e", "page-faults")
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "faults")
	if err != nil {
		return nil, err
	}
	return judgeFaults(s.truth, events.Own(rows)), nil
}

// judgeFaults requires a fault for each page that a method touched first, on an object of the
// method's class.
func judgeFaults(truth events.Truth, own []events.Row) (figures []figure) {
	for _, f := range truth.Faults {
		rows := events.Where(own, func(r events.Row) bool { return r.Has(f.Method) })
		classed := events.Where(rows, func(r events.Row) bool { return r.Class != "" })
		right := events.Where(rows, func(r events.Row) bool { return r.Class == f.Class })
		pages := float64(f.Bytes) / float64(os.Getpagesize())
		figures = append(figures,
			figure{
				group: "faults", what: f.Method, aim: true, truth: pages, measured: events.Sum(rows, 0),
				tolerance: within(faultTolerance, pages),
			},
			figure{
				group: "faults with a class", what: f.Method, unit: "%", aim: true, truth: 100,
				measured:  100 * share(events.Sum(classed, 0), events.Sum(rows, 0)),
				tolerance: 100 * (1 - classedFaults),
			},
			figure{
				group: "right classes", what: f.Class, unit: "%", truth: 100,
				measured:  100 * share(events.Sum(right, 0), events.Sum(classed, 0)),
				tolerance: 100 * (1 - rightFaults),
			})
	}
	return figures
}
