package api

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/history"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

// Services whose use varies have no change by chance.
func TestRatesNoFalseAlarm(t *testing.T) {
	const services, rounds = 40, 25
	random := rand.New(rand.NewPCG(5, 1))
	cpu := []ratedKind{{&Kind{Content: sink.Time}, "nanoseconds", 2e7, nil}}
	alarms := 0
	for range rounds {
		var list []history.Slice
		values := make([][]float64, services)
		for n := range 30 {
			at := time.Unix(int64(10*n), 0)
			list = append(list, history.Slice{Start: at, End: at.Add(10 * time.Second), Covered: 10 * time.Second})
			for i := range values {
				values[i] = append(values[i], 1e7*math.Round(float64(20+30*i)*math.Exp(0.2*random.NormFloat64())))
			}
		}
		for _, c := range changesOf(list, [2]timeRange{{time.Unix(0, 0), time.Unix(200, 0)},
			{time.Unix(200, 0), time.Time{}}}, cpu, values) {
			if c != nil {
				alarms++
			}
		}
	}
	if alarms > 1 {
		t.Errorf("%d false alarms in %d rounds of %d services", alarms, rounds, services)
	}
}

// Samples of less than a minute have their times to 20 ms, of all processes and of one; other times
