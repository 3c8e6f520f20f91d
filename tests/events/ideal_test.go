package events

import (
	"math"
	"testing"
)

// Expectations that can be reckoned by hand: of one draw from k equal classes 1/k lies in the same
// class; of two draws from two equal classes, all in half of the cases and one half in the others.
func TestIdeal(t *testing.T) {
	const simulations, tolerance = 20_000, 1 // a standard error of 0.35 at most: 50/√20,000
	equal := func(classes int) (cells []Cell) {
		for i := range classes {
			cells = append(cells, Cell{Class: string(rune('a' + i)), Objects: 10, Bytes: 160})
		}
		return cells
	}
	for _, test := range []struct {
		name  string
		cells []Cell
		n     int
		want  Overlap
	}{
		{"one class", equal(1), 1, Overlap{100, 100}},
		{"one draw", equal(4), 1, Overlap{25, 25}},
		{"two draws", equal(2), 2, Overlap{75, 75}},
		// Half of the bytes each, but 100 objects of a for each one of b: by objects, one draw is
		// right by 100/101 or 1/101.
		{"sizes", []Cell{{"a", 100, 1600}, {"b", 1, 1600}}, 1, Overlap{50, 50}},
		// The same of two draws: 100/101 of objects are in a if both are, and if one is; 1/101 if
		// none is.
		{"sizes, two draws", []Cell{{"a", 100, 1600}, {"b", 1, 1600}}, 2,
			Overlap{75, 100 * (0.25*100/101 + 0.5 + 0.25/101)}},
		// What a draw stands for matters, not how many there are; in numbers that no object has.
		{"more objects than bytes", []Cell{{"a", 1600, 100}, {"b", 16, 100}}, 1, Overlap{50, 50}},
		{"a class of two sizes", []Cell{{"a", 100, 1600}, {"a", 1, 1600}}, 1, Overlap{100, 100}},
		{"nothing of a cell", []Cell{{"a", 1, 16}, {"b", 0, 0}}, 1, Overlap{100, 100}},
		{"nothing", nil, 5, Overlap{}},
		{"no draw", equal(2), 0, Overlap{}},
	} {
		got := Ideal(test.cells, test.n, simulations, 1)
		if math.Abs(got.Bytes-test.want.Bytes) > tolerance || math.Abs(got.Objects-test.want.Objects) > tolerance {
			t.Errorf("%s: got %+v, want %+v", test.name, got, test.want)
		}
	}
}

// With many draws the share of a class is off by a normal deviate: E|X/n − p| is √(2p(1−p)/(πn)).
func TestIdealOfMany(t *testing.T) {
	cells := []Cell{{"a", 1, 500}, {"b", 1, 300}, {"c", 1, 200}}
	for _, n := range []int{100, 10_000} {
		want := 1.0
		for _, cell := range cells {
			p := cell.Bytes / 1000
			want -= math.Sqrt(2*p*(1-p)/(math.Pi*float64(n))) / 2
		}
		got := Ideal(cells, n, 500, 1)
		if math.Abs(got.Bytes-100*want) > 0.3*(100-100*want) {
			t.Errorf("%d draws: %.3f, want about %.3f", n, got.Bytes, 100*want)
		}
	}
}

func TestIdealIsDeterministic(t *testing.T) {
	cells := []Cell{{"a", 5, 80}, {"b", 1, 300}}
	if a, b, c := Ideal(cells, 7, 50, 1), Ideal(cells, 7, 50, 1), Ideal(cells, 7, 50, 2); a != b || a == c {
		t.Errorf("seed 1: %v and %v, seed 2: %v", a, b, c)
	}
}

func TestCompare(t *testing.T) {
	row := func(class string, objects, bytes float64) Row {
		return Row{Labels: Labels{Class: class}, Values: []float64{objects, bytes}}
	}
	exact := []Row{row("a", 90, 500), row("b", 10, 500)}
	got := Compare([]Row{row("a", 50, 250), row("b", 50, 750)}, exact)
	if math.Abs(got.Objects-60) > 1e-9 || math.Abs(got.Bytes-75) > 1e-9 {
		t.Errorf("got %+v, want 60 of objects and 75 of bytes", got)
	}
	if cells := Cells(exact); len(cells) != 2 || cells[1] != (Cell{"b", 10, 500}) {
		t.Errorf("cells %+v", cells)
	}
}
