package rule

import (
	"context"
	"fmt"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/view/report/stacks"
)

// Filter returns a profile with the samples of p that meet a condition, in which value is that of
// the profile's default sample type.
func Filter(ctx context.Context, p *pprof.Profile, condition *Expression) (*pprof.Profile, error) {
	column, err := p.SampleIndexByName("")
	if err != nil {
		return nil, fmt.Errorf("filter samples: %w", err)
	}
	reader := NewReader(p, column)
	return stacks.Where(p, condition.String(), func(sample *pprof.Sample) (bool, error) {
		reader.Set(sample)
		return condition.True(ctx, reader)
	})
}
