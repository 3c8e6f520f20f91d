package stacks

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pprof "github.com/google/pprof/profile"
)

// Sum adds up one value of all samples, or of those to keep; it is 0 if they do not have it. It is
// not an integer because integers of a hostile file could wrap.
func Sum(p *pprof.Profile, sampleType string, keep func(*pprof.Sample) bool) (sum float64) {
	index := slices.IndexFunc(p.SampleType, func(t *pprof.ValueType) bool { return t.Type == sampleType })
	if index < 0 {
		return 0
	}
	for _, sample := range p.Sample {
		if keep == nil || keep(sample) {
			sum += float64(sample.Value[index])
		}
	}
	return sum
}

// Elapsed says how much CPU time a profile holds and how long it took, as far as it says so.
func Elapsed(p *pprof.Profile) string {
	var parts []string
	if cpu := Sum(p, "cpu", nil); cpu > 0 {
		parts = append(parts, fmt.Sprintf("%.2f s of CPU time", cpu/float64(time.Second)))
	}
	if p.DurationNanos > 0 {
		parts = append(parts, fmt.Sprintf("in %.2f s", time.Duration(p.DurationNanos).Seconds()))
	}
	if len(parts) == 0 {
		return ""
	}
	return ", " + strings.Join(parts, " ")
}
