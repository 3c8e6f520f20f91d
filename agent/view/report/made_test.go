package report

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Estimates of the calls that are made say that others were inlined; the calls of one method that
// was counted have no others.
func TestOnlyMade(t *testing.T) {
	estimated, inferred := basisOf(profile.Estimated.String()), basisOf(profile.Inferred.String())
	for _, test := range []struct {
		engine string
		bases  bases
		want   bool
	}{
		{"hotspot", estimated, true}, {"hotspot", estimated | inferred, false},
		{"page", basisOf(profile.Sampled.String()), false}, {stored.EngineCount, estimated, false},
	} {
		w := edgeWriter{engineCalls: &engineCalls{engine: test.engine, bases: map[nameEdge]bases{{}: test.bases}}}
		if got := w.onlyMade(); got != test.want {
			t.Errorf("engine %s, %v: %v", test.engine, test.bases, got)
		}
	}
}
