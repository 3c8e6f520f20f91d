package sink

import (
	"cmp"
	"maps"
	"slices"
	"time"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/symbolize/symbol"
)

// slow appends the slowest invocations of all processes, the slowest first. The numeric label call
// numbers them from 1.
func (b *pprofBuilder) slow(p *profile.Profile) error {
	type slowCall struct {
		*profile.SlowCall
		of *profile.Process
	}
	var all []slowCall
	for _, proc := range p.Processes {
		for i := range proc.Slow {
			all = append(all, slowCall{&proc.Slow[i], proc})
		}
	}
	slices.SortStableFunc(all, func(a, b slowCall) int { return cmp.Compare(b.Length, a.Length) })
	for i, call := range all[:min(len(all), profile.MaxSlowCalls)] {
		numbers := b.numbers(call.of)
		numbers[stored.LabelTID] = []int64{int64(call.TID)}
		numbers[stored.LabelCall] = []int64{int64(i + 1)}
		labels := processLabels(call.of)
		setLabel(labels, stored.LabelThread, call.Thread)
		setLabel(labels, stored.LabelStart, call.Start.UTC().Format(time.RFC3339Nano))
		setLabel(labels, stored.LabelEnd, call.End.String())
		times := make([]float64, len(call.Parts))
		for i := range call.Parts {
			times[i] = call.Parts[i].Time
		}
		whole, err := apportion(times)
		if err != nil {
			return err
		}
		for i := range call.Parts {
			part := &call.Parts[i]
			if whole[i] == 0 {
				continue
			}
			of := maps.Clone(labels)
			setLabel(of, stored.LabelState, part.State)
			setLabel(of, stored.LabelCause, part.Cause)
			b.profile.Sample = append(b.profile.Sample, &pprof.Sample{
				Location: b.locationsOf(part.Stack), Value: b.content.slowValues(whole[i]), Label: of,
				NumLabel: numbers,
			})
		}
	}
	return nil
}

// locationsOf returns the locations of a stack, innermost first. There is always one.
func (b *pprofBuilder) locationsOf(stack []symbol.Symbol) (locations []*pprof.Location) {
	if len(stack) == 0 {
		stack = []symbol.Symbol{noFrame}
	}
	var inlined *pprof.Location // lines so far of the location that is being put together
	for i, symbol := range stack {
		inlined = b.location(inlined, symbol)
		if !symbol.Inlined() || i == len(stack)-1 {
			locations = append(locations, b.complete(inlined))
			inlined = nil
		}
	}
	return locations
}
