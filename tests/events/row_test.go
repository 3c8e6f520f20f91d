package events

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/pprof/profile"
)

// recorded is a recording of allocations: two sampled rows, one of them on another thread, and an
// exact one.
func recorded() *profile.Profile {
	heap := &profile.Mapping{ID: 1, File: "[jit: hotspot]"}
	method := func(id uint64, name string) *profile.Location {
		return &profile.Location{ID: id, Mapping: heap, Line: []profile.Line{{Function: &profile.Function{ID: id,
			Name: name}}}}
	}
	leaf, caller := method(1, "guest.A.leaf"), method(2, "guest.A.caller")
	sample := func(thread, class, kind string, values ...int64) *profile.Sample {
		return &profile.Sample{
			Location: []*profile.Location{leaf, caller}, Value: values,
			Label: map[string][]string{"thread": {thread}, "class": {class}, "kind": {kind},
				"generation": {"young"}},
			NumLabel: map[string][]int64{"offset": {16}},
		}
	}
	return &profile.Profile{
		SampleType: []*profile.ValueType{{Type: "alloc_objects"}, {Type: "alloc_space"}, {Type: "events"}},
		Sample: []*profile.Sample{
			sample("worker-0", "byte[]", "", 10, 1600, 2),
			sample("main", "byte[]", "", 1, 160, 1),
			sample("worker-1", "int[]", "exact", 3, 96, 3),
		},
	}
}

func TestRead(t *testing.T) {
	rows, err := Read(recorded(), "alloc_space", "alloc_objects")
	if err != nil {
		t.Fatal(err)
	}
	first := rows[0]
	if first.Labels != (Labels{Class: "byte[]", Generation: "young", Offset: 16}) || first.Thread != "worker-0" ||
		first.Count != 2 {
		t.Errorf("got %+v", first)
	}
	if !slices.Equal(first.Values, []float64{1600, 10}) || !first.Self("guest.A.leaf") || !first.Has("guest.A.caller") {
		t.Errorf("got %+v", first)
	}
	sampled, exact := Split(rows)
	if len(sampled) != 2 || len(exact) != 1 || exact[0].Class != "int[]" {
		t.Errorf("sampled %+v, exact %+v", sampled, exact)
	}
	if own := Own(rows); len(own) != 2 || Count(own) != 5 || Sum(own, 0) != 1696 {
		t.Errorf("own %+v", own)
	}
	if len(InMethod(rows, "guest.A.leaf")) != 3 || len(InMethod(rows, "guest.A.caller")) != 0 {
		t.Error("rows are not distinguished by their innermost method")
	}
	if _, err := Read(recorded(), "delay"); err == nil || !strings.Contains(err.Error(), "alloc_space") {
		t.Errorf("a type that is not there: %v", err)
	}
}
