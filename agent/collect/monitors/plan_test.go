package monitors

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/probe/watch"
)

// sitesAt are sites without code.
func sitesAt(addresses ...uint64) (sites []Site) {
	for _, a := range addresses {
		sites = append(sites, Site{Place: Place{Address: a, Version: 1}})
	}
	return sites
}

// groupsOf has two threads of one group and one of another; the first thread ran most.
func groupsOf() *watch.Groups {
	g := &watch.Groups{}
	used := map[int]uint64{1: 300, 2: 200, 3: 100, 4: 0}
	names := map[int]string{1: "worker-1", 2: "worker-2", 3: "poller", 4: "idle"}
	g.Update(time.Second, []int{1, 2, 3, 4}, func(tid int) (uint64, error) { return used[tid], nil },
		func(tid int) string { return names[tid] })
	return g
}

func groupOf(g *watch.Groups, tid int) string {
	group, _ := g.Lookup(tid)
	return group
}

// observedAll is a window in which each thread entered a monitor at each site that many times.
func observedAll(w Window, hits map[uint64]int) (r Result) {
	r.Counts = make([]int, len(w.Sites))
	for i, s := range w.Sites {
		for range hits[s.Address] {
			r.Counts[i]++
			for _, tid := range w.Threads {
				r.Hits = append(r.Hits, Hit{Site: i, Thread: tid})
			}
		}
	}
	r.Ran, r.Traps = 300*time.Microsecond, 200*time.Microsecond
	return r
}

func TestPlanSurveysFirst(t *testing.T) {
	p, c := newPlan(), groupsOf()
	sites := sitesAt(1, 2, 3, 4, 5, 6, 7)
	surveyed := map[Place]bool{}
	for turns := 0; p.fresh(sites); turns++ {
		w, group, ok := p.next(sites, c)
		if !ok || group != "" || turns > 3 {
			t.Fatalf("turn %d: group %q, ok %v", turns, group, ok)
		}
		if len(w.Sites) > MaxSites || len(w.Threads) != 3 || w.Threads[0] != 1 {
			t.Errorf("%d sites in threads %v", len(w.Sites), w.Threads)
		}
		for _, s := range w.Sites {
			surveyed[s.Place] = true
		}
	}
	if len(surveyed) != len(sites) {
		t.Errorf("%d of %d sites were surveyed", len(surveyed), len(sites))
	}
}

// The sites of one window have rates near its target's; all pairs get their turn, and sites without
// hits get none.
func TestPlanMeasures(t *testing.T) {
	p, c := newPlan(), groupsOf()
	sites := sitesAt(1, 2, 3, 4, 5, 6)
	hits := map[uint64]int{1: 64, 2: 40, 3: 20, 4: 8, 5: 2} // 6 has none
	measured, alone, together := map[Place]int{}, 0, 0
	groups := map[string]bool{}
	for range 400 {
		w, group, ok := p.next(sites, c)
		if !ok {
			t.Fatal("nothing to do")
		}
		r := observedAll(w, hits)
		if group == "" {
			p.learn(w, r, c)
			continue
		}
		if len(w.Threads) != 1 || groupOf(c, w.Threads[0]) != group {
			t.Errorf("group %s in threads %v", group, w.Threads)
		}
		groups[group] = true
		if len(w.Sites) == 1 {
			alone++
		} else {
			together++
		}
		p.measured(w, group, r)
		for _, s := range w.Sites {
			measured[s.Place]++
		}
	}
	if len(groups) != 2 || alone < 40 || together < 100 {
		t.Errorf("groups %v, %d windows on one site, %d on several", groups, alone, together)
	}
	for _, s := range sites {
		if n := measured[s.Place]; (n == 0) != (hits[s.Address] == 0) || n > 0 && n < 20 {
			t.Errorf("site %d was measured %d times", s.Address, n)
		}
	}
	w, _, _ := p.measure(sites, c)
	for i := 1; i < len(w.Sites); i++ {
		if hits[w.Sites[i].Address] > hits[w.Sites[i-1].Address] {
			t.Errorf("neighbours are not in order: %v", w.Sites)
		}
	}
}

func TestPlanRetain(t *testing.T) {
	p, c := newPlan(), groupsOf()
	old, now := sitesAt(1, 2, 3), sitesAt(3, 4)
	w, _, _ := p.next(old, c)
	p.learn(w, observedAll(w, map[uint64]int{1: 1, 2: 1, 3: 1}), c)
	if len(p.live) != 6 { // three sites in two groups
		t.Fatalf("%d live pairs", len(p.live))
	}
	p.retain(now)
	if len(p.live) != 2 || len(p.surveyed) != 1 || !p.fresh(now) {
		t.Errorf("%d live pairs, %d surveyed sites", len(p.live), len(p.surveyed))
	}
	if _, _, ok := newPlan().next(nil, c); ok {
		t.Error("a window without sites")
	}
	if _, _, ok := p.next(now, &watch.Groups{}); ok {
		t.Error("a window without threads")
	}
}
