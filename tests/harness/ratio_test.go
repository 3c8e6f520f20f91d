package harness

import "testing"

func TestRatio(t *testing.T) {
	many := RatioOf([]float64{1.01, 1.02, 1.03, 1.04, 1.05, 1.06, 1.07, 3})
	if many.Median < 1.03 || many.Median > 1.06 || many.Low > many.Median || many.High < many.Median {
		t.Errorf("got %v", many)
	}
	for name, tt := range map[string]struct {
		r    Ratio
		want string
	}{
		"below":        {Ratio{0.98, 0.95, 1.02}, "ok"},
		"cannot tell":  {Ratio{1.01, 0.99, 1.03}, "within noise"},
		"above":        {Ratio{1.05, 1.02, 1.09}, "MISSED"},
		"from nothing": {RatioOf(nil), "not measured"},
	} {
		if got := tt.r.AtMost(1); got != tt.want {
			t.Errorf("%s: %v is %q, want %q", name, tt.r, got, tt.want)
		}
	}
	if got := RatioOf([]float64{1, 1.1}).String(); got != "1.050 [?]" {
		t.Errorf("two values give %q", got)
	}
	if got := (Ratio{2350.2, 2349.9, 2400}).Whole(); got != "2350 [2350-2400]" {
		t.Errorf("whole numbers are %q", got)
	}
}
