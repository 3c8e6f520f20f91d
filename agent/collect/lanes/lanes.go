// Package lanes keeps what threads did over time while a window is open: how long each was off the
// CPU, and in which row of events, by steps of equal length. The length doubles as the window
// becomes longer, so that memory is bounded.
//
//	var r lanes.Recorder[*Process, *EventSums]
//	r.Wait(p, tid, since, until, weight, row)
//	lanes := r.Lanes(p, length, name, causeOf)
//
// All times are since the window began.
package lanes

import (
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

const (
	// firstStep is how long steps are in short windows: as long as the shortest waits that are
	// recorded each, unless there are few.
	firstStep = 10 * time.Millisecond
	maxSteps  = profile.MaxLaneSteps
	// fewSteps is how many steps a window keeps at least, however many cells there are.
	fewSteps = 64
	// maxThreads bounds the threads of a window: as many as the kernel side follows.
	maxThreads = 1 << 16
	// maxCells bounds the cells of a window, each 16 bytes.
	maxCells = 1 << 19
	// maxCounted bounds the threads without a lane that are counted, so that each counts once.
	maxCounted = 1 << 16
	// MaxLanes bounds the lanes of a process. The busiest threads have one.
	MaxLanes = 4096
)

// A Recorder has the lanes of all processes of a window. P identifies a process, and R what waits
// have in common whose cause is known when the window is closed. The zero value is empty.
type Recorder[P, R comparable] struct {
	step      time.Duration // 0: firstStep
	byProcess map[P]map[uint32]*thread[R]
	threads   int
	cells     int
	leftOut   map[P]int  // threads that have no lane
	counted   int        // threads in leftOut for which there was no room
	none      *thread[R] // stands for each of them
	bound     int        // most cells, 0 for maxCells: tests have less
}

// A thread is what is known of one.
type thread[R comparable] struct {
	name         string
	begun, ended time.Duration // it existed at least from one to the other
	known        bool          // on is
	on           time.Duration // how long it was on a CPU
	exact        []cell[R]     // waits that were recorded each
	drawn        []cell[R]     // waits that stand for others
	leftOut      bool
	dated        bool
}

// A cell is time in a row in each of some steps.
type cell[R comparable] struct {
	row         R
	from, steps uint16
	time        float32 // ns, in each step
}

// thread finds or makes a thread; nil if it has no lane.
func (r *Recorder[P, R]) thread(p P, tid uint32) *thread[R] {
	threads := r.byProcess[p]
	if t := threads[tid]; t != nil {
		if t.leftOut {
			return nil
		}
		return t
	}
	if threads == nil {
		if r.byProcess == nil {
			r.byProcess, r.leftOut = make(map[P]map[uint32]*thread[R]), make(map[P]int)
			r.none = &thread[R]{leftOut: true}
		}
		threads = make(map[uint32]*thread[R])
		r.byProcess[p] = threads
	}
	if r.threads >= maxThreads {
		if r.counted < maxCounted { // beyond that there are more than is said
			threads[tid] = r.none
			r.counted++
			r.leftOut[p]++
		}
		return nil
	}
	t := &thread[R]{}
	threads[tid] = t
	r.threads++
	return t
}

// seen notes that the thread existed.
func (t *thread[R]) seen(from, until time.Duration) {
	if !t.dated {
		t.begun, t.ended, t.dated = from, until, true
		return
	}
	t.begun, t.ended = min(t.begun, from), max(t.ended, until)
}

// Ran notes that a thread existed then.
func (r *Recorder[P, R]) Ran(p P, tid uint32, at time.Duration) {
	if t := r.thread(p, tid); t != nil {
		t.seen(max(at, 0), max(at, 0))
	}
}

// Existed notes how long a thread existed, and how long of that it was on a CPU; less than 0 if
// that is not known.
func (r *Recorder[P, R]) Existed(p P, tid uint32, name string, from, until, on time.Duration) {
	if t := r.thread(p, tid); t != nil {
		t.name = name
		t.begun, t.ended, t.dated = max(from, 0), max(until, 0), true
		t.on, t.known = on, on >= 0
	}
}

// Wait adds a wait, which stands for weight waits.
func (r *Recorder[P, R]) Wait(p P, tid uint32, from, until time.Duration, weight float64, row R) {
	from = max(from, 0)
	t := r.thread(p, tid)
	if t == nil || from >= until {
		return
	}
	t.seen(from, until)
	for until > r.width()*maxSteps {
		r.double()
	}
	list := &t.exact
	if weight > 1 {
		list = &t.drawn
	}
	before := len(*list)
	step := r.width()
	first, last := from/step, (until-1)/step
	if first == last {
		*list = add(*list, cell[R]{row, uint16(first), 1, float32(float64(until-from) * weight)})
	} else {
		if from%step != 0 {
			*list = add(*list, cell[R]{row, uint16(first), 1, float32(float64((first+1)*step-from) * weight)})
			first++
		}
		if until%step == 0 {
			last++
		}
		if first < last {
			*list = add(*list, cell[R]{row, uint16(first), uint16(last - first), float32(float64(step) * weight)})
		}
		if until%step != 0 {
			*list = add(*list, cell[R]{row, uint16(last), 1, float32(float64(until-last*step) * weight)})
		}
	}
	if r.cells += len(*list) - before; r.cells > r.most() {
		r.crowded(p, t, until)
	}
}

func (r *Recorder[P, R]) width() time.Duration { return max(r.step, firstStep) }

func (r *Recorder[P, R]) most() int {
	if r.bound > 0 {
		return r.bound
	}
	return maxCells
}

// crowded makes room for cells: the steps become longer, or else the thread has no lane.
func (r *Recorder[P, R]) crowded(p P, t *thread[R], now time.Duration) {
	for r.cells > r.most()*3/4 && now > 2*r.width()*fewSteps {
		r.double()
	}
	if r.cells > r.most() {
		r.cells -= len(t.exact) + len(t.drawn)
		t.exact, t.drawn, t.leftOut = nil, nil, true
		r.leftOut[p]++
	}
}

// double makes steps twice as long.
func (r *Recorder[P, R]) double() {
	r.step = 2 * r.width()
	r.cells = 0
	for _, threads := range r.byProcess {
		for _, t := range threads {
			t.exact, t.drawn = halve(t.exact), halve(t.drawn)
			r.cells += len(t.exact) + len(t.drawn)
		}
	}
}

// halve returns the cells for steps that are twice as long.
func halve[R comparable](cells []cell[R]) (out []cell[R]) {
	for _, c := range cells {
		from, until := c.from, c.from+c.steps
		if from%2 != 0 {
			out = add(out, cell[R]{c.row, from / 2, 1, c.time})
			from++
		}
		odd := until%2 != 0 && from < until
		if odd {
			until--
		}
		if from < until {
			out = add(out, cell[R]{c.row, from / 2, (until - from) / 2, 2 * c.time})
		}
		if odd {
			out = add(out, cell[R]{c.row, until / 2, 1, c.time})
		}
	}
	return out
}

// lookBack is how many cells may be behind one of the same step and row: as many rows as alternate
// in a step.
const lookBack = 8

// add appends a cell, or adds it to one of the same row and step.
func add[R comparable](cells []cell[R], c cell[R]) []cell[R] {
	for i := len(cells) - 1; c.steps == 1 && i >= max(len(cells)-lookBack, 0); i-- {
		if at := &cells[i]; at.row == c.row && at.from == c.from && at.steps == 1 {
			at.time += c.time
			return cells
		}
	}
	return append(cells, c)
}
