package agent

import (
	"context"
	"sync"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/attach"
)

// ticks are the source of samples of CPU time. Where nothing that is wanted comes from samples they do not tick: then VMs are
// looked for instead of being found by samples.
type ticks struct {
	passive
	agent  *Agent
	events *attach.Ticks

	// Of the search for VMs.
	seeking sync.WaitGroup
	endSeek context.CancelFunc // nil if it did not begin
}

func newTicks(a *Agent) (*ticks, error) {
	events, err := attach.NewTicks(a.objects.Tick, a.opt.Frequency)
	if err != nil {
		return nil, err
	}
	return &ticks{agent: a, events: events}, nil
}

func (t *ticks) start(ctx context.Context) error {
	if !t.agent.opt.tickless() {
		return t.events.Start()
	}
	ctx, t.endSeek = context.WithCancel(ctx)
	t.seeking.Go(func() { t.agent.seek(ctx) })
	return nil
}

func (t *ticks) stop() error {
	if t.endSeek != nil {
		t.endSeek()
		t.seeking.Wait()
	}
	return t.events.Stop()
}

func (t *ticks) refresh() error { return t.events.Refresh() }
func (t *ticks) close() error   { return t.events.Close() }

func (t *ticks) fill(_ context.Context, _ *closedWindow, p *profile.Profile) (finish func()) {
	p.Event = t.events.Event
	return nil
}

// tickless reports whether nothing that is wanted comes from ticks.
func (o *Options) tickless() bool {
	if o.Calls != nil {
		return o.Calls.Exact != NotExact
	}
	return o.Events != nil && o.NoTime && !o.Events.MonitorEnters
}
