package fold

// A WalkRate decides how many of the samples whose link is known are walked nevertheless, and when a link is known.
type WalkRate struct {
	Every        uint32 // one in so many
	Proof        uint8  // walks that must agree with a link's first one: see cct.Chain
	fixed        bool   // users set Every
	Draws, Right int    // walks that were drawn since Every was judged, and those of them that were guessed right
	frames       int    // of the walks that were drawn
}

const (
	// FirstEvery is the first Every that adapts.
	FirstEvery = 8
	minEvery   = 2
	// A walk of many frames is drawn more rarely, so that all walks together take about as long whatever the depth.
	maxEvery, maxEveryPerFrame = 128, 4
	firstProof                 = 1
	maxProof                   = 31
	// DrawsToJudge is after how many draws Every is judged.
	DrawsToJudge = 50
	// A guess that is right for three levels in so many of a hundred draws is good enough to walk less, or not.
	goodGuesses, badGuesses = 97, 94
)

// NewWalkRate is a fixed rate, or one that adapts if every is 0.
func NewWalkRate(every uint32) *WalkRate {
	if every != 0 {
		return &WalkRate{Every: every, fixed: true}
	}
	return &WalkRate{Every: FirstEvery, Proof: firstProof}
}

// drawn notes whether a draw of so many frames was guessed right. It tells whether every has changed.
func (p *WalkRate) drawn(right bool, frames int) bool {
	p.Draws++
	p.frames += frames
	if right {
		p.Right++
	}
	if p.fixed || p.Draws < DrawsToJudge {
		return false
	}
	percent, before := 100*p.Right/p.Draws, p.Every
	switch {
	case percent >= goodGuesses:
		most := max(maxEvery, maxEveryPerFrame*p.frames/p.Draws)
		p.Every, p.Proof = min(2*p.Every, uint32(most)), p.Proof/2
	case percent < badGuesses:
		p.Every, p.Proof = max(p.Every/2, minEvery), min(2*p.Proof+1, maxProof)
	}
	p.Draws, p.Right, p.frames = 0, 0, 0
	return p.Every != before
}
