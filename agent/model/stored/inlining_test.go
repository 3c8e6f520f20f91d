package stored

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// What a hostile file says of an inliner is bounded.
func TestHostileInlining(t *testing.T) {
	m := &Metadata{Inlining: []Inlining{
		{PID: 1, Limits: profile.InlineLimits{FreqInlineSize: -1, InlineSmallCode: math.MaxInt},
			Callees: make([]Callee, MaxCallees)},
		{PID: 2, Callees: []Callee{{Bytecode: 1}}},
	}}
	m.Inlining[0].Callees[0] = Callee{Method: 77, Bytecode: -5, Entering: -time.Second}
	m.tidy()
	in := m.Inlining[0]
	if in.Limits.FreqInlineSize != 0 || in.Limits.InlineSmallCode != math.MaxInt32 || in.Callees[0].Bytecode != 0 ||
		in.Callees[0].Entering != 0 {
		t.Errorf("%+v, %+v", in.Limits, in.Callees[0])
	}
	if len(m.Inlining[1].Callees) != 0 || m.LeftOut != 1 {
		t.Errorf("%d callees beyond the bound, %d left out", len(m.Inlining[1].Callees), m.LeftOut)
	}
}
