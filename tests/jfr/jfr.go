// Package jfr makes recordings of JDK Flight Recorder and reads them, with the JDK's own tools.
//
//	recording, err := jfr.Start(ctx, jdk, guest.PID(), "jvm.jfr", jfr.Setting{Event: jfr.ExecutionSample, Name: "period", Value: "10 ms"})
//	...
//	err = recording.Stop(ctx)
//	list, err := jfr.Read(ctx, jdk, "jvm.jfr", jfr.ExecutionSample)
//	for _, e := range list { leaf := e.Stack[0].Method }
package jfr

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vmprof-agent/vmprof-agent/tests/jvm"
)

// Types of events.
const (
	ExecutionSample  = "jdk.ExecutionSample"  // a thread in Java code, sampled by wall-clock time
	CPUTimeSample    = "jdk.CPUTimeSample"    // a thread, sampled in its CPU time; JDK 25 and later
	JavaMonitorEnter = "jdk.JavaMonitorEnter" // a wait for a monitor
	JavaMonitorWait  = "jdk.JavaMonitorWait"  // Object.wait
	ThreadPark       = "jdk.ThreadPark"       // LockSupport.park
	ThreadSleep      = "jdk.ThreadSleep"      // Thread.sleep
	SocketRead       = "jdk.SocketRead"
	FileForce        = "jdk.FileForce" // fsync
	FileWrite        = "jdk.FileWrite"
)

// stackDepth is how many frames of a stack are read: as many as JFR records by default.
const stackDepth = 64

// outputBytes bounds what is read of the tool's output.
const outputBytes = 1 << 30

// An Event is one of a recording.
type Event struct {
	Type     string
	Start    time.Time
	Duration time.Duration // 0 for a sample
	Thread   string        // the sampled thread's name; "" for other events
	Stack    []Frame       // innermost first; empty if JFR could not walk the stack
}

// A Frame is one of a stack.
type Frame struct {
	Method  string // with its class: java.lang.String.length
	Inlined bool   // in the frame that follows
	Native  bool   // a function of a library or of the kernel, which has no class: only other profilers record these
}

// Compiled is the method whose code ran: the innermost frame that is not inlined. It is "" if there
// is none.
func (e Event) Compiled() string {
	for _, f := range e.Stack {
		if !f.Inlined {
			return f.Method
		}
	}
	return ""
}

// printed is the tool's output.
type printed struct {
	Recording struct {
		Events []struct {
			Type   string `json:"type"`
			Values struct {
				StartTime  time.Time `json:"startTime"`
				Duration   string    `json:"duration"`      // ISO 8601: PT0.001S
				Sampled    thread    `json:"sampledThread"` // thread of ExecutionSample
				Of         thread    `json:"eventThread"`   // thread of CPUTimeSample
				StackTrace *struct {
					Frames []struct {
						Type   string `json:"type"`
						Method struct {
							Name string `json:"name"`
							Type struct {
								Name string `json:"name"`
							} `json:"type"`
						} `json:"method"`
					} `json:"frames"`
				} `json:"stackTrace"`
			} `json:"values"`
		} `json:"events"`
	} `json:"recording"`
}

// A thread is one that an event is about.
type thread struct {
	Java string `json:"javaName"`
	OS   string `json:"osName"`
}

// Read returns the events of these types in the file at path.
func Read(ctx context.Context, jdk jvm.JDK, path string, types ...string) ([]Event, error) {
	tool := exec.CommandContext(ctx, filepath.Join(jdk.Home, "bin", "jfr"), "print", "--json", "--stack-depth",
		strconv.Itoa(stackDepth),
		"--events", strings.Join(types, ","), path)
	var complaint strings.Builder
	tool.Stderr = &complaint
	output, err := tool.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("open the output of jfr: %w", err)
	}
	if err := tool.Start(); err != nil {
		return nil, fmt.Errorf("start jfr: %w", err)
	}
	list, malformed := parse(io.LimitReader(output, outputBytes))
	if malformed != nil {
		tool.Process.Kill() // it may be about to write more; Wait reports how it ended
	}
	if err := tool.Wait(); err != nil && malformed == nil {
		return nil, fmt.Errorf("read %s with jfr: %w\n%s", filepath.Base(path), err, complaint.String())
	}
	if malformed != nil {
		return nil, fmt.Errorf("read %s with jfr: %w\n%s", filepath.Base(path), malformed, complaint.String())
	}
	return list, nil
}

// parse parses the tool's output.
func parse(text io.Reader) (list []Event, err error) {
	var all printed
	if err := json.NewDecoder(text).Decode(&all); err != nil {
		return nil, fmt.Errorf("parse events: %w", err)
	}
	for _, one := range all.Recording.Events {
		e := Event{Type: one.Type, Start: one.Values.StartTime}
		if text := one.Values.Duration; text != "" {
			seconds, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimPrefix(text, "PT"), "S"), 64)
			if err != nil {
				return nil, fmt.Errorf("duration of an event: %w", err)
			}
			e.Duration = time.Duration(seconds * float64(time.Second))
		}
		switch v := one.Values; one.Type {
		case ExecutionSample:
			e.Thread = cmp.Or(v.Sampled.Java, v.Sampled.OS)
		case CPUTimeSample:
			e.Thread = cmp.Or(v.Of.Java, v.Of.OS)
		}
		if stack := one.Values.StackTrace; stack != nil {
			for _, f := range stack.Frames {
				frame := Frame{Method: f.Method.Name, Inlined: f.Type == "Inlined", Native: f.Method.Type.Name == ""}
				if !frame.Native {
					frame.Method = strings.ReplaceAll(f.Method.Type.Name, "/", ".") + "." + f.Method.Name
				}
				e.Stack = append(e.Stack, frame)
			}
		}
		list = append(list, e)
	}
	return list, nil
}
