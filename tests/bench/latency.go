package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/report"
)

// A latencyManner says how much to measure of what `serve` does to the latency of requests.
type latencyManner struct {
	rounds int
	turn   time.Duration // length of a turn of requests
	starts int           // turns in which `serve` starts
}

var (
	longLatency  = latencyManner{rounds: 7, turn: 5 * time.Second, starts: 12}
	shortLatency = latencyManner{rounds: 1, turn: 500 * time.Millisecond, starts: 1}
)

// startTime is how long the latency is measured from the start of `serve` on.
const startTime = 3 * time.Second

// serving are the events that `serve` records while requests are measured.
var serving = []string{"cpu", "cpu,alloc,lock,wall"}

// percentiles are those of the latencies of a turn.
var percentiles = []float64{0.5, 0.99, 0.999}

// latency returns the part that measures a server that uses that share of all CPUs.
func latency(share float64) func(bench, context.Context) ([]harness.Table, error) {
	marker := fmt.Sprintf("latency-%.0f", 100*share)
	return func(b bench, ctx context.Context) ([]harness.Table, error) {
		l, err := b.startLoad(ctx, share)
		if err != nil {
			return nil, err
		}
		defer l.close()
		how := b.how.latency
		off := func() (latencies, error) { return l.run(how.turn) }
		on := func(events string) (latencies, error) {
			s, err := b.agent.Serve(ctx, "-e", events)
			if err != nil {
				return nil, err
			}
			time.Sleep(startTime) // has its row elsewhere
			measured, err := l.run(how.turn)
			_, ended := s.Interrupt()
			return measured, errors.Join(err, ended)
		}
		turns, err := harness.Alternate(harness.Rotated(how.rounds, serving), off, on, nil)
		if err != nil {
			return nil, err
		}
		table := report.Table{Header: latencyHeader(fmt.Sprintf("%.0f requests a second, %.0f %% of the CPUs", l.rate,
			100*share))}
		addLatencies(&table, turns, serving, func(events string) string { return "`serve -e " + events + "`" })
		return []harness.Table{{Marker: marker, Table: table}}, nil
	}
}

// latencyStart measures a server while `serve` starts.
func (b bench) latencyStart(ctx context.Context) ([]harness.Table, error) {
	l, err := b.startLoad(ctx, 0.3)
	if err != nil {
		return nil, err
	}
	defer l.close()
	var s *profiler.Server
	on := func(string) (measured latencies, err error) {
		started := make(chan error, 1)
		go func() {
			var err error
			s, err = b.agent.Serve(ctx, "-e", serving[1])
			started <- err
		}()
		measured, err = l.run(startTime)
		return measured, errors.Join(err, <-started)
	}
	off := func() (latencies, error) {
		if s != nil {
			if _, err := s.Interrupt(); err != nil {
				return nil, err
			}
			s = nil
		}
		return l.run(startTime)
	}
	turns, err := harness.Alternate(harness.Rotated(b.how.latency.starts, serving[1:]), off, on, nil)
	if err != nil {
		return nil, err
	}
	table := report.Table{Header: latencyHeader(fmt.Sprintf("%.0f requests a second, 30 %% of the CPUs", l.rate))}
	addLatencies(&table, turns, serving[1:], func(events string) string { return "start of `serve -e " + events + "`" })
	return []harness.Table{{Marker: "latency-start", Table: table}}, nil
}

func latencyHeader(what string) []string {
	header := []string{what}
	for _, p := range percentiles {
		name := "p" + strings.TrimSuffix(strings.TrimRight(fmt.Sprintf("%.1f", 100*p), "0"), ".")
		header = append(header, name+", ms", name+" over that without", name+", nobody")
	}
	return header
}

func addLatencies(
	table *report.Table, turns *harness.Turns[string, latencies], kinds []string, name func(string) string,
) {
	milliseconds := func(d time.Duration) string { return fmt.Sprintf("%.2f", 1e3*d.Seconds()) }
	without := []string{"without"}
	for _, p := range percentiles {
		var all latencies
		for _, l := range turns.Off {
			all = append(all, l.percentile(p))
		}
		without = append(without, milliseconds(all.percentile(0.5)), "", "")
	}
	table.Add(without...)
	for _, kind := range kinds {
		cells := []string{name(kind)}
		for _, p := range percentiles {
			over, control := turns.Ratios(kind, func(l latencies) float64 { return l.percentile(p).Seconds() })
			var all latencies
			for _, turn := range turns.On {
				if turn.Kind == kind {
					all = append(all, turn.Sample.percentile(p))
				}
			}
			cells = append(cells, milliseconds(all.percentile(0.5)), harness.RatioOf(over).String(),
				harness.RatioOf(control).String())
		}
		table.Add(cells...)
	}
}

// startServed starts the server, and returns its port.
func startServed(ctx context.Context, jdk jvm.JDK) (*jvm.Guest, string, error) {
	classes, err := guests.Compile(ctx, jdk)
	if err != nil {
		return nil, "", err
	}
	guest, err := jvm.Start(ctx, jvm.Command{
		JDK: jdk, Flags: []string{"-Xms256m", "-Xmx256m", "-XX:+UseSerialGC"}, Classpath: []string{classes},
		Main: "guest.Served",
	})
	if err != nil {
		return nil, "", fmt.Errorf("start the server: %w", err)
	}
	lines, err := guest.Order("")
	if err != nil || len(lines) != 1 {
		return nil, "", errors.Join(fmt.Errorf("the server's port: %q", lines), err, guest.Close())
	}
	return guest, lines[0], nil
}
