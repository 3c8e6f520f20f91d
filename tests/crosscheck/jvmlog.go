package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/events"
	"github.com/vmprof-agent/vmprof-agent/tests/jfr"
	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// logBytes bounds what is read of one log.
const logBytes = 64 << 20

// A heapLog is what the JVM's log says of allocation.
type heapLog struct {
	bytes       float64 // allocated from the first collection's beginning back to the start, and up to the exit
	uncertainty float64 // heap sizes are logged in MiB, or regions
	collections int
}

const mib = 1 << 20

// gcLine is the end of a collection, or of a pause of a concurrent one: sizes of the used heap
// before and after it.
//
//	[2.345s][info][gc] GC(7) Pause Young (Normal) (G1 Evacuation Pause) 123M->45M(512M) 6.789ms
var gcLine = regexp.MustCompile(`\[gc *\] GC\([0-9]+\) .* ([0-9]+)M->([0-9]+)M\(`)

// exitLine is the used heap at the JVM's end, one for each part of it: "def new generation total
// 157248K, used 11185K".
var exitLine = regexp.MustCompile(`\[gc,heap,exit *\] +(?:def new generation|tenured generation|PSYoungGen|ParOldGen|garbage-first heap) +total [0-9]+K, used ([0-9]+)K`)

// shenandoahExit is the same of Shenandoah: "512M max, 512M soft max, 512M committed, 240M used".
var shenandoahExit = regexp.MustCompile(`\[gc,heap,exit *\] .* committed, ([0-9]+)([KM]) used`)

// readHeapLog adds up what the heap grew by between collections, and from the last one to the end.
func readHeapLog(log io.Reader) (h heapLog, err error) {
	lines := bufio.NewScanner(io.LimitReader(log, logBytes))
	after, end := 0., -1.
	for lines.Scan() {
		line := lines.Text()
		number := func(s string) float64 { v, _ := strconv.ParseFloat(s, 64); return v } // digits only
		if m := gcLine.FindStringSubmatch(line); m != nil {
			h.bytes += number(m[1])*mib - after
			after = number(m[2]) * mib
			h.collections++
			continue
		}
		if m := exitLine.FindStringSubmatch(line); m != nil {
			end = max(end, 0) + number(m[1])*1024
		} else if m := shenandoahExit.FindStringSubmatch(line); m != nil {
			unit := 1024.
			if m[2] == "M" {
				unit = mib
			}
			end = number(m[1]) * unit
		}
	}
	if err := lines.Err(); err != nil {
		return h, fmt.Errorf("read the log of collections: %w", err)
	}
	if end < 0 {
		return h, errors.New("the log of collections does not say how much of the heap was used in the end")
	}
	h.bytes += end - after
	// Each size is rounded to the nearest MiB, independently of the others.
	h.uncertainty = mib * float64(h.collections+1)
	return h, nil
}

// A truth is what the kernel and the JVM say of a run.
type truth struct {
	began      time.Time // when the program was started
	cpu        time.Duration
	faults     int64
	heap       heapLog
	beginning  heapLog // log of a JVM that has nothing to do
	safepoints []events.Safepoint
	monitors   waits
	sampled    sampled // JFR's samples
}

// waits are waits for monitors.
type waits []wait

type wait struct {
	began  time.Time
	lasted time.Duration
}

// sum is how long those lasted that began before then.
func (w waits) sum(then time.Time) (sum time.Duration) {
	for _, wait := range w {
		if wait.began.Before(then) {
			sum += wait.lasted
		}
	}
	return sum
}

// total is how long all lasted.
func (w waits) total() (sum time.Duration) {
	for _, wait := range w {
		sum += wait.lasted
	}
	return sum
}

// Names of the JVM's files.
const (
	gcLogName        = "gc.log"
	safepointLogName = "safepoints.log"
	recordingName    = "jvm.jfr"
	settingsName     = "monitors.jfc"
)

// logFlags have the JVM log what it does into files in dir, and JFR record what its settings say.
func logFlags(dir, settings string) []string {
	return []string{
		"-Xlog:gc=info,gc+heap+exit=info:file=" + filepath.Join(dir, gcLogName) + ":uptime,level,tags:filecount=0",
		events.SafepointFlag(filepath.Join(dir, safepointLogName)),
		"-XX:+UnlockDiagnosticVMOptions", "-XX:+DebugNonSafepoints", // for JFR's samples and the profile's alike
		"-XX:StartFlightRecording=filename=" + filepath.Join(dir, recordingName) + ",settings=" + settings,
	}
}

// readLogs reads what the JVM has written into dir.
func (t *truth) readLogs(ctx context.Context, jdk jvm.JDK, dir string) error {
	log, err := os.Open(filepath.Join(dir, gcLogName))
	if err != nil {
		return err
	}
	defer log.Close()
	if t.heap, err = readHeapLog(log); err != nil {
		return err
	}
	stops, err := os.Open(filepath.Join(dir, safepointLogName))
	if err != nil {
		return err
	}
	defer stops.Close()
	if t.safepoints, err = events.ReadSafepoints(stops); err != nil {
		return err
	}
	return t.readRecording(ctx, jdk, filepath.Join(dir, recordingName))
}

// readRecording reads what JFR recorded.
func (t *truth) readRecording(ctx context.Context, jdk jvm.JDK, path string) error {
	list, err := jfr.Read(ctx, jdk, path, jfr.JavaMonitorEnter, jfr.ExecutionSample)
	if err != nil {
		return err
	}
	t.sampled = sampled{compiled: events.Weights{}, innermost: events.Weights{}}
	for _, e := range list {
		switch {
		case e.Type == jfr.JavaMonitorEnter:
			t.monitors = append(t.monitors, wait{began: e.Start, lasted: e.Duration})
		case len(e.Stack) > 0:
			t.sampled.add(e.Compiled(), e.Stack[0].Method, 1)
		}
	}
	return nil
}
