package sink

import (
	"math"
	"testing"
)

// Of events of equal weight the interval of a share is that of a binomial distribution.
func TestIntervals(t *testing.T) {
	const weight = 512.0
	events := func(n float64) tally {
		return tally{values: [3]float64{0, n * weight}, events: n, variance: n * weight * weight}
	}
	for _, test := range []struct{ part, rest float64 }{{10, 10}, {25, 75}, {100, 0}, {30, 9970}} {
		part, all := events(test.part), events(test.part)
		all.add(events(test.rest))
		n := test.part + test.rest
		s := test.part / n
		if got, want := part.shareInterval(1, all), 196*math.Sqrt(s*(1-s)/n); math.Abs(got-want) > 1e-9 {
			t.Errorf("%v: share ±%v, want ±%v", test, got, want)
		}
	}
	if nothing := (tally{}); nothing.shareInterval(1, nothing) != 0 {
		t.Error("nothing has an interval")
	}
}

func TestAmounts(t *testing.T) {
	for _, test := range []struct {
		scale scale
		value float64
		want  string
	}{
		{bytesScale, 0, "0B"}, {bytesScale, 1023, "1023B"}, {bytesScale, 1024, "1.0KB"}, {bytesScale, 1.5 * (1 << 30), "1.5GB"},
		{bytesScale, 1 << 62, "4.0EB"}, {bytesScale, 1e30, "867361737988.4EB"},
		{timeScale, 999, "999ns"}, {timeScale, 1500, "1.50us"}, {timeScale, 2e6, "2.00ms"}, {timeScale, 90e9, "90.00s"},
	} {
		if got := test.scale.of(test.value); got != test.want {
			t.Errorf("%v is %s, want %s", test.value, got, test.want)
		}
	}
	for value, want := range map[float64]string{0: "0", 9999999: "9999999", 1e7: "10.00M", 1.5e12: "1.50T"} {
		if got := quantity(value); got != want {
			t.Errorf("quantity %v is %s, want %s", value, got, want)
		}
	}
}

func TestThreeDigits(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", 7: "7", 0.25: "0.25", 42.25: "42.2", 999: "999", 999.6: "1.00k", 1234: "1.23k", 203_020: "203k", 12_345_678: "12.3M", 2.5e18: "2.50E",
	} {
		if got := threeDigits(value); got != want {
			t.Errorf("%v: %s, want %s", value, got, want)
		}
	}
}
