package listener

import (
	"context"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// Listen watches entries of one process until the window's end, and returns the calls that arrived.
// If another watch of the process is open, it waits. ErrJump, watch.ErrChanged and errors for which
// watch.Refused is true are temporary: another window may succeed. When ctx is done, the window is
// closed and void. Result.Cost is set even if a window failed.
func (l *Listener) Listen(ctx context.Context, g Guest, entries []Entry, w Window) (r Result, err error) {
	if err := w.check(len(entries)); err != nil {
		return r, err
	}
	var before snapshot
	request := watch.Request{
		Identity: g.Identity, Addresses: addresses(entries), Threads: g.Threads, Duration: w.Duration, Hits: w.MaxHits,
		Deliver: w.Deliver,
		Before: func() (err error) {
			before, err = snap(&g, entries)
			return err
		},
	}
	var kernel bpf.CallWatch
	if r.Observation, err = l.observer.Watch(ctx, request, &kernel); err != nil {
		return r, err
	}
	hits := hitsOf(&kernel)
	if err := before.check(hits); err != nil {
		return r, err
	}
	r.Hits = hits
	return r, nil
}
