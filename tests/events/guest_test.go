package events

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
	"github.com/vmprof-agent/vmprof-agent/tests/needs"
)

// twice runs a program twice with the same arguments, on each JDK, and returns the second truth: of
// compiled code.
func twice(t *testing.T, p Program, threads, amount int, check func(*testing.T, Truth)) {
	t.Helper()
	for _, jdk := range needs.JDKs(t) {
		t.Run(jdk.String(), func(t *testing.T) {
			guest, err := Start(t.Context(), jdk, p)
			if err != nil {
				t.Fatal(err)
			}
			first, err := guest.Run(threads, amount)
			if err != nil {
				t.Fatal(err)
			}
			second, err := guest.Run(threads, amount)
			if err != nil {
				t.Fatal(err)
			}
			if first.Checksum != second.Checksum {
				t.Errorf("checksums %s and %s", first.Checksum, second.Checksum)
			}
			check(t, second)
			if err := guest.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// What the program reckons it has allocated is what the JVM says, but for what beginning and ending
// takes.
func TestAllocating(t *testing.T) {
	const threads, objects = 2, 100_000
	twice(t, Allocating, threads, objects, func(t *testing.T, truth Truth) {
		var count, bytes uint64
		for _, a := range truth.Allocations {
			if a.Objects == 0 || a.Bytes%8 != 0 {
				t.Errorf("%+v", a)
			}
			count += a.Objects
			bytes += a.Bytes
		}
		const besides = threads * 8192 // a few objects of each thread: the random generator, strings
		if count != threads*objects || bytes > truth.Allocated || truth.Allocated > bytes+besides {
			t.Errorf("%d objects of %d bytes; the JVM says %d bytes", count, bytes, truth.Allocated)
		}
	})
}

// Every thread uses as much CPU time as requested, by its own clock, in all three methods.
func TestWorking(t *testing.T) {
	const threads, millis = 2, 300
	twice(t, Working, threads, millis, func(t *testing.T, truth Truth) {
		var cpu time.Duration
		for _, w := range truth.Worked {
			if w.CPU <= 0 {
				t.Errorf("%+v", w)
			}
			cpu += w.CPU
		}
		if len(truth.Worked) != 3 || truth.Depths["guest.Working.descend"] != 21 ||
			cpu < threads*millis*time.Millisecond {
			t.Errorf("%+v", truth)
		}
	})
}

func TestLocking(t *testing.T) {
	const threads, times = 2, 50_000
	twice(t, Locking, threads, times, func(t *testing.T, truth Truth) {
		byClass := map[string]float64{}
		for _, a := range truth.Acquired {
			byClass[a.Class] += float64(a.Times) / (threads * times)
		}
		for class, share := range map[string]float64{"Often": 0.5, "Usual": 0.3, "Sometimes": 0.15, "Seldom": 0.05} {
			if got := byClass["guest.Locking$"+class]; math.Abs(got-share) > 0.02 { // 12 standard deviations
				t.Errorf("%s has a share of %.3f", class, got)
			}
		}
	})
}

func TestWaiting(t *testing.T) {
	const threads, rounds = 3, 64
	twice(t, Waiting, threads, rounds, func(t *testing.T, truth Truth) {
		if len(truth.Waits) != 4 || len(truth.Idle) != 2 {
			t.Fatalf("%+v", truth)
		}
		var long uint64
		for _, w := range append(truth.Waits, truth.Idle...) {
			if w.Times == 0 || w.LongTimes > w.Times || w.LongSum > w.Sum ||
				w.LongSum < time.Duration(w.LongTimes)*10*time.Microsecond {
				t.Errorf("%+v", w)
			}
			long += w.LongTimes
		}
		for _, w := range truth.Idle {
			if w.Sum < time.Duration(w.Times)*time.Millisecond {
				t.Errorf("waited for nobody %d times in %v", w.Times, w.Sum)
			}
		}
		if long == 0 {
			t.Error("nobody had to wait")
		}
	})
}

func TestFaulting(t *testing.T) {
	const megabytes = 20
	twice(t, Faulting, 1, megabytes, func(t *testing.T, truth Truth) {
		var bytes uint64
		for _, f := range truth.Faults {
			if f.Bytes == 0 {
				t.Errorf("%+v", f)
			}
			bytes += f.Bytes
		}
		const largest = 1 << 20 // the last object may be too much
		if bytes < megabytes<<20 || bytes > megabytes<<20+largest+64 {
			t.Errorf("%d bytes", bytes)
		}
	})
}

// The JVM's log has as many collections as its beans do, under the collector of which each is one
// safepoint.
func TestPausing(t *testing.T) {
	for _, jdk := range needs.JDKs(t) {
		t.Run(jdk.String(), func(t *testing.T) { comparePauses(t, jdk) })
	}
}

func comparePauses(t *testing.T, jdk jvm.JDK) {
	path := filepath.Join(t.TempDir(), "safepoints.log")
	guest, err := Start(t.Context(), jdk, Pausing, SafepointFlag(path), "-XX:+UseSerialGC")
	if err != nil {
		t.Fatal(err)
	}
	truth, err := guest.Run(2, 6)
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Close(); err != nil {
		t.Error(err)
	}
	log, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	safepoints, err := ReadSafepoints(log)
	if err != nil {
		t.Fatal(err)
	}
	logged := map[string]uint64{}
	var collections, dumps uint64
	for _, s := range safepoints {
		if s.Total < s.Reaching {
			t.Errorf("%+v", s)
		}
		logged[s.Operation]++
		switch {
		case strings.Contains(s.Operation, "Collect"): // GenCollectFull, SerialCollectForAllocation
			collections++
		case s.Operation == "ThreadDump":
			dumps++
		}
	}
	var want uint64
	for _, c := range truth.Collections {
		want += c.Count
	}
	if want == 0 || collections != want || dumps != 2 { // in rounds 0 and 4
		t.Errorf("%d collections by the beans; logged: %v", want, logged)
	}
}
