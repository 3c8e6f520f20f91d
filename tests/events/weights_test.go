package events

import (
	"math"
	"math/rand/v2"
	"strconv"
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

// Two large samples of one distribution are alike, two small ones less; of one method they are
// equal.
func TestAlike(t *testing.T) {
	flat := func(methods, samples int) Weights {
		w := Weights{}
		for i := range methods {
			w[string(rune('a'+i))] = float64(samples) / float64(methods)
		}
		return w
	}
	one, none := Alike(flat(1, 100), flat(1, 50))
	few, some := Alike(flat(20, 100), flat(20, 100))
	many, little := Alike(flat(20, 100_000), flat(20, 100_000))
	if math.Abs(one-100) > 1e-9 || many < 98 || few < 60 || few > 95 {
		t.Errorf("one key %.1f, few samples %.1f, many %.1f", one, few, many)
	}
	if none > 1e-3 || some < 0.5 || some > 10 || little > some/4 {
		t.Errorf("one key ± %.4f, few samples ± %.2f, many ± %.2f", none, some, little)
	}
}

// Of a flat distribution most methods have no sample, or one. What samples of it are alike must not
// depend on the methods that were seen.
func TestAlikeFlat(t *testing.T) {
	const methods, samples, pairs = 5000, 600, 20
	rng := rand.New(rand.NewPCG(3, 4))
	draw := func() Weights {
		w := Weights{}
		for drawn := 0; drawn < samples; {
			method := rng.IntN(methods)
			if rng.Float64() < 20/float64(method+20) { // the share of the n-th method is as 1/(n+20)
				w[strconv.Itoa(method)]++
				drawn++
			}
		}
		return w
	}
	is, expected := 0., 0.
	for range pairs {
		a, b := draw(), draw()
		is += a.Overlap(b) / pairs
		mean, _ := Alike(a, b)
		expected += mean / pairs
	}
	if math.Abs(is-expected) > 2 {
		t.Errorf("two samples of one distribution overlap by %.1f %%, expected %.1f", is, expected)
	}
}
