package nmethod

import (
	"reflect"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/vmruntime"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/debuginfo"
	"github.com/vmprof-agent/vmprof-agent/vmruntime/hotspot/vmtest"
)

// m1 calls m2 at 3 and at 9; the first copy calls m3 at 4. Both copies of m2 have places of their
// own.
func TestInlineTree(t *testing.T) {
	const m1, m2, m3 = 0x1000, 0x2000, 0x3000
	w := vmtest.NewScopeWriter(0, m1, m2, m3)
	at3, at9 := w.Scope(0, 1, 3), w.Scope(0, 1, 9)
	first4, first7 := w.Scope(at3, 2, 4), w.Scope(at3, 2, 7)
	second7 := w.Scope(at9, 2, 7)
	leaf := w.Scope(first4, 3, -1)
	own := w.Scope(0, 1, 12)
	w.Position(-1, 0)
	for i, scope := range []uint32{leaf, first7, second7, own, first7, own} {
		w.Position(int32(16*i), scope)
	}
	table, err := debuginfo.Decode(debuginfo.RawScopes{PCs: w.PCs, Scopes: w.Scopes, Metadata: w.Metadata}, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := &code{begin: 0x7f00, method: m1, scopes: table}
	want := []vmruntime.InlineNode{
		{Parent: -1, BCI: -1, Method: m1, Calls: []int{12}},
		{Parent: 0, BCI: 3, Method: m2, Calls: []int{7}},
		{Parent: 1, BCI: 4, Method: m3},
		{Parent: 0, BCI: 9, Method: m2, Calls: []int{7}},
	}
	if got := c.inlineTree(nil).Nodes; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for _, test := range []struct {
		offset uint64
		exact  bool
		want   []vmruntime.Scope
	}{
		{0, true, []vmruntime.Scope{{Method: m3, BCI: -1}, {Method: m2, BCI: 4}, {Method: m1, BCI: 3}}},
		{32, false, []vmruntime.Scope{{Method: m2, BCI: 7}, {Method: m1, BCI: 9}}},
		{33, false, []vmruntime.Scope{{Method: m1, BCI: -1}}}, // no return address
		{33, true, []vmruntime.Scope{{Method: m1, BCI: -1}}},  // between two places in it
		{500, true, []vmruntime.Scope{{Method: m1, BCI: -1}}},
	} {
		if got := c.places(c.begin+test.offset, test.exact); !reflect.DeepEqual(got, test.want) {
			t.Errorf("offset %d, exact %v: %+v, want %+v", test.offset, test.exact, got, test.want)
		}
	}
	wrapper := &code{method: m1}
	if got := wrapper.inlineTree(nil).Nodes; len(got) != 1 || got[0].Method != m1 {
		t.Errorf("a wrapper has %+v", got)
	}
}

// TestResolvingStubs: names of stubs as the VMs that were run have them, and what is no call of a
// method.
func TestResolvingStubs(t *testing.T) {
	for name, want := range map[string]bool{
		"resolve_opt_virtual_call":                  true,
		"resolve_virtual_call":                      true,
		"resolve_static_call":                       true,
		"Shared Runtime resolve_static_call_blob":   true,
		"wrong_method_stub":                         true,
		"wrong_method_abstract_stub":                true,
		"ic_miss_stub":                              true,
		"Shared Runtime wrong_method_abstract_blob": true,
		"Shared Runtime ic_miss_blob":               true,
		"UncommonTrapBlob":                          false,
		"DeoptimizationBlob":                        false,
		"native signature handlers":                 false,
		"deoptimize Runtime1 stub":                  false,
		"C1 Runtime predicate_failed_trap_blob":     false,
	} {
		if got := resolves(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
