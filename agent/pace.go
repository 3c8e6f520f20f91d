package agent

// A pace decides how many of the samples whose link is known are walked nevertheless, and when a link is known.
type pace struct {
	every        uint32 // one in so many
	proof        uint8  // walks that must agree with a link's first one: see cct.Chain
	fixed        bool
	draws, right int
	frames       int // of the walks that were drawn since it was judged
}

const (
	firstEvery = 8
	minEvery   = 2
	// A walk of many frames is drawn more rarely, so that all walks together take about as long whatever the depth.
	maxEvery, maxEveryPerFrame = 128, 4
	firstProof                 = 1
	maxProof                   = 31
	drawsToJudge               = 50
	// A guess that is right for three levels in so many of a hundred draws is good enough to walk less, or not.
	goodGuesses, badGuesses = 97, 94
)

func newPace(every uint32) *pace {
	if every != 0 {
		return &pace{every: every, fixed: true}
	}
	return &pace{every: firstEvery, proof: firstProof}
}

// drawn notes whether a draw of so many frames was guessed right. It tells whether every has changed.
func (p *pace) drawn(right bool, frames int) bool {
	p.draws++
	p.frames += frames
	if right {
		p.right++
	}
	if p.fixed || p.draws < drawsToJudge {
		return false
	}
	percent, before := 100*p.right/p.draws, p.every
	switch {
	case percent >= goodGuesses:
		most := max(maxEvery, maxEveryPerFrame*p.frames/p.draws)
		p.every, p.proof = min(2*p.every, uint32(most)), p.proof/2
	case percent < badGuesses:
		p.every, p.proof = max(p.every/2, minEvery), min(2*p.proof+1, maxProof)
	}
	p.draws, p.right, p.frames = 0, 0, 0
	return p.every != before
}
