package profile

import "time"

// Lanes are what the threads of a process did over time, in steps of equal length that begin with
// the window.
type Lanes struct {
	Step    time.Duration
	Steps   int      // steps in the window; the last may be longer than what is left of it
	Causes  []string // running, runnable, socket, …: see package cause. Parts refer to them
	Threads []Lane   // the busiest first
	LeftOut int      // threads without a lane
}

// A Lane is what one thread did, from the step in which it is first known.
type Lane struct {
	TID    int
	Thread string // its name
	From   int    // the first step
	Runs   []LaneRun
}

// A LaneRun is consecutive steps that are equal.
type LaneRun struct {
	Steps int
	Parts []LanePart // the largest first, each cause once
}

// A LanePart is how much of a step a thread did something, in percent. The parts of a step in which
// the thread began or ended add up to less than 100.
type LanePart struct {
	Cause   int // place in Lanes.Causes
	Percent int
}

// MaxLaneSteps bounds Lanes.Steps.
const MaxLaneSteps = 512
