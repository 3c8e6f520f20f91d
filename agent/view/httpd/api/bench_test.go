package api

import (
	"encoding/json"
	"log/slog"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/view/sink"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

var kinds = []*Kind{{Name: "cpu", Content: sink.Time}}

// BenchmarkConvert makes what the page keeps of a window with 90,000 contexts.
func BenchmarkConvert(b *testing.B) {
	w := sinktest.Crowd(10, 300)
	b.ReportAllocs()
	for b.Loop() {
		f, err := flameOf(w, kinds[0], kinds)
		if err != nil {
			b.Fatal(err)
		}
		f.Cut(maxKeptNodes)
	}
}

// BenchmarkPage makes the answer to a page that shows five minutes.
func BenchmarkPage(b *testing.B) {
	k := newKept(func() []*Kind { return kinds }, slog.New(slog.DiscardHandler))
	now := time.Unix(1000, 0)
	k.now = func() time.Time { return now }
	k.asked = now
	for i := range maxKept {
		w := sinktest.Crowd(10, 30+i%5)
		w.Start = now.Add(time.Duration(i) * 10 * time.Second)
		k.observe(w)
	}
	b.ReportAllocs()
	size := 0
	for b.Loop() {
		f, err := k.Flame(b.Context(), kinds[0].Name, "", time.Time{}, time.Time{})
		if err != nil {
			b.Fatal(err)
		}
		text, err := json.Marshal(f.Cut(maxFlameNodes))
		if err != nil {
			b.Fatal(err)
		}
		size = len(text)
	}
	b.ReportMetric(float64(size), "bytes/page")
}
