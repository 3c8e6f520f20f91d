package top

import (
	"context"
	"errors"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
	"github.com/vmprof-agent/vmprof-agent/agent/collect/events"
	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// An eventState is what there is to say of a kind of events before its first window.
type eventState struct {
	kind profile.EventKind
	text string
}

// An eventRecorder records the kind of events whose view is open, by an agent of its own: probes
// are attached when the view opens, and detached when it closes.
type eventRecorder struct {
	options  agent.Options
	follower *follower
	interval time.Duration
	budget   float64
	wanted   chan int // the kind, or none
	states   chan eventState
	show     func(topWindow)

	last int // that want was called with, as one above; used by its caller
}

const noEvents = -1

// want says which kind is to be recorded, if any. It does not wait.
func (r *eventRecorder) want(kind profile.EventKind, any bool) {
	wanted := noEvents
	if any {
		wanted = int(kind)
	}
	if wanted+1 == r.last {
		return
	}
	r.last = wanted + 1
	select {
	case <-r.wanted: // nobody has seen it yet
	default:
	}
	r.wanted <- wanted
}

// run records what is wanted until ctx ends.
func (r *eventRecorder) run(ctx context.Context) error {
	kind := noEvents
	for {
		var stop context.CancelFunc
		ended := make(chan struct{})
		if kind == noEvents {
			close(ended)
		} else {
			var recording context.Context
			recording, stop = context.WithCancel(ctx)
			go func() {
				defer close(ended)
				of := profile.EventKind(kind)
				r.say(ctx, of, "attaching probes; the first "+of.String()+" events come in some seconds")
				// What fails here costs this view only.
				if err := proc.Catch(func() error { return r.record(recording, of) }); err != nil &&
					recording.Err() == nil {
					r.say(ctx, of, "cannot record: "+err.Error())
				}
			}()
		}
		select {
		case <-ctx.Done():
		case kind = <-r.wanted:
		}
		if stop != nil {
			stop()
		}
		<-ended
		if ctx.Err() != nil {
			return nil
		}
	}
}

func (r *eventRecorder) say(ctx context.Context, kind profile.EventKind, text string) {
	select {
	case r.states <- eventState{kind, text}:
	case <-ctx.Done():
	}
}

// record records one kind until ctx ends.
func (r *eventRecorder) record(ctx context.Context, kind profile.EventKind) error {
	options := r.options
	options.PIDs = r.follower.pids()
	options.NoTime = true
	options.Events = &events.Options{Budget: r.budget}
	options.Events.Kinds[kind] = true
	a, err := agent.New(ctx, options)
	if err != nil {
		return err
	}
	defer a.Close()
	leave, err := r.follower.join(a)
	if err != nil {
		return err
	}
	defer leave()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		err := proc.Catch(func() error { return a.Run(ctx) })
		stop()
		ended <- err
	}()
	first := true
	err = a.Follow(ctx, r.interval, func(p *profile.Profile) {
		r.show(topWindow{p, true, kind})
		if first {
			r.say(ctx, kind, "")
			first = false
		}
	})
	stop()
	return errors.Join(err, <-ended)
}
