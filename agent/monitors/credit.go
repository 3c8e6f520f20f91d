package monitors

import "time"

// A credit is what windows may take of guests' CPU time: a share of what the guests use. What is not taken is not kept for
// long, as a burst of windows would be felt.
type credit struct {
	share  float64
	left   time.Duration
	guests time.Duration // their CPU time when it was earned last
	begun  bool
}

// kept is how much credit is kept, in what was earned last: what windows that come at random moments leave for later.
const kept = 2

// earn gives credit for the CPU time that the guests have used in all; window is what one costs at most.
func (c *credit) earn(guests, window time.Duration) {
	var earned time.Duration
	if c.begun && guests > c.guests {
		earned = time.Duration(c.share * float64(guests-c.guests))
	}
	c.left = min(c.left+earned, max(kept*earned, window))
	c.guests, c.begun = guests, true
}

// take takes what a window costs at most; false if there is too little.
func (c *credit) take(window time.Duration) bool {
	if c.left < window {
		return false
	}
	c.left -= window
	return true
}

// settle gives back what a window did not cost, or takes what it cost more.
func (c *credit) settle(window, cost time.Duration) { c.left += window - cost }
