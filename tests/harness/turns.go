package harness

import "iter"

// Turns compare a guest with itself: it works without what is measured, with it, without it, with
// the next kind of it, and so on. What else the machine does then hits all alike. S is what one
// turn gives, K names what is measured.
type Turns[K comparable, S any] struct {
	Off []S // one before and one after each turn of On
	On  []Turn[K, S]
}

// A Turn is one in which something is measured.
type Turn[K comparable, S any] struct {
	Kind   K
	Sample S
}

// Rotated returns every kind once in each round, in another order each time.
func Rotated[K any](rounds int, kinds []K) iter.Seq2[int, K] {
	return func(yield func(int, K) bool) {
		for round := range rounds {
			for i := range kinds {
				if !yield(round, kinds[(i+round)%len(kinds)]) {
					return
				}
			}
		}
	}
}

// Alternate takes turns: off, on, off, on, off. After each turn that is on and the one that follows
// it calls done, unless it is nil.
func Alternate[K comparable, S any](
	kinds iter.Seq2[int, K], off func() (S, error), on func(K) (S, error), done func(*Turns[K, S]),
) (*Turns[K, S], error) {
	t := &Turns[K, S]{}
	rest := func() error {
		s, err := off()
		t.Off = append(t.Off, s)
		return err
	}
	if err := rest(); err != nil {
		return nil, err
	}
	for _, kind := range kinds {
		s, err := on(kind)
		if err != nil {
			return nil, err
		}
		t.On = append(t.On, Turn[K, S]{kind, s})
		if err := rest(); err != nil {
			return nil, err
		}
		if done != nil {
			done(t)
		}
	}
	return t, nil
}

// Over is a figure in the k-th turn over its mean in the turns before and after, which are off.
func (t *Turns[K, S]) Over(k int, figure func(S) float64) float64 {
	return overBoth(figure, t.On[k].Sample, t.Off[k], t.Off[k+1])
}

// Control is what Over would say of the turn that is off after the k-th if something were measured
// in it: how far from 1 Over is by chance. The last turn has no control.
func (t *Turns[K, S]) Control(k int, figure func(S) float64) (ratio float64, ok bool) {
	if k+2 >= len(t.Off) {
		return 0, false
	}
	return overBoth(figure, t.Off[k+1], t.Off[k], t.Off[k+2]), true
}

// Ratios returns Over and Control of all turns of a kind.
func (t *Turns[K, S]) Ratios(kind K, figure func(S) float64) (over, control []float64) {
	for k, turn := range t.On {
		if turn.Kind != kind {
			continue
		}
		over = append(over, t.Over(k, figure))
		if c, ok := t.Control(k, figure); ok {
			control = append(control, c)
		}
	}
	return over, control
}

func overBoth[S any](figure func(S) float64, s, before, after S) float64 {
	return Per(2*figure(s), figure(before)+figure(after))
}

// Per divides, and gives nothing for nothing.
func Per(amount, by float64) float64 {
	if by == 0 {
		return 0
	}
	return amount / by
}
