package prom

import (
	"cmp"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent"
)

// service is what a placed service counts.
type service struct {
	methods *ranking[method, counter]
	other   map[string]counter // of method="(other)", by runtime; the agent knows a handful of runtimes
	folded  int                // methods in method="(other)" in the last window
}

// counter is a series: its value in nanoseconds, and since when it counts.
type counter struct {
	nanoseconds uint64
	created     time.Time
}

func (c counter) plus(nanoseconds uint64, created time.Time) counter {
	if c.created.IsZero() {
		c.created = created
	}
	c.nanoseconds += nanoseconds
	return c
}

func newService(maxMethods int) *service {
	return &service{
		methods: newRanking[method, counter](maxMethods, func(a, b method) int {
			return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.runtime, b.runtime))
		}),
		other: make(map[string]counter),
	}
}

// observe counts a window of the service; methods is nil if it had no sample.
func (s *service) observe(methods map[method]uint64, p *agent.Profile) {
	s.methods.update(p.Duration, func(yield func(method, uint64) bool) {
		for m, ns := range methods {
			if m.name != other && !yield(m, ns) {
				return
			}
		}
	})
	for m, e := range s.methods.entries {
		if e.placed {
			e.value = e.value.plus(methods[m], p.Start)
		}
	}
	s.folded = 0
	for m, ns := range methods {
		if s.methods.get(m) == nil {
			s.folded++
			s.other[m.runtime] = s.other[m.runtime].plus(ns, p.Start)
		}
	}
}

func sum(methods map[method]uint64) (total uint64) {
	for _, ns := range methods {
		total += ns
	}
	return total
}
