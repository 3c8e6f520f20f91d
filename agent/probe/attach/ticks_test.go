package attach

import (
	"maps"
	"slices"
	"testing"
)

func TestParseCPUList(t *testing.T) {
	for _, c := range []struct {
		in   string
		want []int // nil: an error
	}{
		{"0\n", []int{0}},
		{"0-3,5", []int{0, 1, 2, 3, 5}},
		{"", nil},
		{"3-1", nil},
		{"0-99999999", nil},
		{"-1", nil},
		{"a", nil},
	} {
		got, err := parseCPUList(c.in)
		if (err != nil) != (c.want == nil) {
			t.Errorf("%q: error %v", c.in, err)
		}
		if s := slices.Sorted(maps.Keys(got)); err == nil && !slices.Equal(s, c.want) {
			t.Errorf("%q: %v, want %v", c.in, s, c.want)
		}
	}
}
