package listener

import (
	"math/rand/v2"
	"slices"

	"github.com/vmprof-agent/vmprof-agent/agent/proc"
)

// rotations are the orders in which the entries of guests are listened to.
type rotations map[proc.Identity]*rotation

// maxRotations bounds the guests whose order is kept; when there are more they all begin anew.
const maxRotations = 256

// of returns the one of a guest.
func (rs rotations) of(id proc.Identity) *rotation {
	r := rs[id]
	if r == nil {
		if len(rs) >= maxRotations {
			clear(rs)
		}
		r = &rotation{}
		rs[id] = r
	}
	return r
}

// A rotation lets every entry have its turn before any has its next, in an order that is random each time.
type rotation struct{ left []Entry }

// next returns up to MaxEntries different ones of hot, whose turn it is. What is hot no more has lost its turn; what is
// new comes in with the next round.
func (r *rotation) next(hot []Entry) (turn []Entry) {
	r.left = slices.DeleteFunc(r.left, func(e Entry) bool { return !slices.Contains(hot, e) })
	if len(r.left) < MaxEntries {
		begin := len(r.left)
		r.left = append(r.left, hot...)
		round := r.left[begin:]
		rand.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	}
	r.left = slices.DeleteFunc(r.left, func(e Entry) bool {
		if len(turn) == MaxEntries || slices.Contains(turn, e) {
			return false // of this round or the next: its turn comes
		}
		turn = append(turn, e)
		return true
	})
	return turn
}
