package agent

// A pace decides how many of the samples whose link is known are walked nevertheless.
type pace struct {
	every        uint32 // one in so many
	fixed        bool
	draws, right int
}

const (
	firstEvery   = 8
	minEvery     = 2
	maxEvery     = 128
	drawsToJudge = 50
	// A guess that is right for three levels in so many of a hundred draws is good enough to walk less, or not.
	goodGuesses, badGuesses = 96, 90
)

func newPace(every uint32) *pace {
	if every != 0 {
		return &pace{every: every, fixed: true}
	}
	return &pace{every: firstEvery}
}

// drawn notes whether a draw was guessed right. It tells whether every has changed.
func (p *pace) drawn(right bool) bool {
	p.draws++
	if right {
		p.right++
	}
	if p.fixed || p.draws < drawsToJudge {
		return false
	}
	percent, before := 100*p.right/p.draws, p.every
	switch {
	case percent >= goodGuesses:
		p.every = min(2*p.every, maxEvery)
	case percent < badGuesses:
		p.every = max(p.every/2, minEvery)
	}
	p.draws, p.right = 0, 0
	return p.every != before
}
