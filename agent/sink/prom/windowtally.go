package prom

import (
	"maps"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// windowTotals adds up what windows tell about their samples.
type windowTotals struct {
	windows uint64

	// Samples.
	complete  uint64
	truncated map[string]uint64 // by reason

	// Frames of all samples: a frame in ten samples counts ten times.
	named, stale, unknown uint64
}

// windowTally makes windowTotals. The zero value is ready to use.
type windowTally struct {
	mu  sync.Mutex
	sum windowTotals
}

func (t *windowTally) add(p *agent.Profile) {
	frames := countFrames(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.windows++
	t.sum.complete += less(p.Counts.Folded, total(p.Counts.Truncated))
	t.sum.named += less(frames, p.Counts.Stale+p.Counts.Unknown)
	t.sum.stale += p.Counts.Stale
	t.sum.unknown += p.Counts.Unknown
	if t.sum.truncated == nil {
		t.sum.truncated = make(map[string]uint64)
	}
	for reason, n := range p.Counts.Truncated {
		t.sum.truncated[reason] += n
	}
}

func (t *windowTally) totals() windowTotals {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.sum
	sum.truncated = maps.Clone(sum.truncated)
	return sum
}

func countFrames(p *agent.Profile) (frames uint64) {
	for _, proc := range p.Processes {
		for _, thread := range proc.Threads {
			if thread.Tree == nil {
				continue
			}
			for _, node := range thread.Tree.Nodes() {
				frames += node.Self * uint64(node.Depth)
			}
		}
	}
	return frames
}
