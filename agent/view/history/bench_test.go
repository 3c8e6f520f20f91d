package history

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/digest"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// BenchmarkLimit makes one stored window of three that have more than a hundred thousand contexts
// and rows each.
func BenchmarkLimit(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	var windows []*profile.Profile
	for range 3 {
		windows = append(windows, varied(rng, 20, 400))
	}
	size := 0
	b.ReportAllocs()
	for b.Loop() {
		m := digest.NewMerger(digest.NewNames(nil), nil)
		for _, p := range windows {
			m.AddProfile(p)
		}
		w := m.Finish(digest.MaxContexts, new(digest.Arena))
		h := header{span{began, began.Add(time.Second), time.Second}, sumsOf(windows[0])}
		record, err := newEncoder(newTables(m.Names)).record(&h, w)
		if err != nil {
			b.Fatal(err)
		}
		size = len(record)
	}
	b.ReportMetric(float64(size), "bytes/window")
}
