// Package timing is what performance auditing measures: how long one invocation of a method, or one
// or more iterations of one of its loops, took in one version of the code (Lau, Arnold, Hind and
// Calder, PACT 2007, section 3). Its engines take the timings; package audit decides which version
// is faster.
package timing

import (
	"context"
	"time"
)

// A Region is what is timed: a method from its entry to its exit, callees included, or one of its
// loops.
type Region struct {
	Method string
	Loop   uint32 // number of the loop in its method, from 1; 0 is the whole invocation
}

// A Version is one compilation or variant of a method's code in one process. Timings of different
// versions are compared.
type Version struct {
	PID  int
	ID   uint64 // as the VM numbers it: HotSpot's compile id, or what the guest passes to the header
	Name string // for people: "#812 C2"; empty where the VM names none
}

// A Timing is one measurement.
type Timing struct {
	Region   Region
	Version  Version
	Thread   int           // thread ID, 0 if unknown
	Duration time.Duration // without the calibrated cost of measuring; can be negative by that
	// Part is what other timings of the same invocation do not contain: the parts of an
	// invocation's timings add up to the time of the invocation. 0 stands for the whole Duration,
	// of engines whose timings do not overlap.
	Part time.Duration
	Runs uint32 // invocations or iterations that Duration covers, at least 1
}

// Stats count what an engine did. Every timing that began is in Taken, or in a row of Lost.
type Stats struct {
	Taken uint64
	Lost  map[string]uint64 // by cause, in words for people
}

// An Engine takes timings from when it is made until it is closed.
type Engine interface {
	// Take waits for timings and appends them to list. It returns the context's error at its end.
	Take(ctx context.Context, list []Timing) ([]Timing, error)
	// Cost is what one timing adds to the time of the program, and its standard error.
	Cost() (cost, within time.Duration)
	Stats() Stats
	Close() error
}

// A Finder is an Engine that knows the methods of its targets.
type Finder interface {
	Targets() []Target
}

// A Target is a process that an engine reaches.
type Target struct {
	PID     int
	Problem string   // why no timings are taken of it; empty if they are
	Methods []string // methods that could be audited, in any order
	Audited []string // methods that are audited
}
