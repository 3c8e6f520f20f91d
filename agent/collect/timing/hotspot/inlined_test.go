package hotspot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
)

// An inliningVM has compilations by version. The name of method 7 is a.M7.
type inliningVM struct {
	vmruntime.CallCounter
	all      []vmruntime.Compilation
	trees    map[uint32]*vmruntime.InlineTree
	profiles map[uint64]*vmruntime.MethodProfile
}

func (v *inliningVM) Compilations(visit func(vmruntime.Compilation) bool) error {
	for _, c := range v.all {
		visit(c)
	}
	return nil
}

func (v *inliningVM) InlineTree(c vmruntime.Compilation) (*vmruntime.InlineTree, error) {
	return v.trees[c.Version], nil
}

func (v *inliningVM) Profiles(methods []uint64) (map[uint64]*vmruntime.MethodProfile, error) {
	read := maps.Clone(v.profiles)
	maps.DeleteFunc(read, func(m uint64, _ *vmruntime.MethodProfile) bool { return !slices.Contains(methods, m) })
	return read, nil
}

func (v *inliningVM) Names(places []vmruntime.Scope) (frames []vmruntime.Frame, err error) {
	for _, p := range places {
		frames = append(frames, vmruntime.Frame{Function: fmt.Sprintf("a.M%d", p.Method), Signature: "()V"})
	}
	return frames, nil
}

// calls is a method's profile with calls of others, at bytecode indexes 1, 2, …
func calls(targets ...uint64) *vmruntime.MethodProfile {
	p := &vmruntime.MethodProfile{Counted: true}
	for i, t := range targets {
		p.Calls = append(p.Calls, vmruntime.CallCount{BCI: i + 1, Count: 1000, Target: t})
	}
	return p
}

// The error for a method that is inlined everywhere names the nearest caller that has an entry,
// whether the copy has left a trace or not.
func TestInlinedEverywhere(t *testing.T) {
	const leaf, middle, outer, looping = 1, 2, 3, 4
	node := func(parent, bci int, m uint64, made ...int) vmruntime.InlineNode {
		return vmruntime.InlineNode{Parent: parent, BCI: bci, Method: m, Calls: made}
	}
	compiled := func(version uint32, m uint64, tier vmruntime.Tier, entry int) vmruntime.Compilation {
		return vmruntime.Compilation{Version: version, Method: m, Tier: tier, EntryBCI: entry, InUse: true}
	}
	traced := &inliningVM{
		all: []vmruntime.Compilation{compiled(10, middle, vmruntime.TierC2, -1),
			compiled(11, outer, vmruntime.TierC2, -1), compiled(12, looping, vmruntime.TierC2, 5)},
		trees: map[uint32]*vmruntime.InlineTree{
			10: {Nodes: []vmruntime.InlineNode{node(-1, -1, middle), node(0, 1, leaf)}},
			11: {Nodes: []vmruntime.InlineNode{node(-1, -1, outer), node(0, 1, middle), node(1, 1, leaf)}},
			12: {Nodes: []vmruntime.InlineNode{node(-1, -1, looping), node(0, 1, leaf)}},
		},
	}
	vanished := &inliningVM{
		all: []vmruntime.Compilation{compiled(10, middle, vmruntime.TierC2, -1),
			compiled(11, outer, vmruntime.TierC2, -1)},
		trees: map[uint32]*vmruntime.InlineTree{
			10: {Nodes: []vmruntime.InlineNode{node(-1, -1, middle)}},
			11: {Nodes: []vmruntime.InlineNode{node(-1, -1, outer, 2)}},
		},
		profiles: map[uint64]*vmruntime.MethodProfile{middle: calls(leaf), outer: calls(middle, looping)},
	}
	called := &inliningVM{
		all: vanished.all,
		trees: map[uint32]*vmruntime.InlineTree{10: {Nodes: []vmruntime.InlineNode{node(-1, -1, middle, 1)}},
			11: {Nodes: []vmruntime.InlineNode{node(-1, -1, outer, 1, 2)}}},
		profiles: vanished.profiles,
	}
	early := &inliningVM{all: []vmruntime.Compilation{compiled(10, middle, vmruntime.TierC1, -1)}, trees: traced.trees}
	loop := &inliningVM{all: traced.all[2:], trees: traced.trees}
	for _, test := range []struct {
		name string
		vm   *inliningVM
		want string // at the end of the error; "" for none
	}{
		{"with a trace", traced, "code of its own: a.M3 (others: a.M2)"}, // M2 is inlined itself
		{"without a trace", vanished, "code of its own: a.M3 (others: a.M2)"},
		{"called", called, ""},
		{"by C1", early, ""}, // it may be compiled yet
		{"only into a loop", loop, "(a.M4), which has no entry either: choose another method that the loop calls"},
	} {
		p := &process{
			vm: test.vm, method: Method{Function: "a.M1"}, names: map[uint64]bool{}, searched: map[uint32]*container{},
			osr:     map[uint32]bool{},
			inlined: map[string]bool{}, copied: map[uint64]bool{}, forms: map[string]bool{},
		}
		for range 2 { // a later search finds the same
			if err := p.search(); err != nil {
				t.Fatal(err)
			}
			switch err := p.everywhere(); {
			case test.want == "" && err != nil:
				t.Errorf("%s: %v", test.name, err)
			case test.want != "" && (err == nil || !strings.HasSuffix(err.Error(), test.want)):
				t.Errorf("%s: %v, want … %s", test.name, err, test.want)
			}
		}
	}
}
