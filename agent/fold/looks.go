package fold

import (
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/profile"
)

// A Look is what was seen at a moment that was drawn: how many threads waited. It stands for a time around the moment: its events are of Moment.
type Look struct {
	What         string        // they did: EventLabels.What
	Since, Until time.Duration // CLOCK_MONOTONIC: the time for which it stands
	Waiting      float64       // threads, estimated from those that were drawn
	Weight       float64       // how many threads one that was drawn stands for; at least 1
	Again        bool          // an earlier one stands for this time, too
}

// lookSums are sums of the looks of one process at waits of one kind.
type lookSums struct {
	n       int     // looks
	waiting float64 // sum
	last    float64
	differ  float64 // sum of the squares of the differences of each from the one before
	weight  float64 // the largest
	squares float64 // sum of the squares of the times, ns²
}

// AddLook adds a look at a process to every window that wants it.
func (s *State) AddLook(p *Process, l *Look) {
	for w := range s.windows {
		w.AddLook(p, l)
	}
}

// AddLook adds the part of the time of a look that is in the window, if it wants the process.
func (w *Window) AddLook(p *Process, l *Look) {
	length := l.Until - max(l.Since, w.Began)
	if !w.Wants(p.PID) || length <= 0 {
		return
	}
	r := w.EventSet(p).Of(profile.Locks)
	if r.looks == nil {
		r.looks = map[string]*lookSums{}
	}
	sums := r.looks[l.What]
	if sums == nil {
		sums = &lookSums{}
		r.looks[l.What] = sums
	}
	sums.add(l, length)
}

func (s *lookSums) add(l *Look, length time.Duration) {
	s.squares += float64(length) * float64(length)
	if l.Again && s.n > 0 {
		return
	}
	if s.n > 0 {
		s.differ += (l.Waiting - s.last) * (l.Waiting - s.last)
	}
	s.n++
	s.last, s.waiting, s.weight = l.Waiting, s.waiting+l.Waiting, max(s.weight, l.Weight)
}

// within is half of the 95 % interval of the time that the looks stand for, in ns. How much a look varies is estimated from differences of
// consecutive ones, as CoveredParts.within does for slices; it is at least what drawing the threads makes of it. Looks that saw nothing leave
// room for what one thread in all of them would be. A single look says nothing of how threads come and go: half of it may.
func (s *lookSums) within() float64 {
	const normal95 = 1.96
	if s.n == 0 {
		return 0
	}
	mean := s.waiting / float64(s.n)
	variance := mean * mean / 4
	if s.n > 1 {
		few := profile.StudentT(s.n-1) / normal95
		variance = few * few * s.differ / float64(2*(s.n-1))
	}
	variance = max(variance, s.weight*max(mean, s.weight/float64(s.n)))
	return normal95 * math.Sqrt(variance*s.squares)
}
