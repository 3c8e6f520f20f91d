package events

import (
	"math"
	"testing"
)

func TestOverlap(t *testing.T) {
	for _, test := range []struct {
		name string
		a, b Weights
		want float64
	}{
		{"the same shares", Weights{"x": 1, "y": 3}, Weights{"x": 10, "y": 30}, 100},
		{"nothing in common", Weights{"x": 1}, Weights{"y": 1}, 0},
		{"half", Weights{"x": 1, "y": 1}, Weights{"x": 1}, 50},
		{"smaller shares", Weights{"x": 6, "y": 4}, Weights{"x": 2, "y": 5, "z": 3}, 20 + 40},
		{"empty", Weights{}, Weights{"x": 1}, 0},
	} {
		for _, got := range []float64{test.a.Overlap(test.b), test.b.Overlap(test.a)} {
			if math.Abs(got-test.want) > 1e-9 {
				t.Errorf("%s: %v, want %v", test.name, got, test.want)
			}
		}
	}
}

func TestFurthest(t *testing.T) {
	a, b := Weights{"x": 5, "y": 5}, Weights{"x": 4, "y": 5, "z": 1}
	if thing, by := a.Furthest(b); thing != "x" && thing != "z" || math.Abs(math.Abs(by)-0.1) > 1e-9 {
		t.Errorf("%q by %v", thing, by)
	}
	if thing, by := (Weights{"x": 1}).Furthest(Weights{"y": 1, "x": 1}); thing != "x" || by != 0.5 {
		t.Errorf("%q by %v, want x by 0.5", thing, by)
	}
	if thing, by := (Weights{}).Furthest(b); thing != "" || by != 0 {
		t.Errorf("%q by %v of nothing", thing, by)
	}
}

func TestByClass(t *testing.T) {
	rows, err := Read(recorded(), "alloc_objects", "alloc_space")
	if err != nil {
		t.Fatal(err)
	}
	if w := ByClass(rows, 1); w["byte[]"] != 1760 || w["int[]"] != 96 || w.Total() != 1856 {
		t.Errorf("got %v", w)
	}
	rows[0].Labels.Value, rows[1].Labels.Value = "a", "b"
	if w := ByValue(rows, 0); w["a"] != 10 || w["b"] != 1 || w[""] != 3 {
		t.Errorf("got %v", w)
	}
}
