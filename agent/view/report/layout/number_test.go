package layout

import "testing"

func TestAmounts(t *testing.T) {
	for _, test := range []struct {
		scale Scale
		value float64
		want  string
	}{
		{Bytes, 0, "0B"}, {Bytes, 999, "999B"}, {Bytes, 1000, "1.0kB"}, {Bytes, 34_275_951_772, "34.3GB"},
		{Bytes, 1 << 62, "4.6EB"}, {Bytes, 1e30, "1000000000000.0EB"},
		{Time, 999, "999ns"}, {Time, 1500, "1.50us"}, {Time, 2e6, "2.00ms"}, {Time, 90e9, "90.00s"},
	} {
		if got := test.scale.Format(test.value); got != test.want {
			t.Errorf("%v is %s, want %s", test.value, got, test.want)
		}
	}
	for value, want := range map[float64]string{0: "0", 9999999: "9999999", 1e7: "10.00M", 1.5e12: "1.50T"} {
		if got := Quantity(value); got != want {
			t.Errorf("quantity %v is %s, want %s", value, got, want)
		}
	}
}

func TestManyOf(t *testing.T) {
	for _, test := range [][3]string{{"1", "samples", "1 sample"}, {"0", "samples", "0 samples"},
		{"2", "calls", "2 calls"}, {"1.00k", "calls", "1.00k calls"}, {"1.0MB", "allocated", "1.0MB allocated"}} {
		if got := ManyOf(test[0], test[1]); got != test[2] {
			t.Errorf("%q, want %q", got, test[2])
		}
	}
}
