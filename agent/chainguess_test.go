package agent

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

// A guess that does not reach the root is none.
func TestGuessOfAPart(t *testing.T) {
	q := newChaining(1, 1, newPace(0))
	user, depths := frames("b:2@32 c:3@48")
	sample := &bpf.Sample{User: user, Depths: depths, Flags: bpf.SampleDepths | bpf.SampleDrawn, End: bpf.EndRoot, Attachment: 1}
	if q.learn(sample, target.AppendStack(nil, sample, 1)); q.pace.draws != 1 || q.pace.right != 0 {
		t.Errorf("of %d draws %d were guessed by what is not known", q.pace.draws, q.pace.right)
	}
	if q.learn(sample, target.AppendStack(nil, sample, 1)); q.pace.draws != 2 || q.pace.right != 1 {
		t.Errorf("of %d draws %d were guessed", q.pace.draws, q.pace.right)
	}
}
