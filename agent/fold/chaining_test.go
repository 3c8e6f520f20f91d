package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A guess that does not reach the root is none.
func TestGuessOfAPart(t *testing.T) {
	q := newChaining(1, 1, NewWalkRate(0))
	user, depths := foldtest.Frames("b:2@32 c:3@48")
	sample := &bpf.Sample{User: user, Depths: depths, Flags: bpf.SampleDepths | bpf.SampleDrawn, End: bpf.EndRoot, Attachment: 1}
	if q.learn(sample, target.AppendStack(nil, sample, 1)); q.WalkRate.Draws != 1 || q.WalkRate.Right != 0 {
		t.Errorf("of %d draws %d were guessed by what is not known", q.WalkRate.Draws, q.WalkRate.Right)
	}
	if q.learn(sample, target.AppendStack(nil, sample, 1)); q.WalkRate.Draws != 2 || q.WalkRate.Right != 1 {
		t.Errorf("of %d draws %d were guessed", q.WalkRate.Draws, q.WalkRate.Right)
	}
}
