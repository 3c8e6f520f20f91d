package probes

import (
	"errors"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/elffile"
)

func TestPlanFind(t *testing.T) {
	none, full := errors.New("no such function"), errors.New("no room")
	sites := func(n int) findSites {
		return func(*probesite.Finder) (s []probesite.Site, err error) {
			for i := range n {
				s = append(s, probesite.Site{Offset: uint64(100 + i), Args: make([]elffile.Operand, i)})
			}
			return s, nil
		}
	}
	var configured []int
	configure := func(_ *probesite.Finder, s probesite.Site) (setting, error) {
		return func(cookie uint32) error {
			configured = append(configured, int(cookie), len(s.Args))
			if cookie == 9 {
				return full
			}
			return nil
		}, nil
	}
	for _, c := range []struct {
		name    string
		probes  []plannedProbe
		room    uint32 // cookies
		want    error
		cookies int
	}{
		{"two probes", []plannedProbe{{find: sites(2), configure: configure}, {find: sites(1)}}, 20, nil, 3},
		{"one is not there", []plannedProbe{{find: sites(1)}, {find: func(*probesite.Finder) ([]probesite.Site,
			error) {
			return nil, none
		}}}, 20, none, 0},
		{"no room", []plannedProbe{{find: sites(3)}}, 2, full, 2},
		// The one that failed is returned, too.
		{"not configured", []plannedProbe{{find: sites(10), configure: configure}}, 20, full, 10},
	} {
		configured = nil
		given := uint32(0)
		register := func() (uint32, error) {
			if given == c.room {
				return 0, full
			}
			given++
			return given - 1, nil
		}
		p := &attachedPlan{eventPlan: eventPlan{probes: c.probes}}
		err := p.find(nil)
		if err == nil {
			err = p.register(register)
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if len(p.cookies) != c.cookies {
			t.Errorf("%s: cookies %v, want %d", c.name, p.cookies, c.cookies)
		}
		if c.want != nil {
			continue
		}
		for i, s := range p.sites[0] {
			if s.Offset != uint64(100+i) || s.Cookie != uint64(i) || configured[2*i] != i || configured[2*i+1] != i {
				t.Errorf("%s: site %d is %+v, configured %v", c.name, i, s, configured)
			}
		}
		if s := p.sites[1]; len(s) != 1 || s[0].Cookie != 2 {
			t.Errorf("%s: the other probe's sites %+v", c.name, s)
		}
	}
}

// A plan is attached and removed as a whole: if one of its probes cannot be attached, none is.
func TestPlanAttach(t *testing.T) {
	k := newKernelSide(t)
	p := k.plan(t, profile.Values, k.Programs.ValueProbe, k.Programs.ParkBegin)
	if err := p.find(nil); err != nil {
		t.Fatal(err)
	}
	if err := p.register(k.register); err != nil {
		t.Fatal(err)
	}
	hits := func() uint64 {
		t.Helper()
		before := k.hits(t)
		probed()
		return k.hits(t) - before
	}
	attached := func(want bool) {
		t.Helper()
		if n := hits(); (n > 0) != want || (p.links == nil) == want {
			t.Errorf("%d hits, detached: %v; attached: %v", n, (p.links == nil), want)
		}
	}
	attached(false)
	for range 2 {
		if err := p.attach(k.uprobes); err != nil {
			t.Fatal(err)
		}
		attached(true)
		if err := p.detach(); err != nil {
			t.Fatal(err)
		}
		attached(false)
	}
	p.probes[1].program = k.config.Objects.Tick // Tick is not a program of a probe
	if err := p.attach(k.uprobes); err == nil {
		t.Error("a program of ticks was attached to a probe")
	}
	attached(false)
}
