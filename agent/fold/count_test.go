package fold

import (
	"testing"

	"github.com/vmprof-agent/vmprof-agent/agent/fold/foldtest"
	"github.com/vmprof-agent/vmprof-agent/agent/target"
	"github.com/vmprof-agent/vmprof-agent/bpf"
)

func TestSameCallers(t *testing.T) {
	for _, c := range []struct {
		a, b                   string
		one, three, all, whole bool
	}{
		{"a b c d e", "a b c d e", true, true, true, true},
		{"a b c d e", "a b c d f", true, true, true, true}, // whatever the leaf is
		{"a b c d e", "x b c d e", true, true, false, false},
		{"a b c d e", "a x c d e", true, false, false, false},
		{"a b c d e", "a b c x e", false, false, false, false},
		{"a b c d:1 e", "a b c d:2 e", false, false, false, false},
		{"b c d e", "a b c d e", true, true, false, false},
		{"c d e", "b c d e", true, false, false, false},
		{"e", "d e", false, false, false, false},
		{"e", "f", true, true, true, true},
		{"d e", "d e", true, true, true, true},
	} {
		stack := func(text string) (s []activation) {
			user, depths := foldtest.Frames(text)
			s, _ = activations(nil, target.AppendStack(nil, &bpf.Sample{User: user, Attachment: 1, End: bpf.EndRoot}, 1), depths)
			return s
		}
		a, b := stack(c.a), stack(c.b)
		for levels, want := range map[int]bool{1: c.one, 3: c.three, 0: c.all, 99: c.whole} {
			if SameCallers(a, b, levels, sameCall) != want || SameCallers(b, a, levels, sameCall) != want {
				t.Errorf("%s and %s for %d levels: %t", c.a, c.b, levels, !want)
			}
		}
	}
}
