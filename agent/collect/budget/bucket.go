package budget

import "time"

// A Bucket is a token bucket of CPU time that may be spent in the target now. It is filled with a
// share of the target's CPU time, and keeps little of what is not spent, so that bursts stay small.
// The zero value is empty.
type Bucket struct {
	tokens time.Duration
	used   time.Duration // by the target at the last filling
	begun  bool
}

// kept is how many fillings are kept, to make up for random moments of spending.
const kept = 2

// Fill adds tokens. The bucket keeps two fillings, or least, the cost of one operation, if that is
// more.
func (b *Bucket) Fill(earned, least time.Duration) {
	b.tokens = min(b.tokens+earned, max(kept*earned, least))
}

// FillShare adds a share of the CPU time that the target used since the last filling. used is its
// total CPU time: the first filling adds nothing, as earlier time belongs to nobody.
func (b *Bucket) FillShare(share float64, used, least time.Duration) {
	var earned time.Duration
	if b.begun && used > b.used {
		earned = time.Duration(share * float64(used-b.used))
	}
	b.Fill(earned, least)
	b.used, b.begun = used, true
}

// Take takes the maximum cost of an operation; false if there is too little.
func (b *Bucket) Take(most time.Duration) bool {
	if b.tokens < most {
		return false
	}
	b.tokens -= most
	return true
}

// Settle returns what of most was not spent, or takes what was spent beyond it.
func (b *Bucket) Settle(most, spent time.Duration) { b.tokens += most - spent }
