package budget

import (
	"math"
	"testing"
)

func TestLend(t *testing.T) {
	const share = 0.01
	for _, c := range []struct {
		name   string
		claims []Claim
		want   []float64 // in all
	}{
		{"no needs", []Claim{{}, {}}, []float64{0.01, 0.01}},
		{"enough for all", []Claim{{Need: 0.009}, {}}, []float64{0.01, 0.01}},
		{"one borrows of all", []Claim{{Need: 0.25}, {}, {}}, []float64{0.03, 0, 0}},
		{"twice the need is kept", []Claim{{Need: 0.25}, {Need: 0.0025}, {}}, []float64{0.025, 0.005, 0}},
		{"two borrow equal parts", []Claim{{Need: 0.25}, {Need: 0.02}, {}}, []float64{0.015, 0.015, 0}},
		{"nearly all of a share is needed", []Claim{{Need: 0.25}, {Need: 0.0095}, {}}, []float64{0.02, 0.01, 0}},
		{"fixed ones do not lend", []Claim{{Need: 0.25}, {Fixed: true}, {}}, []float64{0.02, 0.01, 0}},
		{"nor borrow", []Claim{{Need: 0.25, Fixed: true}, {}}, []float64{0.01, 0.01}},
	} {
		for i, lent := range Lend(share, c.claims) {
			if got := share + lent; math.Abs(got-c.want[i]) > 1e-9 {
				t.Errorf("%s: claim %d has %v, want %v", c.name, i, got, c.want[i])
			}
		}
	}
}
