package events

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A Truth is what a program did in one run, by its own account. Which fields it has depends on the
// program.
type Truth struct {
	Allocations []Allocated
	Allocated   uint64 // bytes that all threads have allocated in the run, by the JVM's account
	Acquired    []Acquired
	Waits       []Waited
	Idle        []Waited // waits for a notification, which are no contention
	Faults      []Faulted
	Cards       []Marked
	Thrown      []Thrown
	Collections []Collected
	Worked      []Worked
	Away        []OffCPU
	Stages      []Stage
	Calls       []Called
	Woken       []Waking
	Depths      map[string]int // how many times each of these methods is on every stack of a method of Worked
	Checksum    string         // checksum of the run; the same for the same arguments
}

// Allocated are the objects of a class that a method has allocated.
type Allocated struct {
	Method, Class  string
	Objects, Bytes uint64
}

// Worked is the CPU time of a method.
type Worked struct {
	Method string
	CPU    time.Duration
}

// OffCPU is how long threads were off the CPU in a method, and what for.
type OffCPU struct {
	Method, Cause string
	Times         uint64
	Sum           time.Duration
}

// A Stage is what a thread did from one time to another, by CLOCK_MONOTONIC.
type Stage struct {
	Cause       string
	From, Until time.Duration
}

// Called is one call of a method. Start is by CLOCK_MONOTONIC. The waits are without the CPU time
// in them.
type Called struct {
	Method                      string
	Start, Length               time.Duration
	Ran, Sleep, Monitor, Socket time.Duration
	Failed                      bool // it ended by an exception
}

// Waking is how long threads were off the CPU in a method, and the method that ended each of these
// waits; or what the kernel was at: [timer].
type Waking struct {
	Method, Waker string
	Times         uint64
	Sum           time.Duration
}

// Acquired is how often a method has taken the monitor of an object of the class.
type Acquired struct {
	Method, Class string
	Times         uint64
}

// Thrown is how often a method has created an exception of the class that has a stack trace.
type Thrown struct {
	Method, Class string
	Times         uint64
}

// Waited is how long a method took to get what belongs to a class.
type Waited struct {
	Method, Class string
	Times         uint64        // also those when it did not have to wait
	LongTimes     uint64        // the part of Times that took longer than 10 us
	Sum, LongSum  time.Duration // time of all, and of the long ones
	LongSquares   float64       // sum over the long ones, ns²
}

// Faulted are the bytes of objects of a class that a method has allocated and touched first.
type Faulted struct {
	Method, Class string
	Bytes         uint64
}

// Marked is how many cards a method has made dirty by stores into objects of the class.
type Marked struct {
	Method, Class string
	Times         uint64
}

// Collected is what a collector has done since the program's beginning, by the JVM's account.
type Collected struct {
	Collector string
	Count     uint64
	Time      time.Duration // in whole milliseconds
}

// Cells are the allocations as the exact distribution that samples are drawn from.
func (t Truth) Cells() []Cell {
	cells := make([]Cell, 0, len(t.Allocations))
	for _, a := range t.Allocations {
		cells = append(cells, Cell{Class: a.Class, Objects: float64(a.Objects), Bytes: float64(a.Bytes)})
	}
	return cells
}

// parseTruth reads the lines that a program prints after a run.
func parseTruth(lines []string) (Truth, error) {
	var truth Truth
	for _, line := range lines {
		if err := truth.parse(strings.Fields(line)); err != nil {
			return Truth{}, fmt.Errorf("parse truth %q: %w", line, err)
		}
	}
	if truth.Checksum == "" {
		return Truth{}, errors.New("parse truth: no checksum")
	}
	return truth, nil
}

// numbersFrom is where the numbers of a line begin, and how many there are, by its first word.
var numbersFrom = map[string]struct{ from, numbers int }{
	"cpu":         {2, 1},
	"depth":       {2, 1},
	"alloc":       {3, 2},
	"allocated":   {1, 1},
	"enter":       {3, 1},
	"wait":        {3, 5},
	"idle":        {3, 5},
	"fault":       {3, 1},
	"card":        {3, 1},
	"throw":       {3, 1},
	"away":        {3, 2},
	"stage":       {2, 2},
	"call":        {2, 7},
	"woken":       {3, 2},
	"collections": {2, 2},
}

func (t *Truth) parse(words []string) error {
	if len(words) == 2 && words[0] == "checksum" {
		t.Checksum = words[1]
		return nil
	}
	if len(words) == 0 {
		return errNoFact
	}
	form, known := numbersFrom[words[0]]
	if !known || len(words) != form.from+form.numbers {
		return errNoFact
	}
	var n [7]uint64
	for i, word := range words[form.from:] {
		var err error
		if n[i], err = strconv.ParseUint(word, 10, 63); err != nil {
			return err
		}
	}
	switch words[0] {
	case "cpu":
		t.Worked = append(t.Worked, Worked{Method: words[1], CPU: time.Duration(n[0])})
	case "depth":
		if t.Depths == nil {
			t.Depths = map[string]int{}
		}
		t.Depths[words[1]] = int(n[0])
	case "alloc":
		t.Allocations = append(t.Allocations, Allocated{Method: words[1], Class: words[2], Objects: n[0], Bytes: n[1]})
	case "allocated":
		t.Allocated = n[0]
	case "enter":
		t.Acquired = append(t.Acquired, Acquired{Method: words[1], Class: words[2], Times: n[0]})
	case "wait":
		t.Waits = append(t.Waits, waited(words, n))
	case "idle":
		t.Idle = append(t.Idle, waited(words, n))
	case "away":
		t.Away = append(t.Away, OffCPU{Method: words[1], Cause: strings.ReplaceAll(words[2], "_", " "), Times: n[0],
			Sum: time.Duration(n[1])})
	case "stage":
		t.Stages = append(t.Stages, Stage{Cause: words[1], From: time.Duration(n[0]), Until: time.Duration(n[1])})
	case "call":
		t.Calls = append(t.Calls, Called{
			Method: words[1], Start: time.Duration(n[0]), Length: time.Duration(n[1]), Ran: time.Duration(n[2]),
			Sleep: time.Duration(n[3]), Monitor: time.Duration(n[4]), Socket: time.Duration(n[5]), Failed: n[6] != 0,
		})
	case "woken":
		t.Woken = append(t.Woken, Waking{Method: words[1], Waker: words[2], Times: n[0], Sum: time.Duration(n[1])})
	case "fault":
		t.Faults = append(t.Faults, Faulted{Method: words[1], Class: words[2], Bytes: n[0]})
	case "card":
		t.Cards = append(t.Cards, Marked{Method: words[1], Class: words[2], Times: n[0]})
	case "throw":
		t.Thrown = append(t.Thrown, Thrown{Method: words[1], Class: words[2], Times: n[0]})
	case "collections":
		time := time.Duration(n[1]) * time.Millisecond
		t.Collections = append(t.Collections, Collected{Collector: words[1], Count: n[0], Time: time})
	}
	return nil
}

var errNoFact = errors.New("no such fact")

func waited(words []string, n [7]uint64) Waited {
	return Waited{
		Method: words[1], Class: words[2], Times: n[0], LongTimes: n[1],
		Sum: time.Duration(n[2]), LongSum: time.Duration(n[3]), LongSquares: float64(n[4]) * 1e6,
	}
}

// StandardError is how far the sum of the long waits is off, as a standard deviation, when one wait
// in every is recorded, each drawn by itself, and stands for that many.
func (w Waited) StandardError(every float64) time.Duration {
	return time.Duration(math.Sqrt(max(every-1, 0) * w.LongSquares))
}
