package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
)

const (
	// pauseRounds are how many rounds each thread goes, of 64 MB of garbage.
	pauseRounds = 100
	// pauseTolerance is how far from the JVM's own log the time stopped may be.
	pauseTolerance = 0.01
	// probed is what else the time of a pause may be off by: the probe at which the operation is named is hit within it, and
	// the two at its ends are not hit at the very moments at which the JVM reads its clock. A hit takes half that long.
	probed = time.Microsecond
)

// measurePauses records a program that makes the JVM stop, whose log is the truth.
func (t eventTrial) measurePauses(ctx context.Context, m meter) ([]figure, error) {
	log := filepath.Join(m.dir, fmt.Sprintf("safepoints-%d-%s.log", t.jdk.Version, t.setting))
	guest, err := events.Start(ctx, t.jdk, events.Pausing, events.SafepointFlag(log), "-XX:+Use"+t.setting+"GC")
	if err != nil {
		return nil, err
	}
	defer guest.Close()
	if _, err := guest.Run(t.threads, pauseRounds/10); err != nil {
		return nil, err
	}
	recording, err := m.recordWork(ctx, guest.PID(), func() error {
		_, err := guest.Run(t.threads, pauseRounds)
		return errors.Join(err, settle(ctx, log))
	}, "-e", "safepoint")
	if err != nil {
		return nil, err
	}
	logged, err := readSafepoints(log)
	if err != nil {
		return nil, err
	}
	began := time.Unix(0, recording.Profile.TimeNanos)
	logged = events.Between(logged, began, began.Add(time.Duration(recording.Profile.DurationNanos)))
	rows, err := events.Read(recording.Profile, "pauses", "stopped")
	if err != nil {
		return nil, err
	}
	return judgePauses(logged, rows), nil
}

// settle waits until nothing more is logged: collections that do not stop the program go on when it is done, and one of
// their safepoints at the end of the recording would be on one side only.
func settle(ctx context.Context, log string) error {
	const still, limit = 500 * time.Millisecond, 10 * time.Second
	began, since, n := time.Now(), time.Now(), -1
	for time.Since(since) < still && time.Since(began) < limit {
		safepoints, err := readSafepoints(log)
		if err != nil {
			return err
		}
		if len(safepoints) != n {
			since, n = time.Now(), len(safepoints)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

func readSafepoints(path string) ([]events.Safepoint, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the JVM's log: %w", err)
	}
	defer log.Close()
	return events.ReadSafepoints(log)
}
