package self

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/wait"
)

func TestPacePercent(t *testing.T) {
	for _, c := range []struct {
		live uint64
		want int
	}{
		{0, mostPercent},
		{1 << 10, mostPercent},
		{4 << 20, 400},
		{16 << 20, 96},
		{32 << 20, gcPercent},
		{1 << 40, gcPercent},
	} {
		if got := pacePercent(c.live); got != c.want {
			t.Errorf("%d bytes: %d %%, want %d", c.live, got, c.want)
		}
		if grows := c.live * uint64(pacePercent(c.live)) / 100; c.live > 0 &&
			grows > max(gcRoom, c.live*gcPercent/100) {
			t.Errorf("%d bytes grow by %d", c.live, grows)
		}
	}
}

// The pace follows the heap, down and up.
func TestPaceCollector(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(gcPercent))
	p := &collectorPace{live: []metrics.Sample{{Name: "/gc/heap/live:bytes"}}}
	p.adapt()
	percent := func() int {
		s := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(s)
		return int(s[0].Value.Uint64())
	}
	await := func(what string, is func(percent int) bool) {
		t.Helper()
		if err := wait.Until(t.Context(), wait.Long, what, func() (bool, error) {
			runtime.GC()
			return is(percent()), nil
		}); err != nil {
			t.Fatalf("%v: the heap may grow by %d %%", err, percent())
		}
	}
	await("a small heap", func(p int) bool { return p > gcPercent })
	large := make([]byte, 4*gcRoom)
	await("a large heap", func(p int) bool { return p == gcPercent })
	runtime.KeepAlive(large)
	await("a small heap again", func(p int) bool { return p > gcPercent })
}
