package hotspot

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
)

// members are the processes that a Counter or a Follower works in, each by a goroutine of its own.
// The zero value has none.
type members[M member] struct {
	list   []M
	cancel context.CancelFunc // nil until they run
	runs   sync.WaitGroup
}

// A member is what a Counter or a Follower knows of one process.
type member interface {
	run(context.Context) error // runs until the context is done, or the process has ended
	close() error
	pid() int
	how() *ending
}

// An ending is how a member's run ended. Members embed it, and have mu guard what else others read
// of them.
type ending struct {
	mu     sync.Mutex
	failed error
}

func (e *ending) how() *ending { return e }

// attach attaches to JVMs, and makes a member of each. If it fails, they are closed.
func (m *members[M]) attach(ctx context.Context, opt *Options, of func(*process) M) error {
	pool := proc.NewPool(proc.PoolOptions{})
	for _, pid := range opt.PIDs {
		p, err := attachProcess(ctx, opt.Root, pool, pid, opt.Method)
		if err != nil {
			return errors.Join(err, m.close())
		}
		m.list = append(m.list, of(p))
	}
	return nil
}

// start has all of them run.
func (m *members[M]) start() {
	run, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	for _, g := range m.list {
		m.runs.Go(func() {
			err := proc.Catch(func() error { return g.run(run) })
			e := g.how()
			e.mu.Lock()
			defer e.mu.Unlock()
			e.failed = err
		})
	}
}

// close ends them.
func (m *members[M]) close() error {
	if m.cancel != nil {
		m.cancel()
		m.runs.Wait()
	}
	var errs []error
	for _, g := range m.list {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// err is why one of them does not run any more, given what they do; nil if they run, or their
// processes have ended.
func (m *members[M]) err(doing string) error {
	for _, g := range m.list {
		e := g.how()
		e.mu.Lock()
		err := e.failed
		e.mu.Unlock()
		if err != nil && !errors.Is(err, context.Canceled) && !errors.Is(err, proc.ErrGone) {
			return fmt.Errorf("%s in process %d: %w", doing, g.pid(), err)
		}
	}
	return nil
}
