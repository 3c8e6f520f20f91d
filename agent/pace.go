package agent

// A pace decides how many of the samples whose link is known are walked nevertheless, and when a link is known.
type pace struct {
	every        uint32 // one in so many
	proof        uint8  // walks that must agree with a link's first one: see cct.Chain
	fixed        bool
	draws, right int
}

const (
	firstEvery   = 8
	minEvery     = 2
	maxEvery     = 128
	firstProof   = 1
	maxProof     = 31
	drawsToJudge = 50
	// A guess that is right for three levels in so many of a hundred draws is good enough to walk less, or not.
	goodGuesses, badGuesses = 97, 94
)

func newPace(every uint32) *pace {
	if every != 0 {
		return &pace{every: every, fixed: true}
	}
	return &pace{every: firstEvery, proof: firstProof}
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
		p.every, p.proof = min(2*p.every, maxEvery), p.proof/2
	case percent < badGuesses:
		p.every, p.proof = max(p.every/2, minEvery), min(2*p.proof+1, maxProof)
	}
	p.draws, p.right = 0, 0
	return p.every != before
}
