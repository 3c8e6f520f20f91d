package agent

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/fold"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// Bounds of first readings.
const (
	// young is the age up to which all counters of a JVM are read when it is met. A young JVM calls methods soon that
	// it has not called yet, and has few classes: to list methods takes some 10 ms per thousand classes.
	young         = time.Minute
	meetDeadline  = 3 * time.Second // for all that are met at once
	maxCountsKept = 4 * maxProfiled // methods that a window knows the first counts of, some 150 bytes each
)

// meet reads the counters of all methods of JVMs that have just started, so that it is known what they count from then on.
// It is done as soon as there is a sample: what is counted before is in no estimate.
func (e *estimator) meet(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, meetDeadline)
	defer cancel()
	for _, p := range e.strangers() {
		if ctx.Err() != nil {
			return // the next time
		}
		e.met[p] = struct{}{}
		if p.Identity().Age() <= young {
			e.agent.resolver.Attempt(target.StageListen, p.Process, func() { e.readFirst(ctx, p) })
		}
	}
}

// strangers are JVMs that were sampled, and have not been met.
func (e *estimator) strangers() (list []*fold.Process) {
	maps.DeleteFunc(e.met, func(p *fold.Process, _ struct{}) bool { return p.Exited.Load() })
	e.agent.mu.Lock()
	defer e.agent.mu.Unlock()
	for _, p := range e.agent.table {
		if _, met := e.met[p]; !met && len(p.Top.Edges) > 0 && !p.Exited.Load() && p.Attachment.Load() != 0 {
			list = append(list, p)
		}
	}
	return list
}

// readFirst reads all counters of p, for the windows that are open. Without it, counters are read of methods that are sampled.
func (e *estimator) readFirst(ctx context.Context, p *fold.Process) {
	began := monotonic()
	err := e.agent.resolver.WithVM(ctx, p.Process, func(g *target.VM) error {
		vm, err := target.As[vmruntime.MethodCounter](g)
		if err != nil {
			return err
		}
		r, err := readAll(vm)
		if err == nil && len(r.counted) > maxCountsKept {
			err = fmt.Errorf("%d methods have been called, more than %d", len(r.counted), maxCountsKept)
		}
		if err == nil {
			e.agent.markReading(p, &r)
		}
		return err
	})
	if err != nil {
		e.log.Debug("cannot read all counters of a JVM", "pid", p.PID, "err", err)
		return
	}
	e.log.Debug("read all counters of a JVM", "pid", p.PID, "took", monotonic()-began)
}

// markReading notes for windows that are open what p's counters were, where they do not know that yet;
// agent.mu is not held.
func (a *Agent) markReading(p *fold.Process, r *profileReading) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for w := range a.windows {
		if w.processes[p] != nil {
			w.callSet(p).reading.merge(r)
		}
	}
}
