package main

import (
	"context"
	"fmt"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/suite"
)

// A worker is a guest that does as much as it is told to, and whose result says whether it has.
type worker interface {
	PID() int
	CPUTime() (time.Duration, error)
	work(amount int) error
	Close() error
}

// A suiteWorker works in iterations of a program of the suite.
type suiteWorker struct{ *suite.Guest }

func (w suiteWorker) work(iterations int) error {
	_, err := w.Run(iterations)
	return err
}

// A locker is a program that does little but take locks.
type locker struct {
	program events.Program
	threads int
	unit    int // amount of the program in a unit: some tenths of a second
	warmUp  int // units until they cost about the same
}

// lockers are one whose thread takes monitors every few tenths of a microsecond, which nobody
// disputes, and one with more threads than CPUs that wait for each other's 50 microseconds. Two
// threads that take monitors without end either meet all the time or hardly ever: the same work
// takes once or three times as long.
var lockers = map[string]locker{
	"Locking": {program: events.Locking, threads: 1, unit: 200_000, warmUp: 20},
	"Waiting": {program: events.Waiting, threads: 4, unit: 200, warmUp: 10},
}

// A lockWorker is a locker at work, in units.
type lockWorker struct {
	*events.Guest
	locker
	checksums map[int]string // by amount, of the first time
}

func (w lockWorker) work(units int) error {
	truth, err := w.Run(w.threads, units*w.unit)
	if err != nil {
		return err
	}
	if first, ok := w.checksums[units]; ok && first != truth.Checksum {
		return fmt.Errorf("checksum %s after %s: %w", truth.Checksum, first, suite.ErrDisturbed)
	}
	w.checksums[units] = truth.Checksum
	return nil
}

// startWorker starts a program of the suite, or one of the lockers, and warms it up.
func (b bench) startWorker(ctx context.Context, name string) (worker, error) {
	c, ok := lockers[name]
	if !ok {
		guest, err := suite.Start(ctx, b.jdk, name)
		if err != nil {
			return nil, err
		}
		return suiteWorker{guest}, b.warmUp(guest)
	}
	guest, err := events.Start(ctx, b.jdk, c.program)
	if err != nil {
		return nil, err
	}
	w := lockWorker{guest, c, map[int]string{}}
	if b.how.cold {
		return w, nil
	}
	return w, w.work(c.warmUp)
}

// amountFor returns how much work fills a segment.
func amountFor(w worker, segment time.Duration) (int, error) {
	const probe = 3
	began := time.Now()
	if err := w.work(probe); err != nil {
		return 0, fmt.Errorf("time an iteration: %w", err)
	}
	return max(1, int(segment/(time.Since(began)/probe))), nil
}

// A usage is what a guest used for an amount of work.
type usage struct{ cpu, wall time.Duration }

func (u *usage) add(other usage) {
	u.cpu += other.cpu
	u.wall += other.wall
}

// usageOf has a guest work and returns the CPU time that the whole guest used meanwhile, compilers,
// collectors, interrupts and the watcher's BPF programs included: the kernel charges them to whom
// they interrupt.
func usageOf(w worker, amount int) (usage, error) {
	before, err := w.CPUTime()
	if err != nil {
		return usage{}, err
	}
	began := time.Now()
	if err := w.work(amount); err != nil {
		return usage{}, err
	}
	wall := time.Since(began)
	after, err := w.CPUTime()
	return usage{cpu: after - before, wall: wall}, err
}

// cpuOf runs iterations and returns the CPU time that the guest used meanwhile.
func cpuOf(guest *suite.Guest, iterations int) (time.Duration, error) {
	used, err := usageOf(suiteWorker{guest}, iterations)
	return used.cpu, err
}

// warmUp runs the guest until its iterations cost about the same.
func (b bench) warmUp(guest *suite.Guest) error {
	if b.how.cold {
		return nil
	}
	_, err := guest.Run(guest.Warmup())
	return err
}
