package main

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

const (
	// enterTimes is how often all threads together acquire a monitor: windows of a few
	// milliseconds, ten times a second, must be enough for some hundreds of hits of each.
	enterTimes = 100_000_000
	// enterTolerance is the permitted relative error of a class's share.
	enterTolerance = 0.1
	// kindEnter is the kind of acquisitions that are sampled in compiled code.
	kindEnter = "enter"
)

// enterFlags record uncontended acquisitions, too.
var enterFlags = []string{"-e", "lock", "--monitor-enters", breakpoints.Flag}

// measureEnters records a program that acquires monitors in known proportions.
func (t eventTrial) measureEnters(ctx context.Context, m meter) ([]figure, error) {
	if err := breakpoints.Check(); err != nil {
		return nil, m.unsafe(t.String(), err)
	}
	guest, err := events.Start(ctx, t.jdk, events.Locking)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, enterTimes/t.threads/100); err != nil {
		return nil, err
	}
	s, err := m.seeRun(ctx, guest, t.threads, enterTimes/t.threads, enterFlags...)
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "acquisitions")
	if err != nil {
		return nil, err
	}
	return judgeEnters(s.truth, events.Own(rows)), nil
}

// judgeEnters compares the shares of classes, and those of methods.
func judgeEnters(truth events.Truth, own []events.Row) (figures []figure) {
	enters := events.Where(own, func(r events.Row) bool { return r.Kind == kindEnter })
	all := events.Sum(enters, 0)
	classes, methods := events.Weights{}, events.Weights{}
	var names [2][]string // in the order of the truth
	for _, a := range truth.Acquired {
		if classes[a.Class] == 0 {
			names[0] = append(names[0], a.Class)
		}
		if methods[a.Method] == 0 {
			names[1] = append(names[1], a.Method)
		}
		classes[a.Class] += float64(a.Times)
		methods[a.Method] += float64(a.Times)
	}
	add := func(group, name string, want float64, rows []events.Row) {
		truth := 100 * want
		figures = append(figures, figure{
			group: group, what: name, unit: "%", aim: true, truth: truth,
			measured: 100 * share(events.Sum(rows, 0), all), tolerance: within(enterTolerance, truth),
		})
	}
	byClass := func(class string) []events.Row {
		return events.Where(enters, func(r events.Row) bool { return r.Class == class })
	}
	for _, class := range names[0] {
		add("share of a class", class, classes[class]/classes.Total(), byClass(class))
	}
	for _, method := range names[1] {
		add("share of a method", method, methods[method]/methods.Total(), events.InMethod(enters, method))
	}
	return figures
}
