package rule

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
)

const (
	// MaxRules bounds the rules of an agent.
	MaxRules = 32
	// budget is how long the rules of one window may take together.
	budget = time.Second
)

// Causes of windows that a rule has no value of.
const (
	FailedBusy    = "busy"    // the window before was not done
	FailedTimeout = "timeout" // the rules took more than a second
	FailedCost    = "cost"    // too many steps for one sample
	FailedError   = "error"   // the expression has no value, or the window could not be converted
)

// A State is what a rule has computed so far.
type State struct {
	Name     string
	Unit     string             // seconds, bytes or count; "" for shares
	Sums     map[string]float64 // by group: of all windows
	Shares   map[string]float64 // by group: of the last window
	Failures map[string]uint64  // windows without a value, by cause
}

// A Runner evaluates rules on one window after the other.
type Runner struct {
	log     *slog.Logger
	queue   chan *profile.Profile
	jobs    []job
	failing bool

	mu     sync.Mutex
	states []*State // states of rules, in their order
}

// A job is the rules for one part of a window.
type job struct {
	content sink.Content
	rules   []*Rule
	states  []*State
}

// NewRunner returns a runner for an agent that records some contents. It fails if two rules have
// the same name, or if a rule is of a type that is not recorded.
func NewRunner(rules []*Rule, contents []sink.Content, log *slog.Logger) (*Runner, error) {
	if len(rules) > MaxRules {
		return nil, fmt.Errorf("at most %d rules", MaxRules)
	}
	r := &Runner{log: log, queue: make(chan *profile.Profile, 1)}
	var types []string
	for _, content := range contents {
		r.jobs = append(r.jobs, job{content: content})
		for _, t := range content.Types() {
			types = append(types, t.Type)
		}
	}
	for _, rule := range rules {
		if slices.ContainsFunc(r.states, func(s *State) bool { return s.Name == rule.Name }) {
			return nil, fmt.Errorf("two rules have the name %s: rename one", rule.Name)
		}
		at, unit := -1, ""
		for i, content := range contents {
			for _, t := range content.Types() {
				if t.Type == rule.Of && at < 0 {
					at, unit = i, baseUnit(t.Unit)
				}
			}
		}
		if at < 0 {
			return nil, fmt.Errorf("rule %s is of %s, which is not recorded: use one of %s, or record more with -e",
				rule.Name, rule.Of, strings.Join(types, ", "))
		}
		state := &State{Name: rule.Name, Failures: make(map[string]uint64)}
		if rule.Share {
			state.Shares = make(map[string]float64)
		} else {
			state.Unit, state.Sums = unit, make(map[string]float64)
		}
		r.states = append(r.states, state)
		j := &r.jobs[at]
		j.rules, j.states = append(j.rules, rule), append(j.states, state)
	}
	r.jobs = slices.DeleteFunc(r.jobs, func(j job) bool { return len(j.rules) == 0 })
	return r, nil
}

// baseUnit is the unit of metrics.
func baseUnit(unit string) string {
	if unit == stored.UnitTime {
		return "seconds"
	}
	return unit
}

// Observe takes a closed window. It never waits: if the window before is not done, this one is
// counted as a failure.
func (r *Runner) Observe(p *profile.Profile) {
	select {
	case r.queue <- p:
	default:
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, s := range r.states {
			s.Failures[FailedBusy]++
		}
	}
}

// Run evaluates windows until ctx ends, and then the last one.
func (r *Runner) Run(ctx context.Context) error {
	for {
		select {
		case p := <-r.queue:
			r.window(p)
		case <-ctx.Done():
			select {
			case p := <-r.queue:
				r.window(p)
			default:
			}
			return nil
		}
	}
}

// window evaluates the rules on one window.
func (r *Runner) window(p *profile.Profile) {
	ctx, end := context.WithTimeout(context.Background(), budget)
	defer end()
	failed := false
	for _, j := range r.jobs {
		converted, err := sink.Pprof(p, j.content)
		for i, rule := range j.rules {
			var sums *Sums
			of := err
			if of == nil {
				sums, of = rule.Evaluate(ctx, converted)
			}
			if of != nil && !r.failing {
				r.log.Warn("a rule has no value of a window; vmprof_rule_failures_total counts on", "rule", rule.Name,
					"err", of)
			}
			failed = failed || of != nil
			r.mu.Lock()
			j.states[i].add(sums, of)
			r.mu.Unlock()
		}
	}
	r.failing = failed
}

// add adds what a window has.
func (s *State) add(sums *Sums, err error) {
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		s.Failures[FailedTimeout]++
	case errors.Is(err, ErrCost):
		s.Failures[FailedCost]++
	default:
		s.Failures[FailedError]++
	}
	if s.Shares != nil {
		clear(s.Shares) // A window that failed has none.
	}
	if err != nil {
		return
	}
	for group, value := range sums.Groups {
		if s.Shares != nil {
			s.Shares[group] = value / sums.All // The sum is not 0 if there is a group.
			continue
		}
		if _, known := s.Sums[group]; !known && len(s.Sums) >= MaxGroups {
			group = OtherGroups
		}
		if s.Unit == "seconds" {
			value /= float64(time.Second)
		}
		s.Sums[group] += value
	}
	if s.Shares != nil && len(s.Shares) == 0 {
		s.Shares[""] = 0
	}
}

// States returns what the rules have computed. It may be called from any goroutine.
func (r *Runner) States() []State {
	r.mu.Lock()
	defer r.mu.Unlock()
	var states []State
	for _, s := range r.states {
		c := *s
		c.Sums, c.Shares, c.Failures = maps.Clone(s.Sums), maps.Clone(s.Shares), maps.Clone(s.Failures)
		states = append(states, c)
	}
	return states
}
