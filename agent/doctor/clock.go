package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// A TickTrial prepares samples at the kernel's own tick, as recording with --clock=tick does, and
// takes no sample. It returns the highest rate of samples in Hz.
type TickTrial func(ctx context.Context) (hz int, err error)

// findClock reports which clock recording takes by default, and whether the other one works here.
// It only informs, as none but the default is needed.
func findClock(ctx context.Context, env *Env) []Finding {
	if env.Tick == nil {
		return nil
	}
	result := Result{Status: Info}
	hz, err := env.Tick(ctx)
	if err != nil {
		result.Detail = fmt.Sprintf("%s by default; --clock=%s does not work: %s", attach.CPUClock, attach.TickClock,
			strings.ReplaceAll(err.Error(), "\n", "; "))
	} else {
		result.Detail = fmt.Sprintf("%s by default; --clock=%s works up to %d Hz", attach.CPUClock, attach.TickClock,
			hz)
	}
	return []Finding{{"clock", "clock", result}}
}
