package budget

import "time"

// A Bucket is a token bucket: what may be spent of the target's CPU time now. It is filled with a share of the CPU time that
// the target uses, and keeps little of what is not spent, since a burst would be felt. The zero value is empty.
type Bucket struct {
	tokens time.Duration
	used   time.Duration // by the target when it was filled last
	begun  bool
}

// kept is how many fillings are kept: what spending at random moments leaves for later.
const kept = 2

// Fill adds tokens. The bucket keeps two fillings, or least if that is more: what is spent at once.
func (b *Bucket) Fill(earned, least time.Duration) {
	b.tokens = min(b.tokens+earned, max(kept*earned, least))
}

// FillShare adds a share of what the target used since the last filling. used is its CPU time in all: the first filling
// adds nothing, as what was used before is nobody's.
func (b *Bucket) FillShare(share float64, used, least time.Duration) {
	var earned time.Duration
	if b.begun && used > b.used {
		earned = time.Duration(share * float64(used-b.used))
	}
	b.Fill(earned, least)
	b.used, b.begun = used, true
}

// Take takes what something costs at most; false if there is too little.
func (b *Bucket) Take(most time.Duration) bool {
	if b.tokens < most {
		return false
	}
	b.tokens -= most
	return true
}

// Settle gives back what of most was not spent, or takes what was spent beyond it.
func (b *Bucket) Settle(most, spent time.Duration) { b.tokens += most - spent }
