package prom

import (
	"cmp"
	"iter"
	"math"
	"slices"
	"time"
)

const (
	// halfLife is how long CPU time counts towards a rank. It is long against a scrape interval, so
	// that a busy minute does not reshuffle the series, and short against a working day.
	halfLife = 10 * time.Minute
	// hysteresis is how many times hotter a newcomer must be than the coldest entry whose place it
	// takes.
	hysteresis = 2
	// keepFactor bounds the table: it holds keepFactor times as many entries as have a place.
	keepFactor = 4
)

// A ranking keeps the few hottest keys of a stream without letting them flap. An entry that has a
// place keeps it until another one is clearly hotter; being idle costs no place. Since a place
// changes hands only for twice the score, and scores halve every halfLife, no more than about one
// series per place and halfLife is made in the long run, whatever the guest does.
//
// The table never holds more than keepFactor*places entries, however many keys there are.
type ranking[K comparable, V any] struct {
	places  int
	floor   float64 // score that an entry needs to be worth a series; below it ranks are noise, see kind.floor
	entries map[K]*ranked[K, V]
	compare func(a, b K) int // breaks ties, so that equal input gives equal series
}

type ranked[K comparable, V any] struct {
	key    K
	score  float64 // score by what is ranked, the old scores faded
	placed bool
	value  V // survives the loss of the place for as long as the entry stays in the table
}

func newRanking[K comparable, V any](places int, floor float64, compare func(a, b K) int) *ranking[K, V] {
	return &ranking[K, V]{places: places, floor: floor, entries: make(map[K]*ranked[K, V]), compare: compare}
}

// get returns the entry of key if it has a place, and nil otherwise.
func (r *ranking[K, V]) get(key K) *ranked[K, V] {
	if e := r.entries[key]; e != nil && e.placed {
		return e
	}
	return nil
}

// update gives out the places anew: d has passed, in which keys used so much. Each key comes once.
func (r *ranking[K, V]) update(d time.Duration, used iter.Seq2[K, uint64]) {
	fade := math.Exp2(-d.Seconds() / halfLife.Seconds())
	for _, e := range r.entries {
		e.score *= fade
	}
	waiting := shortlist[K, V]{n: keepFactor * r.places, hotter: r.hotter}
	for key, n := range used {
		if e := r.entries[key]; e != nil {
			e.score += float64(n)
		} else if score := float64(n); waiting.wants(score) {
			waiting.add(&ranked[K, V]{key: key, score: score})
		}
	}
	var placed []*ranked[K, V]
	for _, e := range r.entries {
		if e.placed {
			placed = append(placed, e)
		} else {
			waiting.add(e)
		}
	}
	waiting.cut()
	slices.SortFunc(placed, r.hotter)
	r.admit(placed, waiting.list)
	r.keep(append(placed, waiting.list...))
}

// admit gives places to those of the waiting that deserve one. Both lists are sorted, the hottest
// first.
func (r *ranking[K, V]) admit(placed, waiting []*ranked[K, V]) {
	free, coldest := r.places-len(placed), len(placed)-1
	for _, e := range waiting {
		switch {
		case e.score < r.floor:
			return
		case free > 0:
			free--
		case coldest >= 0 && e.score >= hysteresis*placed[coldest].score:
			placed[coldest].placed = false
			coldest--
		default:
			return
		}
		e.placed = true
	}
}

// keep makes the table of those with a place and of the hottest others, as far as there is room.
func (r *ranking[K, V]) keep(all []*ranked[K, V]) {
	slices.SortFunc(all, r.hotter)
	clear(r.entries)
	room := (keepFactor - 1) * r.places
	for _, e := range all {
		if !e.placed {
			if room == 0 {
				continue
			}
			room--
		}
		r.entries[e.key] = e
	}
}

// hotter orders entries, the hottest first.
func (r *ranking[K, V]) hotter(a, b *ranked[K, V]) int {
	if a.score != b.score {
		return cmp.Compare(b.score, a.score)
	}
	return r.compare(a.key, b.key)
}

// A shortlist holds the n hottest of any number of entries, in memory for about 2n.
type shortlist[K comparable, V any] struct {
	n      int
	hotter func(a, b *ranked[K, V]) int
	list   []*ranked[K, V] // once cut: sorted, at most n
	bar    float64         // an entry with a lower score is not among the n hottest
}

// wants says whether an entry with that score has a chance.
func (s *shortlist[K, V]) wants(score float64) bool { return score >= s.bar }

func (s *shortlist[K, V]) add(e *ranked[K, V]) {
	s.list = append(s.list, e)
	if len(s.list) > 2*s.n {
		s.cut()
	}
}

func (s *shortlist[K, V]) cut() {
	slices.SortFunc(s.list, s.hotter)
	if s.n > 0 && len(s.list) >= s.n {
		s.bar = s.list[s.n-1].score
	}
	s.list = s.list[:min(s.n, len(s.list))]
}
