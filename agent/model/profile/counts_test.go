package profile

import (
	"maps"
	"reflect"
	"testing"
	"time"
)

// numbered sets each number of a struct of counts to one more than the last, and each map to one
// cause.
func numbered(counts any) {
	v := reflect.ValueOf(counts).Elem()
	for i := range v.NumField() {
		n := uint64(i + 1)
		switch f := v.Field(i).Addr().Interface().(type) {
		case *uint64:
			*f = n
		case *time.Duration:
			*f = time.Duration(n)
		case *map[string]uint64:
			*f = map[string]uint64{"cause": n}
		}
	}
}

// checkDoubled checks that sum is twice the numbered struct once, in every field, and that once did
// not change.
func checkDoubled(t *testing.T, once, sum any) {
	t.Helper()
	for i := range reflect.TypeOf(once).NumField() {
		a, b := reflect.ValueOf(once).Field(i), reflect.ValueOf(sum).Field(i)
		want, got := uint64(2*(i+1)), uint64(0)
		switch f := b.Interface().(type) {
		case uint64:
			got = f
		case time.Duration:
			got = uint64(f)
		case map[string]uint64:
			got = f["cause"]
			if a.Interface().(map[string]uint64)["cause"] != want/2 {
				t.Errorf("%s of the window was changed", reflect.TypeOf(once).Field(i).Name)
			}
		}
		if got != want {
			t.Errorf("%s is %d, want %d", reflect.TypeOf(once).Field(i).Name, got, want)
		}
	}
}

func TestCountsAdd(t *testing.T) {
	var c, sum Counts
	numbered(&c)
	sum.Add(c)
	sum.Add(c)
	checkDoubled(t, c, sum)
	sum.Add(Counts{Dropped: map[string]uint64{"other": 7}})
	if want := map[string]uint64{"cause": 6, "other": 7}; !maps.Equal(sum.Dropped, want) {
		t.Errorf("dropped %v, want %v", sum.Dropped, want)
	}
}

func TestEventCountsAdd(t *testing.T) {
	var c, sum EventCounts
	numbered(&c)
	sum.Add(c)
	sum.Add(c)
	checkDoubled(t, c, sum)
}

// The account of a part of the processes has that part's samples, its share of the losses, and adds
// up.
func TestCountsPart(t *testing.T) {
	all := Counts{
		Attempted: 1100, Delivered: 1040, Folded: 1000, Dropped: map[string]uint64{"ring_full": 60},
		Discarded: map[string]uint64{Malformed: 40},
		Truncated: map[string]uint64{"frame pointer": 200}, Stale: 10, Unknown: 500, Idle: 7,
	}
	want := Counts{
		Attempted: 275, Delivered: 260, Folded: 250, Dropped: map[string]uint64{"ring_full": 15},
		Discarded: map[string]uint64{Malformed: 10},
		Truncated: map[string]uint64{"frame pointer": 50}, Stale: 3, Unknown: 125, Idle: 7,
	}
	if got := all.Part(250); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := all.Part(1000); !reflect.DeepEqual(got, all) {
		t.Errorf("all: %+v", got)
	}
	if got := (Counts{}).Part(0); !reflect.DeepEqual(got, Counts{}) {
		t.Errorf("none: %+v", got)
	}
	if all.Dropped["ring_full"] != 60 {
		t.Error("the account of all was changed")
	}
}
