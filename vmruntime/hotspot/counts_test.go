package hotspot

import (
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// counts reads the counts of one method.
func (g *countedGuest) counts(t testing.TB, name string) vmruntime.MethodCounts {
	t.Helper()
	list, _, err := g.Counts([]uint64{g.method[name]})
	if err != nil || len(list) != 1 || list[0].Method != g.method[name] {
		t.Fatalf("%s: %+v, %v", name, list, err)
	}
	return list[0]
}

// Counts are the numbers of Profiles, of every method.
func TestCounts(t *testing.T) {
	for name := range callRecordings {
		g := newCountedGuest(t, name)
		calls := 0
		for method := range g.method {
			c, p := g.counts(t, method), g.profile(t, method)
			if p == nil {
				t.Fatalf("%s: no %s", name, method)
			}
			if p.Counted != (c.Data != 0) || c.Unreadable || c.Invocations != p.Invocations || c.Before != p.Before {
				t.Errorf("%s: %s: %+v, profile %+v", name, method, c, p)
			}
			for _, s := range c.Sites {
				call := p.Call(s.BCI)
				sum := s.Others
				for _, row := range s.Rows {
					sum += row.Count
					if call != nil && !slices.ContainsFunc(call.Receivers,
						func(r vmruntime.Receiver) bool { return r.Klass == row.Klass && r.Count == row.Count }) {
						t.Errorf("%s: %s at %d: row %+v, receivers %+v", name, method, s.BCI, row, call.Receivers)
					}
				}
				if call == nil || call.Count != sum {
					t.Errorf("%s: %s at %d: %d calls, profile %+v", name, method, s.BCI, sum, call)
					continue
				}
				calls++
			}
		}
		if calls < 10 {
			t.Errorf("%s: %d calls", name, calls)
		}
	}
}

// Counters that are another method's, or make no sense, are unreadable: nobody may take them for
// none.
func TestCountsUnreadable(t *testing.T) {
	for name := range callRecordings {
		for what, spoil := range map[string]func(g *countedGuest, data uint64){
			"of another": func(g *countedGuest, data uint64) { g.mem.At(g.counted.Owner.At(data), 8)[0] ^= 8 },
			"no tag":     func(g *countedGuest, data uint64) { g.mem.At(data+g.counted.Header(), 1)[0] = 0 },
		} {
			g := newCountedGuest(t, name)
			spoil(g, g.counts(t, ".two").Data)
			if c := g.counts(t, ".two"); !c.Unreadable || c.Data == 0 || len(c.Sites) > 0 {
				t.Errorf("%s, data %s: %+v", name, what, c)
			}
		}
		g := newCountedGuest(t, name)
		clear(g.mem.At(g.counted.MethodData.At(g.method[".two"]), 8))
		if c := g.counts(t, ".two"); c.Unreadable || c.Data != 0 || c.Before == 0 {
			t.Errorf("%s, no data: %+v", name, c)
		}
	}
}
