package guests

import (
	"maps"
	"testing"
)

func TestParseContexts(t *testing.T) {
	got, err := parseContexts([]string{"calls 1 exact-0", "calls 20 exact-0 a.b", "calls 3 exact-0 a.b c.d",
		"calls 4 exact-0 a.b"})
	if want := (Contexts{"exact-0 a.b": 24, "exact-0 a.b c.d": 3}); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v; want %v", got, err, want)
	}
	if methods := got.Methods(); !maps.Equal(methods, map[string]bool{"a.b": true, "c.d": true}) {
		t.Errorf("methods %v", methods)
	}
	for _, line := range []string{"", "calls", "calls 1", "calls x a b", "truth 1 a"} {
		if got, err := parseContexts([]string{line}); err == nil {
			t.Errorf("parsed %q as %v", line, got)
		}
	}
}

func TestDiff(t *testing.T) {
	want := Contexts{"t a": 1, "t b": 2, "t c": 3}
	shown, wrong := want.Diff(Contexts{"t a": 1, "t b": 5, "t d": 4}, 2)
	if wrong != 3 || len(shown) != 2 || shown[0] != "0 calls, want 3: t c" {
		t.Errorf("%d wrong: %q", wrong, shown)
	}
	if shown, wrong := want.Diff(want, 10); wrong != 0 || len(shown) != 0 {
		t.Errorf("%d wrong: %q", wrong, shown)
	}
}
