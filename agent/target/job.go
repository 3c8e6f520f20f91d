package target

import (
	"cmp"
	"context"
	"fmt"
	"iter"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// A job is something to be done with what belongs to the worker that has a process.
type job struct {
	ctx  context.Context // nobody waits any more when it has ended
	do   func() error
	done chan error // holds one
}

// WithVM has p's worker call do with p's VM, and returns the error of do. It is proc.ErrGone if p has ended or has no VM. If ctx
// ends first, do may still run to its end: it must not write where the caller reads.
func (rs *Resolver) WithVM(ctx context.Context, p *Process, do func(*VM) error) error {
	return rs.WithWorker(ctx, p, func() error {
		if g := p.work.vm; g != nil {
			return do(g)
		}
		return fmt.Errorf("process %d has no VM: %w", p.PID, proc.ErrGone)
	})
}

// WithWorker is WithVM for what needs no VM.
func (rs *Resolver) WithWorker(ctx context.Context, p *Process, do func() error) error {
	j := job{ctx, do, make(chan error, 1)}
	p.mu.Lock()
	p.jobs = append(p.jobs, j)
	p.mu.Unlock()
	rs.queue.submit(p)
	select {
	case err := <-j.done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// doJobs does what others have left for p's worker.
func (p *Process) doJobs() {
	p.mu.Lock()
	jobs := p.jobs
	p.jobs = nil
	p.mu.Unlock()
	var failed error
	for _, j := range jobs {
		err := cmp.Or(failed, j.ctx.Err())
		if err == nil {
			err = proc.Catch(j.do)
		}
		if _, ok := err.(*proc.PanicError); ok {
			failed = err // what the others would use may be half changed
		}
		j.done <- err
	}
	proc.Repanic(failed)
}

// ClassNames has p's worker name classes of its VM, by address; those that cannot be named are missing. Addresses are valid until
// classes are unloaded.
func (rs *Resolver) ClassNames(ctx context.Context, p *Process, klasses iter.Seq[uint64]) (map[uint64]string, error) {
	done := make(chan map[uint64]string, 1)
	err := rs.WithVM(ctx, p, func(g *VM) error {
		reader, err := As[vmruntime.ClassReader](g)
		if err != nil {
			return err
		}
		names := map[uint64]string{}
		epoch := rs.ClassEpoch(g)
		for klass := range klasses {
			if name, err := reader.ClassName(klass, epoch); err == nil {
				names[klass] = name
			}
		}
		done <- names
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("name classes: %w", err)
	}
	return <-done, nil
}
