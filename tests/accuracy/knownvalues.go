package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/php"
)

// valueIntervals are the sampling intervals, in executions of the probe. The second is coprime to
// the 101 calls of a round.
var valueIntervals = []int{1, 97}

const (
	// valueRounds make 202,000 calls.
	valueRounds = 2000
	// leastSamples is the number of samples that a share needs to be judged: with fewer, errors are
	// not nearly normally distributed.
	leastSamples = 5
	// valueProbe is PHP's probe at the entry of a function, and its first operand: the function's
	// name.
	valueProbe = "usdt:php:function__entry=arg1:str"
)

// measureValues records a PHP program that reports how often it calls each function, by the names
// of the functions.
func (t eventTrial) measureValues(ctx context.Context, m meter) ([]figure, error) {
	var every int
	if _, err := fmt.Sscanf(t.setting, "every %d", &every); err != nil {
		return nil, err
	}
	calls, err := php.Truth()
	if err != nil {
		return nil, err
	}
	guest, err := php.Start(ctx, php.Known, php.Traced)
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	recording, err := m.recordWork(ctx, guest.PID(), func() error {
		_, err := guest.Run(valueRounds)
		return err
	}, "-e", "value", "--probe", fmt.Sprintf("%s/%d", valueProbe, every))
	if err != nil {
		return nil, err
	}
	rows, err := events.Read(recording.Profile, "executions")
	if err != nil {
		return nil, err
	}
	truth := functionCalls(calls, valueRounds)
	truth["all"]++ // the order to run, which is not part of a round
	return judgeValues(truth, rows, every, recording.Stats.LostEvents()), nil
}

// functionCalls is how often each function is called in that many rounds, by its name without its
// class.
func functionCalls(calls map[php.Call]int, rounds int) events.Weights {
	w := events.Weights{}
	for call, n := range calls {
		name := call.Callee
		if i := strings.LastIndex(name, "::"); i >= 0 {
			name = name[i+2:]
		}
		w[name] += float64(n * rounds)
	}
	return w
}

// judgeValues requires every execution if all were sampled, and shares within the noise if some
// were. Of lost ones, as many as the agent reports, the values are unknown: the agent has those of
// the others stand for them. But none has the value of another one.
func judgeValues(truth events.Weights, rows []events.Row, every int, lost uint64) (figures []figure) {
	recorded, n := events.ByValue(rows, 0), events.Count(rows)
	figures = append(figures, figure{
		group: "executions", truth: truth.Total(), measured: recorded.Total(),
		// each may have begun to count when it was over
		tolerance: float64(every-1)*float64(max(len(rows), 1)) + float64(lost),
	})
	if every == 1 {
		figures = append(figures,
			figure{group: "records, with lost ones", truth: truth.Total(), measured: float64(n) + float64(lost)},
			figure{group: "lost records", measured: float64(lost), aim: true},
			figure{group: "records with a wrong value", measured: wrongValues(truth, rows)})
	}
	for _, name := range slices.Sorted(maps.Keys(truth)) {
		times := truth[name]
		if every == 1 {
			figures = append(figures, figure{
				group: "executions with a value", what: name, truth: times, measured: recorded[name],
				tolerance: float64(lost),
			})
			continue
		}
		if n > 0 && times/float64(every) < leastSamples {
			continue
		}
		figures = append(figures, sampledShare(figure{
			group: "share of a value", what: name, truth: times / truth.Total(),
			measured: share(recorded[name], recorded.Total()),
		}, n))
	}
	return figures
}

// wrongValues is how many records have a value more often than there were executions with it.
func wrongValues(truth events.Weights, rows []events.Row) (wrong float64) {
	records := events.Weights{}
	for _, row := range rows {
		records[row.Value] += float64(row.Count)
	}
	for value, n := range records {
		wrong += max(n-truth[value], 0)
	}
	return wrong
}
