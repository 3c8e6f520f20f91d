package probes

import (
	"errors"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/attach"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/probesite"
	"github.com/vmprof-agent/vmprof-agent/agent/probe/valueprobe"
)

// The cookies of a library are free after its plans are removed, so that more libraries can come
// one after the other than there are cookies. The next owner of a cookie inherits nothing.
func TestRemovePlans(t *testing.T) {
	k := newKernelSide(t)
	place := k.find(t)
	k.cookies = numbering{bound: 3}
	const most = 8
	for i := range most {
		p := k.plan(t, profile.Values, k.Programs.ValueProbe)
		if err := p.find(nil); err != nil {
			t.Fatal(err)
		}
		p.found[0][0].setting = func(cookie uint32) error { return k.Programs.ClockSites.Put(cookie, int64(i)) }
		if err := p.file.Close(); err != nil {
			t.Fatal(err)
		}
		if err := k.attachPlan(p, k.file); err != nil {
			t.Fatalf("library %d of %d: %v", i, most, err)
		}
		if got := k.rateOf(t, p); got != 0 {
			t.Fatalf("one hit in %d is recorded of a plan that nobody has adopted", got)
		}
		k.adopt([]*attachedPlan{p})
		if got := k.rateOf(t, p); got != 1 {
			t.Fatalf("one hit in %d is recorded of a plan that was adopted", got)
		}
		k.values.add(attach.ValueSite{Cookie: p.cookies[0]}, &valueWatch{spec: valueprobe.Spec{Symbol: "f"}})
		probed()
		if n, err := k.hitsOf(p); err != nil || n != 1 {
			t.Fatalf("library %d: %d hits (%v), want the one that was its own", i, n, err)
		}
		k.setIdle([]*attachedPlan{p}, true)
		if got := k.rateOf(t, p); got != 0 {
			t.Fatalf("one hit in %d is recorded of a library that no process maps", got)
		}
		p.cover.SetPartly(errors.New("too hot"))
		before, cookie := k.hits(t), p.cookies[0]
		k.remove(t.Context(), []*attachedPlan{p})
		probed()
		if k.hits(t) != before || len(k.plans) != 0 {
			t.Fatal("a plan that was removed is hit")
		}
		if _, ok := k.values.get(cookie); ok {
			t.Fatal("a cookie that was given back still has values")
		}
	}
	before := k.Covers.Sums(proc.Monotonic())
	if len(before) != most {
		t.Errorf("%d plans that were removed are remembered, want %d", len(before), most)
	}
	later := k.Covers.Sums(proc.Monotonic() + time.Hour)
	for c, sums := range before {
		if sums.Total != later[c].Total || sums.Observed > sums.Total {
			t.Errorf("%v of %v were observed, and an hour later of %v: the plan was gone", sums.Observed, sums.Total,
				later[c].Total)
		}
	}
	// A plan that cannot be attached keeps no cookies.
	for range most {
		p := k.plan(t, profile.Values, k.config.Objects.Tick) // Tick is not a program of a probe
		p.found = [][]foundSite{{{Site: place[0]}}}
		p.file.Close()
		if err := k.attachPlan(p, k.file); err == nil || errors.Is(err, errTooManyProbes) {
			t.Fatalf("a program of ticks was attached: %v", err)
		}
	}
}

// A site whose VM has no clock clears the clock of the cookie's earlier owner.
func TestClockSiteClears(t *testing.T) {
	k := newKernelSide(t)
	if err := k.Programs.ClockSites.Put(uint32(7), int64(4711)); err != nil {
		t.Fatal(err)
	}
	lib, f := openSelf(t)
	set, err := clockSite(k.Programs, "_ZN7NoClockE")(probesite.New(lib, f), probesite.Site{Address: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := set(7); err != nil {
		t.Fatal(err)
	}
	var distance int64
	if err := k.Programs.ClockSites.Lookup(uint32(7), &distance); err != nil || distance != 0 {
		t.Errorf("the clock is %d bytes away (%v), want none", distance, err)
	}
}
