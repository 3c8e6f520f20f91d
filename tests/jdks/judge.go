package main

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	eventviews "github.com/vmprof-agent/vmprof-agent/agent/view/report/events"
	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// A state says how far a feature holds.
type state int

const (
	right  state = iota
	silent       // it is missing, and the profile says so
	wrong        // the profile has something else, or misses it without a word
)

// A verdict is what became of a feature in a cell.
type verdict struct {
	feature string
	state   state
	found   string // beside the truth
}

// Features, in the order of the tables.
const (
	shares    = "CPU time by method"
	whole     = "whole stacks"
	inlined   = "inlined frames"
	allocated = "allocated bytes"
	classes   = "classes of objects"
	monitors  = "waits for monitors"
	locks     = "waits for java.util.concurrent locks"
	lockTypes = "classes of locks"
	apart     = "waits for work kept apart"
)

var features = []string{shares, whole, inlined, allocated, classes, monitors, locks, lockTypes, apart}

const (
	// sharesTolerance is how far shares of CPU time may be off: some six standard deviations of
	// sampling on a machine that is not busy, where ticks come in time.
	sharesTolerance = 0.05
	// nearlyAll is the share that must be right of what cannot be partly right: stacks, names.
	nearlyAll = 0.99
	// sumTolerance is how far sums of sampled events may be off in recordings of two seconds, as a
	// share.
	sumTolerance = 0.25
	// mix is the overlap of the recorded bytes by class with the truth, in percent, at least.
	mix = 80
)

// nearly judges what must be right of nearly all: good are, and marked say that they are not, of
// all.
func nearly(feature string, good, marked, all int64, why string) verdict {
	v := verdict{feature: feature, found: "nothing"}
	if all > 0 {
		v.found = strings.TrimSuffix(fmt.Sprintf("%.1f %% right, %.1f %% marked: %s", percent(good, all),
			percent(marked, all), why), ": ")
	}
	switch {
	case all > 0 && float64(good) >= nearlyAll*float64(all):
	case all > 0 && float64(good+marked) >= nearlyAll*float64(all):
		v.state = silent
	default:
		v.state = wrong
	}
	return v
}

func percent(part, of int64) float64 { return 100 * float64(part) / float64(of) }

// allocate judges a profile of allocations.
func (m meter) allocate(ctx context.Context, c jvm.Command) ([]verdict, error) {
	s, err := m.record(ctx, c, events.Allocating, threads, objects, "-e", "alloc")
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "alloc_objects", "alloc_space")
	if err != nil {
		return nil, err
	}
	total, err := eventviews.TotalOf(s.recording.Profile, profile.Allocations)
	if err != nil {
		return nil, err
	}
	return judgeAllocations(s.truth, events.Own(rows), total.Within, s.recording.Profile.Comments), nil
}

func judgeAllocations(truth events.Truth, own []events.Row, within float64, notes []string) []verdict {
	const space = 1
	if v := missing(own, notes, []string{"allocations are not recorded", noObjects}, allocated, classes); v != nil {
		return v
	}
	exact := events.Weights{}
	for _, a := range truth.Allocations {
		exact[a.Class] += float64(a.Bytes)
	}
	got := events.ByClass(own, space)
	unnamed, foreign := got[""]/got.Total(), 0.0
	for class, weight := range got {
		if _, known := exact[class]; !known && class != "" {
			foreign += weight / got.Total()
		}
	}
	delete(got, "")
	named := verdict{classes, right, fmt.Sprintf("%.0f %% overlap, %.0f %% without a class, %.0f %% of other classes",
		got.Overlap(exact), 100*unnamed, 100*foreign)}
	switch {
	case foreign > 1-nearlyAll || unnamed <= 1-nearlyAll && got.Overlap(exact) < mix:
		named.state = wrong
	case unnamed > 1-nearlyAll:
		named.state = silent
	}
	return []verdict{sum(allocated, events.Sum(own, space)/1e6, exact.Total()/1e6, within/1e6, "MB"), named}
}

// sum judges a sum of events. Further off than the tolerance, the truth must be within the interval
// of all events that the profile states. That is right if the interval is less than half of the
// truth: a wider one hardly says anything.
func sum(feature string, got, truth, within float64, unit string) verdict {
	interval := fmt.Sprintf("± %.0f", within)
	if math.IsInf(within, 1) {
		interval = "± unknown"
	}
	v := verdict{feature: feature, found: fmt.Sprintf("%.0f %s %s, truth %.0f", got, interval, unit, truth)}
	off := math.Abs(got - truth)
	switch {
	case off <= sumTolerance*truth, off <= within && within < truth/2:
	case off <= within:
		v.state = silent
	default:
		v.state = wrong
	}
	return v
}

// noObjects is the note of JVMs whose heap the agent cannot read.
const noObjects = "The object layout of this JVM is unknown"

// unclear is in the note of waits of threads that were not known, or were parked for an object that
// could not be read.
const unclear = "the blocker of their threads is unknown"

// missing judges features of events of which there is none: the notes must say so, in one of these
// ways. nil if there are some.
func missing(rows []events.Row, notes, says []string, of ...string) (verdicts []verdict) {
	if len(rows) > 0 {
		return nil
	}
	v := verdict{state: wrong, found: "nothing recorded; notes: " + strings.Join(notes, "; ")}
	for _, line := range notes {
		for _, note := range says {
			if i := strings.Index(line, note); i >= 0 && v.state == wrong {
				v.state, v.found = silent, line[i:]
			}
		}
	}
	for _, v.feature = range of {
		verdicts = append(verdicts, v)
	}
	return verdicts
}

// wait judges a profile of locks.
func (m meter) wait(ctx context.Context, c jvm.Command) ([]verdict, error) {
	s, err := m.record(ctx, c, events.Waiting, waiters, waitRounds, "-e", "lock")
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(s.recording.Profile, "contentions", "delay")
	if err != nil {
		return nil, err
	}
	total, err := eventviews.TotalOf(s.recording.Profile, profile.Locks)
	if err != nil {
		return nil, err
	}
	return judgeWaits(s.truth, events.Own(rows), total.Within, s.recording.Stats.EventCost(),
		s.recording.Profile.Comments), nil
}

// judgeTypes wants the waits to have the class of their lock, where any are recorded, or the
// profile to say that they have none.
func judgeTypes(named, marked, all float64, of []verdict) verdict {
	if all > 0 {
		return nearly(lockTypes, int64(named), int64(marked), int64(all), "")
	}
	v := verdict{feature: lockTypes, state: silent, found: "no waits are recorded"}
	if slices.ContainsFunc(of, func(v verdict) bool { return v.state == wrong }) {
		v.state = wrong
	}
	return v
}

// idleTolerance is how much of the waits for work may be counted as contention.
const idleTolerance = 0.01

// judgeWaits judges waits of which a record takes cost. The programs' clocks run on while it is
// made, as the wait is over by then. So it is no part of the truth.
func judgeWaits(
	truth events.Truth, own []events.Row, within float64, cost time.Duration, notes []string,
) (verdicts []verdict) {
	const delay = 1
	const work = "wait" // the kind of waits for work
	contended := events.Where(own, func(r events.Row) bool { return r.Kind != work })
	var named, unnamed, typed float64
	for _, of := range []struct {
		feature string
		says    []string
		library bool
	}{
		{monitors, []string{"waits for monitors are not recorded", noObjects}, false},
		// Without what a thread is parked for, all that it waits for is work.
		{locks, []string{"waits of java.util.concurrent are not recorded", "Thread.parkBlocker was not found",
			noObjects, unclear}, true},
	} {
		var waited time.Duration
		var rows []events.Row
		for _, w := range truth.Waits {
			if strings.HasPrefix(w.Class, "java.") != of.library {
				continue
			}
			waited += w.LongSum
			for _, r := range contended {
				if r.Has(w.Method) {
					rows = append(rows, r)
					typed += r.Values[delay]
					switch r.Class {
					case w.Class:
						named += r.Values[delay]
					case "":
						unnamed += r.Values[delay]
					}
				}
			}
		}
		if v := missing(rows, notes, of.says, of.feature); v != nil {
			verdicts = append(verdicts, v...)
			continue
		}
		waited = max(waited-time.Duration(events.Count(rows))*cost, 0)
		verdicts = append(verdicts, sum(of.feature, events.Sum(rows, delay)/1e6, waited.Seconds()*1e3, within/1e6,
			"ms"))
	}
	if !slices.ContainsFunc(notes, func(note string) bool { return strings.Contains(note, noObjects) }) {
		unnamed = 0 // nobody says that these classes are missing
	}
	verdicts = append(verdicts, judgeTypes(named, unnamed, typed, verdicts))
	var idle time.Duration
	var taken float64
	for _, w := range truth.Idle {
		idle += w.Sum
		taken += events.Sum(events.Where(contended, func(r events.Row) bool { return r.Has(w.Method) }), delay)
	}
	if len(own) == 0 {
		none := judgeTypes(0, 0, 0, verdicts)
		none.feature = apart
		return append(verdicts, none)
	}
	v := verdict{feature: apart, found: fmt.Sprintf("%.0f of %.0f ms counted as contention", taken/1e6,
		idle.Seconds()*1e3)}
	if taken > idleTolerance*float64(idle) {
		v.state = wrong
	}
	return append(verdicts, v)
}
