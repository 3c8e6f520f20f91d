package listener

import (
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestWindowCheck(t *testing.T) {
	good := Window{Duration: time.Millisecond, MaxHits: 64}
	for _, c := range []struct {
		name    string
		window  Window
		entries int
		ok      bool
	}{
		{"usual", good, 3, true},
		{"nothing to listen to", good, 0, false},
		{"more than three", good, 4, false},
		{"no hits", Window{Duration: time.Millisecond}, 1, false},
		{"as many hits as fit", Window{Duration: time.Millisecond, MaxHits: MaxHits}, 1, true},
		{"more", Window{Duration: time.Millisecond, MaxHits: MaxHits + 1}, 1, false},
		{"no time", Window{MaxHits: 1}, 1, false},
		{"negative time", Window{Duration: -1, MaxHits: 1}, 1, false},
		{"too long", Window{Duration: MaxDuration + 1, MaxHits: 1}, 1, false},
	} {
		if err := c.window.check(c.entries); (err == nil) != c.ok {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestResult(t *testing.T) {
	w := bpf.CallWatch{Watch: bpf.Watch{Limit: 4, Claimed: 6}}
	for i, h := range []struct {
		entry  uint32
		caller uint64
	}{{0, 100}, {2, 100}, {0, 100}, {0, 101}, {1, 7}} {
		w.Hits[i] = bpf.ListenerHit{Time: uint64(i), Entry: h.entry, Caller: h.caller, Callee: 50, Tid: 9}
	}
	r := Result{Hits: hitsOf(&w)}
	if len(r.Hits) != 4 {
		t.Errorf("%d hits", len(r.Hits))
	}
	if want := (Hit{Entry: 2, Thread: 9, Time: 1, Callee: 50, Caller: 100}); r.Hits[1] != want {
		t.Errorf("hit %+v, want %+v", r.Hits[1], want)
	}
	if r.Count(0) != 3 || r.Count(1) != 0 || r.Count(2) != 1 {
		t.Errorf("counts %d, %d, %d", r.Count(0), r.Count(1), r.Count(2))
	}
	sites := r.Sites()
	if len(sites) != 3 || sites[Site{0, 100}] != 2 || sites[Site{0, 101}] != 1 || sites[Site{2, 100}] != 1 {
		t.Errorf("sites %v", sites)
	}

	w.Watch.Claimed = 3
	if open := hitsOf(&w); len(open) != 3 {
		t.Errorf("below the limit: %+v", open)
	}
}

// Count returns how many calls of an entry arrived.
func (r *Result) Count(entry int) (n int) {
	for _, h := range r.Hits {
		if h.Entry == entry {
			n++
		}
	}
	return n
}

// A Site is a callee and where it is called.
type Site struct {
	Entry  int
	Caller bpf.Frame
}

// Sites returns how many calls came from each call site.
func (r *Result) Sites() map[Site]int {
	sites := make(map[Site]int)
	for _, h := range r.Hits {
		sites[Site{h.Entry, h.Caller}]++
	}
	return sites
}
