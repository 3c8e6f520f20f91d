package watch

import (
	"math/rand/v2"
	"slices"
)

// A Rotation is a round robin: everything has its turn before anything has its next, in an order
// that is random each time. The zero value is ready.
type Rotation[T comparable] struct{ left []T }

// Next returns up to n different ones of all, whose turn it is. What is not among all any more has
// lost its turn; what is new comes in with the next round.
func (r *Rotation[T]) Next(all []T, n int) (turn []T) {
	r.left = slices.DeleteFunc(r.left, func(e T) bool { return !slices.Contains(all, e) })
	if len(r.left) < n {
		begin := len(r.left)
		r.left = append(r.left, all...)
		round := r.left[begin:]
		rand.Shuffle(len(round), func(i, j int) { round[i], round[j] = round[j], round[i] })
	}
	r.left = slices.DeleteFunc(r.left, func(e T) bool {
		if len(turn) == n || slices.Contains(turn, e) {
			return false // It is an element of this round or the next: its turn comes.
		}
		turn = append(turn, e)
		return true
	})
	return turn
}

// maxRotations bounds the keys whose order is kept; when there are more they all begin anew.
const maxRotations = 256

// Rotations are Rotations by key. Make it with make.
type Rotations[K, T comparable] map[K]*Rotation[T]

// Get returns the rotation of a key, a new one at first.
func (rs Rotations[K, T]) Get(key K) *Rotation[T] {
	r := rs[key]
	if r == nil {
		if len(rs) >= maxRotations {
			clear(rs)
		}
		r = &Rotation[T]{}
		rs[key] = r
	}
	return r
}
