package agent

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/collect/engines"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/source"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
)

// ticks are the source of samples of CPU time. Where nothing that is wanted comes from samples they
// do not tick: then VMs are looked for instead of being found by samples.
type ticks struct {
	source.Passive
	agent *Agent
	clock clock
	event string // event that is sampled

	mu   sync.Mutex // guards pace
	pace *attach.Pace

	// Of the search for VMs.
	seeking sync.WaitGroup
	endSeek context.CancelFunc // nil if it did not begin
}

// A clock has programs sample.
type clock interface {
	Start() error
	Stop() error
	Refresh() error
	SetPeriod(time.Duration) error
	Gaps(began, ended time.Duration) ([]attach.Gap, error)
	Close() error
}

// atKernelTick reports whether the kernel's own ticks are sampled.
func (a *Agent) atKernelTick() bool { return a.opt.Clock == attach.TickClock && !a.opt.tickless() }

// newTicks opens the clock that the options ask for.
func newTicks(a *Agent, find attach.Functions) (*ticks, error) {
	t := &ticks{agent: a, pace: attach.NewPace(a.period())}
	if a.atKernelTick() {
		k, err := attach.NewKernelTicks(a.services.Objects, a.opt.Frequency, find)
		if err != nil {
			return nil, fmt.Errorf("sample at the kernel's tick: %w", err)
		}
		t.clock, t.event = k, string(attach.TickClock)
		return t, nil
	}
	events, err := attach.NewTicks(a.services.Objects.Tick, a.opt.Frequency)
	if err != nil {
		return nil, err
	}
	t.clock, t.event = events, events.Event
	return t, nil
}

func (t *ticks) Start(ctx context.Context) error {
	if !t.agent.opt.tickless() {
		return t.clock.Start()
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
	return t.clock.Stop()
}

// Refresh follows CPUs that came online or went, and keeps the cost of samples within bounds.
func (t *ticks) Refresh() error { return errors.Join(t.adjust(), t.clock.Refresh()) }

func (t *ticks) Close() error { return t.clock.Close() }

// adjust has samples taken less often while they take more than attach.MaxTickShare of a CPU.
func (t *ticks) adjust() error {
	if t.agent.opt.tickless() {
		return nil
	}
	costs, err := t.agent.services.Objects.TickCosts()
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	period, changed := t.pace.Adjust(monotonic(), costs)
	if !changed {
		return nil
	}
	return t.clock.SetPeriod(period)
}

// paceOf returns the mean period of a window, and a note if it is not the requested one.
func (t *ticks) paceOf(w *source.Closed) (mean time.Duration, note string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	mean, longest := t.pace.Periods(w.Began, w.Ended)
	if base := t.agent.period(); longest > base {
		note = fmt.Sprintf("samples were up to %.1f ms apart instead of %.1f ms to use at most %.0f %% of a CPU: "+
			"stacks took long to walk",
			longest.Seconds()*1e3, base.Seconds()*1e3, 100*attach.MaxTickShare)
	}
	return mean, note
}

// tickBias says what samples at the kernel's tick may get wrong.
const tickBias = "samples are taken at the kernel's timer tick: code that runs in step with the tick, such as code " +
	"started by timers, may have too many or too few samples; --clock=cpu-clock uses its own timer"

// Fill implements source.Filler.
func (t *ticks) Fill(_ context.Context, w *source.Closed, p *profile.Profile) source.Part {
	p.Event = t.event
	if !t.agent.opt.tickless() {
		var note string
		if p.Period, note = t.paceOf(w); note != "" {
			p.Comments = append(p.Comments, note)
		}
		gaps, err := t.clock.Gaps(w.Began, w.Ended)
		if err != nil {
			t.agent.services.Log.Warn("cannot follow CPUs that went online or offline", "err", err)
		}
		w.Unsampled = unsampledCPUs(gaps)
		for _, u := range w.Unsampled {
			p.Comments = append(p.Comments, fmt.Sprintf("CPU %d was not sampled for %.1f s: it went offline and came "+
				"back, or the machine was suspended", u.CPU, u.Time.Seconds()))
		}
	}
	if t.event == string(attach.TickClock) {
		p.Comments = append(p.Comments, tickBias)
	}
	return source.Part{}
}

// unsampledCPUs are the CPUs with gaps, each with the sum of its gaps.
func unsampledCPUs(gaps []attach.Gap) (all []source.Unsampled) {
	for _, g := range gaps {
		at := slices.IndexFunc(all, func(u source.Unsampled) bool { return u.CPU == g.CPU })
		if at < 0 {
			at, all = len(all), append(all, source.Unsampled{CPU: g.CPU})
		}
		all[at].Time += g.Ended - g.Began
	}
	return all
}

// counted reports whether profiles have CPU time.
func (o *Options) counted() bool { return !o.NoTime && !o.tickless() }

// tickless reports whether nothing that is wanted comes from ticks.
func (o *Options) tickless() bool {
	if o.Calls != nil {
		return o.Calls.Exact != engines.NotExact
	}
	return o.Events != nil && o.NoTime && !o.Events.MonitorEnters && !o.Events.Wall()
}
