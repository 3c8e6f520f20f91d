package harness

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// A made-up guest that takes one more in each turn, and twice as much while something is measured.
func TestAlternate(t *testing.T) {
	now := 0.0
	var order []string
	off := func() (float64, error) { order = append(order, "off"); now++; return now, nil }
	on := func(kind string) (float64, error) { order = append(order, kind); now++; return 2 * now, nil }
	done := 0
	turns, err := Alternate(Rotated(2, []string{"a", "b"}), off, on, func(t *Turns[string, float64]) {
		if done++; len(t.On) != done || len(t.Off) != done+1 {
			order = append(order, fmt.Sprintf("%d turns, %d rests", len(t.On), len(t.Off)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(order, " "); got != "off a off b off b off a off" || done != 4 {
		t.Errorf("turns %q, %d times done", got, done)
	}
	itself := func(s float64) float64 { return s }
	over, control := turns.Ratios("a", itself)
	if !slices.Equal(over, []float64{2, 2}) || !slices.Equal(control, []float64{1}) { // the last turn has no control
		t.Errorf("a: %v, control %v", over, control)
	}
	over, control = turns.Ratios("b", itself)
	if !slices.Equal(over, []float64{2, 2}) || !slices.Equal(control, []float64{1, 1}) {
		t.Errorf("b: %v, control %v", over, control)
	}
	if nothing := turns.Over(0, func(float64) float64 { return 0 }); nothing != 0 {
		t.Errorf("nothing over nothing is %v", nothing)
	}
}

func TestAlternateFails(t *testing.T) {
	broken := errors.New("broken")
	fine := func() (int, error) { return 1, nil }
	if _, err := Alternate(Rotated(1, []string{"a"}), func() (int, error) { return 0, broken }, nil,
		nil); !errors.Is(err, broken) {
		t.Errorf("the first turn: %v", err)
	}
	if _, err := Alternate(Rotated(1, []string{"a"}), fine, func(string) (int, error) { return 0, broken },
		nil); !errors.Is(err, broken) {
		t.Errorf("the second turn: %v", err)
	}
}
