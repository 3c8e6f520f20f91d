package prom

import (
	"cmp"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// service is what a placed service counts.
type service struct {
	methods *ranking[method, counter]
	other   map[method]counter // counters of method="(other)"; there are a handful of runtimes and bases
	folded  int                // methods in method="(other)" in the last window
}

// counter is a series: its value in the unit of its kind, and since when it counts.
type counter struct {
	value   uint64
	created time.Time
}

func (c counter) plus(value uint64, created time.Time) counter {
	if c.created.IsZero() {
		c.created = created
	}
	c.value += value
	return c
}

func newService(maxMethods int, floor float64) *service {
	return &service{
		methods: newRanking[method, counter](maxMethods, floor, func(a, b method) int {
			return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.runtime, b.runtime),
				strings.Compare(a.basis, b.basis))
		}),
		other: make(map[method]counter),
	}
}

// observe counts a window of the service; methods is nil if it had no sample.
func (s *service) observe(methods map[method]uint64, p *profile.Profile) {
	s.methods.update(p.Duration, func(yield func(method, uint64) bool) {
		for m, n := range methods {
			if m.name != other && !yield(m, n) {
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
	for m, n := range methods {
		if s.methods.get(m) == nil {
			s.folded++
			m.name = other
			s.other[m] = s.other[m].plus(n, p.Start)
		}
	}
}

func sum(methods map[method]uint64) (total uint64) {
	for _, n := range methods {
		total += n
	}
	return total
}
