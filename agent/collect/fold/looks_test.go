package fold

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/host/proc"
	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// TestLengths has waits of known lengths observed in slices of a second of every ten, and looked at
// once a second. Lengths are taken from slices if nearly all waits fit into one, and from looks if
// they do not, or if some threads wait all the time, which no slice sees.
func TestLengths(t *testing.T) {
	const (
		seconds = 40
		each    = 100 // waits that begin in a second
	)
	for _, tt := range []struct {
		name     string
		length   time.Duration
		ended    int     // waits in a slice whose end was seen
		waiting  float64 // threads that a look finds
		bySlices bool
	}{
		{"short", 20 * time.Microsecond, 100, 0, true},
		{"short, seen by looks too", 10 * time.Millisecond, 99, 1, true},
		{"short and long", 2 * time.Millisecond, 100, 50, false},
		{"long", 900 * time.Millisecond, 10, 90, false},
		{"very long", 0, 0, 300, false},
		{"long, of one length", 500 * time.Millisecond, 90, 10, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, p, w := NewState(StateOptions{}), NewProcess(proc.Identity{PID: 1}, true), NewWindow(nil)
			w.Began = 1
			cover := &Coverage{Kind: profile.Locks}
			cover.SetPartly(errors.New("too many"))
			cover.Surveyed.Store(true)
			cover.Begin(1, nil)
			before := cover.Sums(1)
			event := func(at time.Duration, length Lengths) *Event {
				e := &Event{Kind: profile.Locks, Every: 1, Length: length,
					Labels: profile.EventLabels{What: "park", Class: "Lock"}}
				e.Sums = EventSums{Events: 1}
				e.Part = ObservedPart{Cover: cover}
				e.Part.Piece, _ = cover.At(at)
				return e
			}
			for second := range seconds {
				now := time.Duration(second)*time.Second + 1
				if second%10 == 0 {
					cover.End(now)
					cover.Begin(now, &Slice{To: now + time.Second, Weight: 10, Length: time.Second,
						Cycle: 10 * time.Second})
					for i := range each {
						e := event(now, LengthsLater)
						e.Sums.Values[0], e.Sums.Values[1] = 1, 1
						w.apply(s, p, e)
						if i < tt.ended {
							e := event(now, LengthsSliced)
							e.Delay, e.Sums.Values[2] = tt.length, float64(tt.length)
							w.apply(s, p, e)
						}
					}
				}
				w.AddLook(p, &Look{Since: now, Until: now + time.Second, Waiting: tt.waiting, Weight: 1})
				if tt.waiting > 0 {
					e := event(now, LengthsLooked)
					e.Every, e.Part = Moment, ObservedPart{}
					e.Sums.Values[2] = tt.waiting * float64(time.Second)
					e.Sums.Known = e.Sums.Values
					w.apply(s, p, e)
				}
			}
			end := time.Duration(seconds)*time.Second + 1
			cover.End(end)
			covered := Covered(map[*Coverage]CoverageSums{cover: before},
				map[*Coverage]CoverageSums{cover: cover.Sums(end)}, 1, end, &profile.EventCounts{})
			names := p.Names()
			defer names.Close()
			all, _ := w.EventSet(p).Profile(names, 0, &covered, nil)
			e := all[0]
			contentions, delay := 0., 0.
			for i := range e.Rows {
				contentions += e.Rows[i].Values[1]
				delay += e.Rows[i].Values[2]
			}
			want := tt.waiting * seconds * 1e9
			if tt.bySlices {
				want = each * seconds * float64(tt.length) / (1 - tt.length.Seconds()) * float64(tt.ended) / each
			}
			if math.Abs(delay-want) > want/100 || math.Abs(contentions-each*seconds) > each*seconds/100 ||
				w.EventSet(p)[profile.Locks].LacksLong(&covered) != tt.bySlices {
				t.Errorf("%v in %.0f contentions, want %v; %+v", time.Duration(delay), contentions, time.Duration(want),
					e.Coverage)
			}
			recorded, _, _ := w.EventSet(p)[profile.Locks].LockTimes(&covered)
			if math.Abs(recorded-want) > want/100 {
				t.Errorf("%v are recorded, want %v", time.Duration(recorded), time.Duration(want))
			}
		})
	}
}

// apply adds an event as State.AddEvent does.
func (w *Window) apply(s *State, p *Process, e *Event) {
	e.Part.Apply(e)
	w.addEvent(s, p, 0, e)
}
