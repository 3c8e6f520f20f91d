package events

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// SafepointFlag returns the flag that has a JVM log its safepoints to a file, which must not need
// quotes: a line for each and no more, as the JVM writes it while it stands. That takes some
// microseconds, which are in none of the logged times.
func SafepointFlag(path string) string {
	return "-Xlog:safepoint=info:file=" + path + ":timemillis,level,tags"
}

// A Safepoint is one time that a JVM has stopped its threads, by its own log.
type Safepoint struct {
	Operation string        // operation that needed it: G1CollectForAllocation
	Reaching  time.Duration // until all threads stood
	Total     time.Duration // time from the wish to stop until threads ran again
	Ended     time.Time     // when it was logged, to a millisecond; zero if the log does not say so
}

// safepointLogBytes bounds what is read of a log: some 300,000 safepoints.
const safepointLogBytes = 64 << 20

// ReadSafepoints reads what a JVM has logged with SafepointFlag. Lines of other kinds are passed
// over; one that is cut short at the end of the log is too, as the JVM may be writing it.
//
// A safepoint is one line, with other parts in JDK 17 and in JDK 25
// (src/hotspot/share/runtime/safepoint.cpp, SafepointTracing::end):
//
//	[1732262400123ms][info][safepoint] Safepoint "NAME", Time since last: N ns, Reaching safepoint: N ns, Cleanup: N ns,
//	At safepoint: N ns, Total: N ns
//	... Reaching safepoint: N ns, At safepoint: N ns, Leaving safepoint: N ns, Total: N ns, Threads: N runnable, N total
func ReadSafepoints(log io.Reader) ([]Safepoint, error) {
	var safepoints []Safepoint
	lines := bufio.NewReader(io.LimitReader(log, safepointLogBytes))
	for n := 1; ; n++ {
		line, err := lines.ReadString('\n')
		if errors.Is(err, io.EOF) {
			return safepoints, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read the log of safepoints: %w", err)
		}
		decorations, text, found := strings.Cut(line, `] Safepoint "`)
		if !found {
			continue
		}
		safepoint, err := parseSafepoint(strings.TrimSpace(text))
		if err != nil {
			return nil, fmt.Errorf("read the log of safepoints: line %d: %w", n, err)
		}
		if safepoint.Ended, err = parseStamp(decorations); err != nil {
			return nil, fmt.Errorf("read the log of safepoints: line %d: %w", n, err)
		}
		safepoints = append(safepoints, safepoint)
	}
}

// parseStamp reads what SafepointFlag has a line begin with: [1732262400123ms][info]…
func parseStamp(decorations string) (time.Time, error) {
	first, _, _ := strings.Cut(strings.TrimPrefix(decorations, "["), "]")
	digits, stamped := strings.CutSuffix(first, "ms")
	if !stamped {
		return time.Time{}, nil
	}
	millis, err := strconv.ParseUint(digits, 10, 53) // an int64 of nanoseconds is not enough for 64
	if err != nil {
		return time.Time{}, fmt.Errorf("time of %q: %w", decorations, err)
	}
	return time.UnixMilli(int64(millis)), nil
}

// Between returns those that ended at or after from, and before to.
func Between(safepoints []Safepoint, from, to time.Time) []Safepoint {
	var some []Safepoint
	for _, s := range safepoints {
		if !s.Ended.Before(from) && s.Ended.Before(to) {
			some = append(some, s)
		}
	}
	return some
}

// parseSafepoint reads a line from the operation's name on.
func parseSafepoint(text string) (Safepoint, error) {
	name, rest, found := strings.Cut(text, `", `)
	if !found || name == "" {
		return Safepoint{}, fmt.Errorf("no name of an operation in %q", text)
	}
	s := Safepoint{Operation: name}
	parts := map[string]*time.Duration{"Reaching safepoint": &s.Reaching, "Total": &s.Total}
	for part := range strings.SplitSeq(rest, ", ") {
		key, value, _ := strings.Cut(part, ": ")
		to, wanted := parts[key]
		if !wanted {
			continue
		}
		nanos, err := strconv.ParseUint(strings.TrimSuffix(value, " ns"), 10, 63)
		if err != nil {
			return Safepoint{}, fmt.Errorf("%s: %w", key, err)
		}
		*to = time.Duration(nanos)
		delete(parts, key)
	}
	for missing := range parts {
		return Safepoint{}, fmt.Errorf("no %q in %q", missing, rest)
	}
	return s, nil
}

// Stopped is how long all of the safepoints took.
func Stopped(safepoints []Safepoint) (sum time.Duration) {
	for _, s := range safepoints {
		sum += s.Total
	}
	return sum
}
