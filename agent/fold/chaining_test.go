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

func TestPace(t *testing.T) {
	right := func(p *WalkRate, of100 int) (changes int) {
		for i := range DrawsToJudge {
			if p.drawn(i*100 < of100*DrawsToJudge, 30) {
				changes++
			}
		}
		return changes
	}
	for _, c := range []struct {
		name          string
		before        uint32
		right         int // of 100
		want, changes int
	}{
		{"all right", 8, 100, 16, 1},
		{"just good enough", 8, goodGuesses, 16, 1},
		{"not good enough", 8, goodGuesses - 2, 8, 0}, // a draw is 2 of 100
		{"not bad enough", 8, badGuesses, 8, 0},
		{"just bad enough", 8, badGuesses - 2, 4, 1},
		{"all wrong", 8, 0, 4, 1},
		{"never more", maxEvery, 100, maxEvery, 0},
		{"never less", minEvery, 0, minEvery, 0},
		{"almost most", maxEvery - 1, 100, maxEvery, 1},
		{"almost least", minEvery + 1, 0, minEvery, 1},
	} {
		p := &WalkRate{Every: c.before}
		if changes := right(p, c.right); p.Every != uint32(c.want) || changes != c.changes {
			t.Errorf("%s: one in %d, then one in %d with %d changes, want %d with %d", c.name, c.before, p.Every, changes, c.want, c.changes)
		}
		if p.Draws != 0 || p.Right != 0 {
			t.Errorf("%s: %d of %d draws are counted twice", c.name, p.Right, p.Draws)
		}
	}
	p := NewWalkRate(0)
	for _, c := range []struct{ right, want int }{{0, 3}, {0, 7}, {95, 7}, {100, 3}, {0, 7}, {0, 15}, {0, 31}, {0, 31}, {100, 15}} {
		if right(p, c.right); int(p.Proof) != c.want {
			t.Errorf("links are trusted after %d more walks, want %d", p.Proof, c.want)
		}
	}
	p = NewWalkRate(0)
	if p.Every != FirstEvery {
		t.Errorf("the first pace is one in %d", p.Every)
	}
	for range 20 {
		right(p, 100)
	}
	if p.Every != maxEvery {
		t.Errorf("one in %d after many draws that are right", p.Every)
	}
	for range 20 {
		right(p, 0)
	}
	if p.Every != minEvery {
		t.Errorf("one in %d after many draws that are wrong", p.Every)
	}
	for range 20 * DrawsToJudge {
		p.drawn(true, 900)
	}
	if p.Every != 4*900 {
		t.Errorf("one in %d after many draws of 900 frames", p.Every)
	}
	if p = NewWalkRate(100); p.Every != 100 || right(p, 100)+right(p, 0) != 0 || p.Every != 100 {
		t.Errorf("a pace that is given changes to %d", p.Every)
	}
}
