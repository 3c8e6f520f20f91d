package doctor

import (
	"context"
	"strings"
)

// An OffCPUTrial loads and attaches what records off-CPU time, as recording does, and records
// nothing.
type OffCPUTrial func(ctx context.Context) error

// findOffCPU reports whether off-CPU time can be recorded. Nothing else needs that.
func findOffCPU(ctx context.Context, env *Env) []Finding {
	if env.OffCPU == nil {
		return nil
	}
	result := ok("-e offcpu and -e wall work")
	if err := env.OffCPU(ctx); err != nil {
		result = Result{Limited, strings.ReplaceAll(err.Error(), "\n", "; "),
			"Off-CPU time and wall time (-e offcpu, -e wall) cannot be recorded: BPF programs cannot follow the " +
				"scheduler.",
			"Boot Linux 6.15 or newer, or a kernel with CONFIG_FUNCTION_TRACER and CONFIG_DEBUG_INFO_BTF, such as a " +
				"distribution's kernel for x86_64. " +
				"If a line above says missing, fix that first."}
	}
	return []Finding{{"offcpu", "off-CPU time", result}}
}
