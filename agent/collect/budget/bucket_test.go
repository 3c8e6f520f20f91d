package budget

import (
	"testing"
	"time"
)

func TestBucket(t *testing.T) {
	const share = 0.01
	var b Bucket
	b.FillShare(share, time.Hour, time.Millisecond) // before it began
	if b.Take(time.Millisecond) {
		t.Error("tokens for time before the first filling")
	}
	b.FillShare(share, time.Hour+time.Second, time.Millisecond) // 10 ms
	spent := time.Duration(0)
	for b.Take(time.Millisecond) {
		const cost = 1500 * time.Microsecond // more than was expected
		b.Settle(time.Millisecond, cost)
		spent += cost
	}
	if spent < 9*time.Millisecond || spent > 11*time.Millisecond {
		t.Errorf("%v were spent of 10 ms", spent)
	}
	for i := range 100 { // idle: nothing is taken
		b.FillShare(share, time.Hour+time.Duration(i+1)*time.Second, time.Millisecond)
	}
	if b.tokens > 20*time.Millisecond {
		t.Errorf("%v were saved", b.tokens)
	}
}

// The cost of one operation can be saved up, however little a filling adds.
func TestBucketSavesForOne(t *testing.T) {
	var b Bucket
	for range 9 {
		b.Fill(time.Millisecond, 10*time.Millisecond)
	}
	if b.Take(10 * time.Millisecond) {
		t.Error("10 ms of 9")
	}
	for range 9 {
		b.Fill(time.Millisecond, 10*time.Millisecond)
	}
	if !b.Take(10*time.Millisecond) || b.Take(time.Millisecond) {
		t.Error("10 ms are not what is kept")
	}
}
