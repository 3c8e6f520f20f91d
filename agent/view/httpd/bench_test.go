package httpd

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/view/sink/sinktest"
)

// BenchmarkReduce makes what pages keep of a window with 90,000 contexts.
func BenchmarkReduce(b *testing.B) {
	windows := []*profile.Profile{sinktest.Crowd(10, 300)}
	b.ReportAllocs()
	for b.Loop() {
		reduce(windows, kinds[0], maxWindowNodes)
	}
}
