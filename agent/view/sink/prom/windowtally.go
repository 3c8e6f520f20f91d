package prom

import (
	"maps"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// windowTotals adds up the samples of windows by what became of them.
type windowTotals struct {
	windows uint64

	// Samples.
	complete  uint64
	truncated map[string]uint64 // by reason

	// Samples by how their context was found, and those whose context is not certain; nil if all
	// stacks are walked.
	contexts, uncertain map[string]uint64

	// Frames of all samples: a frame in ten samples counts ten times.
	named, stale, unknown uint64
}

// windowTally makes windowTotals. The zero value is ready to use.
type windowTally struct {
	mu  sync.Mutex
	sum windowTotals
}

func (t *windowTally) add(p *profile.Profile) {
	frames := countFrames(p)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sum.windows++
	t.addContexts(p)
	t.sum.complete += less(p.Counts.Folded, total(p.Counts.Truncated)+unplaced(p))
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

func (t *windowTally) addContexts(p *profile.Profile) {
	for _, proc := range p.Processes {
		c := proc.Contexts
		if c == nil {
			continue
		}
		if t.sum.contexts == nil {
			t.sum.contexts, t.sum.uncertain = make(map[string]uint64), make(map[string]uint64)
		}
		t.sum.contexts["walked"] += c.Walked
		t.sum.contexts["linked"] += c.Linked
		t.sum.uncertain[profile.Ambiguous.String()] += c.Ambiguous
		t.sum.uncertain[profile.Fitted.String()] += c.Fitted
		t.sum.uncertain[profile.Unplaced.String()] += c.Unplaced
	}
}

// unplaced counts samples of which not all callers are known although no walk ended early.
func unplaced(p *profile.Profile) (n uint64) {
	for _, proc := range p.Processes {
		if proc.Contexts != nil {
			n += proc.Contexts.Unplaced
		}
	}
	return n
}

func (t *windowTally) totals() windowTotals {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.sum
	sum.truncated = maps.Clone(sum.truncated)
	sum.contexts, sum.uncertain = maps.Clone(sum.contexts), maps.Clone(sum.uncertain)
	return sum
}

func countFrames(p *profile.Profile) (frames uint64) {
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
