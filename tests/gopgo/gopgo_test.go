package main

import (
	"io"
	"maps"
	"slices"
	"testing"

	"github.com/vmprof-agent/vmprof-agent/tests/harness"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// The compiler finds the hot calls of the runtime's profile in the agent's, too, and the tables
// have their places in the documentation.
func TestShort(t *testing.T) {
	needs.Root(t, "sampling")
	if err := run(t.Context(), []string{"-short", "-root", "../.."}, t.Output()); err != nil {
		t.Error(err)
	}
	if err := harness.CheckMarkers("../../"+docs, sections); err != nil {
		t.Error(err)
	}
	if err := run(t.Context(), []string{"-short", "-update"}, io.Discard); err == nil {
		t.Error("-short -update succeeds")
	}
}

func TestReadDecisions(t *testing.T) {
	d := readDecisions(`# example.com/shop
./shop.go:7:6: can inline total
hot-callsite-thres-from-CDF=0.5
hot-budget check allows inlining for call shop.total (cost 120) at ./shop.go:12:9 in function shop.main
hot-budget check allows inlining for call shop.total (cost 121) at ./shop.go:12:9 in function shop.main
./shop.go:13:9: PGO devirtualizing interface call w.Write to (*bufio.Writer).Write
`)
	if got, want := slices.Collect(maps.Keys(d.inlined)), []string{"call shop.total at ./shop.go:12:9 in function " +
		"shop.main"}; !slices.Equal(got, want) {
		t.Errorf("inlined %q, want %q", got, want)
	}
	if got, want := slices.Collect(maps.Keys(d.direct)), []string{"./shop.go:13:9: PGO devirtualizing interface call " +
		"w.Write to (*bufio.Writer).Write"}; !slices.Equal(got, want) {
		t.Errorf("direct %q, want %q", got, want)
	}
	a := agree([3]decisions{{inlined: lines{"a": true, "b": true}}, {inlined: lines{"a": true, "c": true}}, {}},
		func(d decisions) lines { return d.inlined })
	if a != (agreement{2, 2, 0.5, 0}) {
		t.Errorf("%+v", a)
	}
}
