package valueprobe

import (
	"math"
	"testing"
)

func TestBucket(t *testing.T) {
	for _, test := range []struct {
		n      uint64
		signed bool
		want   Bucket
		text   string
	}{
		{0, false, 0, "0"}, {0, true, 0, "0"}, {1, false, 1, "1"}, {2, true, 2, "2-3"}, {3, false, 2, "2-3"},
		{16, false, 5, "16-31"},
		{31, true, 5, "16-31"}, {32, true, 6, "32-63"},
		{math.MaxUint64, false, 64, "9223372036854775808-18446744073709551615"},
		{math.MaxUint64, true, -1, "-1"},
		{^uint64(2), true, -2, "-3--2"}, // -3
		{^uint64(15), true, -5, "-31--16"},
		{math.MaxInt64, true, 63, "4611686018427387904-9223372036854775807"},
		{1 << 63, true, -64, "-9223372036854775808"},
	} {
		b := BucketOf(test.n, test.signed)
		if b != test.want || b.String() != test.text {
			t.Errorf("%#x, signed %v: bucket %d, %s; want %d, %s", test.n, test.signed, b, b, test.want, test.text)
		}
	}
}
