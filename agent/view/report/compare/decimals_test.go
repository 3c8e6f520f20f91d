package compare

import (
	"math"
	"testing"
)

func TestDecimals(t *testing.T) {
	for _, test := range []struct {
		value float64
		want  string
	}{{1, "1.0000"}, {-0.5, "-0.5000"}, {0, "0.0000"}, {-1e-9, "0.0000"}, {math.NaN(), "-"}} {
		if got := decimals(test.value, 4); got != test.want {
			t.Errorf("decimals(%g) = %s, want %s", test.value, got, test.want)
		}
	}
}
