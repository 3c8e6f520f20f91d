package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/cct"
	"github.com/vmprof-agent/vmprof-agent/tests/guests"
	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
)

// A paced guest knows how long its iterations take.
type paced struct {
	callGuest
	name      string
	iteration time.Duration // CPU time without the agent, approximately
}

// recorded is the result of a guest's turn. The agent's results exist only for turns with it.
type recorded struct {
	iteration float64 // CPU ns
	cpu       time.Duration
	found     *callGraph
	truth     *callGraph
	// calls is the number of this guest's samples in the graph: its fraction of all guests' samples
	// by CPU time, like that of ticks.
	calls float64
	stats *profiler.CallStats
}

// turn lets the guest work for that much CPU time, as far as whole iterations allow.
func (g *paced) turn(d time.Duration) (r recorded, err error) {
	n := max(1, int(d/g.iteration))
	if r.cpu, err = g.work(n); err != nil {
		return r, fmt.Errorf("%s: %w", g.name, err)
	}
	r.iteration = float64(r.cpu) / float64(n)
	return r, nil
}

// pacedTurns are the turns of some guests, with a sample of each of them.
type pacedTurns = harness.Turns[profile.Rate, []recorded]

// A course is what one guest did in all turns.
type course struct {
	name  string
	guest int // its index in a turn
	turns *pacedTurns
}

// courses are those of all guests.
func (t *pacedGuests) courses(turns *pacedTurns) (courses []course) {
	for i, g := range t.guests {
		courses = append(courses, course{g.name, i, turns})
	}
	return courses
}

func (c course) iteration(turn []recorded) float64 { return turn[c.guest].iteration }

// recorded is the result of the k-th turn with the agent.
func (c course) recorded(k int) recorded { return c.turns.On[k].Sample[c.guest] }

// overhead is how much more CPU time an iteration took in the k-th turn with the agent than in the
// turns without it before and after, as a fraction of the latter.
func (c course) overhead(k int) float64 { return c.turns.Over(k, c.iteration) - 1 }

// control is the same for the turn without the agent after the k-th one, compared with those before
// and after: it shows the noise in overhead. After the last turn there is none.
func (c course) control(k int) float64 {
	ratio, _ := c.turns.Control(k, c.iteration)
	return ratio - 1
}

// overlap and ideal are those of the k-th turn with the agent.
func (c course) overlap(k int) float64 {
	r := c.recorded(k)
	return cct.Overlap(r.found, r.truth)
}

func (c course) ideal(k int) float64 {
	r := c.recorded(k)
	return idealOverlap(r.truth, r.calls)
}

// startPaced starts these programs of the reference guest, or PHP-Parser.
func startPaced(ctx context.Context, m meter, engine string, programs []string) (_ *pacedGuests, err error) {
	t := newPaced(m, engine)
	defer func() {
		if err != nil {
			err = closing(t, err)
		}
	}()
	for _, program := range programs {
		if program == parser {
			guest, err := startPHP(ctx)
			if err != nil {
				return nil, err
			}
			if err := t.add(program, guest); err != nil {
				return nil, err
			}
			continue
		}
		vm, err := m.vm()
		if err != nil {
			return nil, err
		}
		if err := t.startVM(ctx, vm, program); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// closing closes the guests after an operation on them ended with err.
func closing(t *pacedGuests, err error) error { return errors.Join(err, t.close()) }

// pacedGuests take turns without and with the agent. In a turn the guests work one after the other,
// while the others wait, so that one agent serves them all.
type pacedGuests struct {
	m      meter
	engine string // "page"
	socket string // where guests look for the agent
	guests []*paced
}

// startVM starts a program of the reference guest. It looks for the agent at t's socket.
func (t *pacedGuests) startVM(ctx context.Context, vm guests.VM, program string) error {
	run, err := vm.Start(ctx, guests.VMOptions{Program: program, Socket: t.socket})
	if err != nil {
		return err
	}
	return t.add(program, vmGuest{run})
}

// add takes ownership of a guest, and lets it work until it is warm.
func (t *pacedGuests) add(name string, g callGuest) error {
	p := &paced{callGuest: g, name: name}
	t.guests = append(t.guests, p)
	for n := 1; ; n *= 2 {
		cpu, err := g.work(n)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if cpu >= t.m.how.rest {
			p.iteration = cpu / time.Duration(n)
			return nil
		}
	}
}

func (t *pacedGuests) close() error {
	var errs []error
	for _, g := range t.guests {
		errs = append(errs, g.close())
	}
	return errors.Join(errs...)
}

// rest is a turn without the agent.
func (t *pacedGuests) rest(d time.Duration) (turn []recorded, err error) {
	for _, g := range t.guests {
		r, err := g.turn(d)
		if err != nil {
			return nil, err
		}
		turn = append(turn, r)
	}
	return turn, nil
}

// record is a turn with the agent. Fields of the rate that are 0 are the agent's choice.
func (t *pacedGuests) record(ctx context.Context, rate profile.Rate, d time.Duration) (turn []recorded, err error) {
	recording, err := t.m.agent.While(ctx, t.options(rate), (*profiler.AgentRun).WaitSampling,
		func(*profiler.AgentRun) error {
			var err error
			turn, err = t.work(d)
			return err
		})
	if err != nil {
		return nil, err
	}
	var cpu time.Duration // CPU time of all guests
	for _, r := range turn {
		cpu += r.cpu
	}
	for i := range turn {
		r := &turn[i]
		r.stats = recording.Stats.Calls
		r.calls = float64(r.stats.Folded) * float64(r.cpu) / float64(cpu)
		if r.found, err = recordedCalls(recording.Profile, t.guests[i].pid()); err != nil {
			return nil, err
		}
	}
	return turn, nil
}

// alternate records the guests at each rate, between turns without the agent.
func (t *pacedGuests) alternate(
	ctx context.Context, rates []profile.Rate, rounds int, rest, record time.Duration, done func(*pacedTurns),
) (*pacedTurns, error) {
	return harness.Alternate(harness.Rotated(rounds, rates),
		func() ([]recorded, error) { return t.rest(rest) },
		func(rate profile.Rate) ([]recorded, error) {
			turn, err := t.record(ctx, rate, record)
			if err != nil {
				return nil, fmt.Errorf("%v: %w", rate, err)
			}
			return turn, nil
		}, done)
}

// work lets the guests work one after the other, once the agent samples. Their earlier work is in
// the recording, too, but changes no share, as iterations are alike.
func (t *pacedGuests) work(d time.Duration) (turn []recorded, err error) {
	for _, g := range t.guests {
		if err := errors.Join(g.await(), discard(g.truth())); err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
	}
	for _, g := range t.guests {
		r, err := g.turn(d)
		if err != nil {
			return nil, err
		}
		if r.truth, err = g.truth(); err != nil {
			return nil, fmt.Errorf("%s: %w", g.name, err)
		}
		turn = append(turn, r)
	}
	return turn, nil
}

func discard(_ *callGraph, err error) error { return err }

// options are how to record the guests.
func (t *pacedGuests) options(rate profile.Rate) profiler.Options {
	o := profiler.Options{Frequency: rate.Hz, Extra: []string{
		"-e", "calls", "--engine", t.engine, "--guest-socket", t.socket,
	}}
	if rate.Stride > 0 {
		o.Extra = append(o.Extra, "--stride", strconv.Itoa(rate.Stride))
	}
	if rate.Samples > 0 {
		o.Extra = append(o.Extra, "--samples", strconv.Itoa(rate.Samples))
	}
	for _, g := range t.guests {
		o.Extra = append(o.Extra, "-p", strconv.Itoa(g.pid()))
	}
	return o
}

// newPaced makes turns without guests.
func newPaced(m meter, engine string) *pacedGuests {
	return &pacedGuests{m: m, engine: engine, socket: filepath.Join(m.dir, "guest.sock")}
}
