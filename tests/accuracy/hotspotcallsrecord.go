package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/breakpoints"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// try records a program for several lengths, one after the other, and compares the results with the
// truth. Its logical calls in an iteration are known, or nil.
func (h hotspotManner) try(
	ctx context.Context, m meter, t hotspotTrial, exact *exactIteration,
) (results []hotspotResult, err error) {
	var flags []string
	if t.flag != "" {
		flags = append(flags, t.flag)
	}
	guest, err := suite.StartSmall(ctx, t.jdk, t.program, flags...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, guest.Close()) }()
	if !t.starting {
		if _, err := guest.RunFor(h.warmup); err != nil {
			return nil, err
		}
	}
	var recorded []hotspotRecording
	for _, length := range h.recordings {
		r, err := recordHotspot(ctx, m, guest, length, t)
		if err != nil {
			return nil, err
		}
		recorded = append(recorded, r)
	}
	var truth *replayed
	if !t.logicalOnly() { // code is the same as during the recording
		last := recorded[len(recorded)-1].graphs[physical]
		if truth, err = h.replayCalls(guest, last.found, last.timer); err != nil {
			return nil, fmt.Errorf("replay: %w", err)
		}
		fmt.Fprintf(m.out, "%v: %v\n", t, truth)
	}
	if exact != nil && guest.Checksum() != exact.checksum {
		return nil, fmt.Errorf("checksum %016x, where all calls were counted %016x: %w", guest.Checksum(),
			exact.checksum, suite.ErrDisturbed)
	}
	for _, r := range recorded {
		for _, note := range r.notes {
			fmt.Fprintf(m.out, "%v: %s\n", r.length, note)
		}
		if !t.logicalOnly() {
			results = append(results, r.compare(t, physical, truth.graph, truth.callees))
		}
	}
	if h.logical {
		for _, r := range recorded {
			results = append(results, r.compare(t, logical, exact.graph, nil))
		}
	}
	for _, r := range results {
		r.print(m.out)
	}
	return results, nil
}

// A hotspotRecording is the result of one recording.
type hotspotRecording struct {
	length time.Duration
	graphs map[string]hotspotGraphs // by kind
	cost   float64                  // share of the guest's CPU time
	notes  []string                 // the agent's notes on it
}

// hotspotGraphs are the compared call graphs of one recording.
type hotspotGraphs struct{ found, timer *javaGraph }

// recordHotspot records the guest while it works, with the trial's settings.
func recordHotspot(
	ctx context.Context, m meter, guest *suite.Guest, length time.Duration, t hotspotTrial,
) (hotspotRecording, error) {
	flag := breakpoints.Flag
	if t.unchecked {
		flag = "--breakpoints=never"
	}
	run, err := m.agent.Start(ctx, profiler.Options{PID: guest.PID(), Duration: length, Extra: []string{
		"-e", "cpu,calls", "--engine", "hotspot", "--budget", "1%", "--logical", flag,
	}})
	if err != nil {
		return hotspotRecording{}, err
	}
	if t.starting {
		if err := run.WaitAttached(); err != nil {
			_, stopped := run.Stop()
			return hotspotRecording{}, errors.Join(err, stopped)
		}
	}
	work := harness.StartWork(ctx, guest.RunFor)
	recording, err := run.Finish()
	_, failed := work.Finish()
	if err := errors.Join(err, failed); err != nil {
		return hotspotRecording{}, err
	}
	if err := recording.Stats.CheckIdentities(); err != nil {
		return hotspotRecording{}, err
	}
	return readHotspot(recording, length)
}

func readHotspot(recording *profiler.Recording, length time.Duration) (hotspotRecording, error) {
	p := recording.Profile
	r := hotspotRecording{length: length, graphs: map[string]hotspotGraphs{}}
	for _, kind := range []string{physical, logical} {
		found, err := estimatedCalls(p, kind == logical)
		if err != nil {
			return r, fmt.Errorf("%w; the agent says:\n%s", err, recording.Output)
		}
		r.graphs[kind] = hotspotGraphs{found, sampledEdges(p, kind == logical)}
	}
	if c := recording.Stats.Calls; c != nil && c.GuestTime > 0 {
		r.cost = c.Cost().Seconds() / c.GuestTime.Seconds()
	}
	for _, comment := range p.Comments {
		if strings.Contains(comment, "are estimated") || strings.HasPrefix(comment, "engine hotspot:") {
			r.notes = append(r.notes, comment)
		}
	}
	return r, nil
}
