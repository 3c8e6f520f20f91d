package agent

import (
	"context"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/source"
)

// ticks are the source of samples of CPU time. Where nothing that is wanted comes from samples they do not tick: then VMs are
// looked for instead of being found by samples.
type ticks struct {
	source.Passive
	agent  *Agent
	events *attach.Ticks

	// Of the search for VMs.
	seeking sync.WaitGroup
	endSeek context.CancelFunc // nil if it did not begin
}

func newTicks(a *Agent) (*ticks, error) {
	events, err := attach.NewTicks(a.services.Objects.Tick, a.opt.Frequency)
	if err != nil {
		return nil, err
	}
	return &ticks{agent: a, events: events}, nil
}

func (t *ticks) Start(ctx context.Context) error {
	if !t.agent.opt.tickless() {
		return t.events.Start()
	}
	ctx, t.endSeek = context.WithCancel(ctx)
	t.seeking.Go(func() { t.agent.seek(ctx) })
	return nil
}

func (t *ticks) Stop() error {
	if t.endSeek != nil {
		t.endSeek()
		t.seeking.Wait()
	}
	return t.events.Stop()
}

func (t *ticks) Refresh() error { return t.events.Refresh() }
func (t *ticks) Close() error   { return t.events.Close() }

// Fill implements source.Filler.
func (t *ticks) Fill(_ context.Context, _ *source.Closed, p *profile.Profile) source.Part {
	p.Event = t.events.Event
	return source.Part{}
}

// tickless reports whether nothing that is wanted comes from ticks.
func (o *Options) tickless() bool {
	if o.Calls != nil {
		return o.Calls.Exact != engines.NotExact
	}
	return o.Events != nil && o.NoTime && !o.Events.MonitorEnters
}
