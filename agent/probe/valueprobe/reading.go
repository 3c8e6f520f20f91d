package valueprobe

import (
	"math/bits"
	"strconv"
)

// A Reading is one value of one execution.
type Reading struct {
	Failed bool // it could not be read; nothing else is set then
	IsText bool
	Number uint64 // if it is no text
	Signed bool   // Number is in two's complement
	Text   string
	Cut    bool // Text is the beginning of a longer one
}

// A Bucket is a range of numbers between powers of two. Bucket 0 has zero alone, k > 0 has 1<<(k-1)
// to 1<<k - 1, and -k the same below zero. The order of buckets is that of their numbers.
type Bucket int8

// BucketOf returns the bucket of a number, in 64 bits; signed if it is in two's complement.
func BucketOf(n uint64, signed bool) Bucket {
	if signed && int64(n) < 0 {
		return -Bucket(bits.Len64(-n))
	}
	return Bucket(bits.Len64(n))
}

// String is the range: 0, 1, 16-31, -31--16.
func (b Bucket) String() string {
	k := max(b, -b)
	if k <= 1 {
		return strconv.Itoa(int(b))
	}
	low := strconv.FormatUint(1<<(k-1), 10)
	high := strconv.FormatUint(1<<(k-1)-1+1<<(k-1), 10)
	switch {
	case k == 64 && b < 0:
		return "-" + low // there is no other number of 64 bits
	case b < 0:
		return "-" + high + "--" + low
	}
	return low + "-" + high
}
