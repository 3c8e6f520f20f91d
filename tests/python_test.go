package tests

import (
	"context"
	"math"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/tests/needs"
	"github.com/vmprof-agent/vmprof-agent/tests/profiler"
	"github.com/vmprof-agent/vmprof-agent/tests/python"
	"github.com/vmprof-agent/vmprof-agent/tests/stacks"
)

// pythons are the interpreters: one at least.
func pythons(t *testing.T) []python.Interpreter {
	t.Helper()
	needs.Root(t, "sampling")
	found := python.Find()
	if len(found) == 0 {
		needs.Missing(t, python.ErrMissing)
	}
	return found
}

// outermost are the oldest and the newest interpreter. TestPython has all.
func outermost(t *testing.T) []python.Interpreter {
	t.Helper()
	found := pythons(t)
	if len(found) > 2 {
		found = []python.Interpreter{found[0], found[len(found)-1]}
	}
	return found
}

// recordPython records the program at work, with arguments as it has them, and returns what it says
// of itself.
func recordPython(
	t *testing.T, i python.Interpreter, args ...string,
) (p *profile.Profile, spent map[string]float64) {
	t.Helper()
	guest, err := i.Start(context.WithoutCancel(t.Context()), args...)
	if err != nil {
		t.Fatal(err)
	}
	p = recordWork(t, guest.PID(), 1500*time.Millisecond)
	if spent, err = guest.Close(); err != nil {
		t.Fatal(err)
	}
	return p, spent
}

// inPython are the frames of Python on a stack, innermost first, without modules and classes.
func inPython(s *profile.Sample) (functions []string, lines []int64) {
	for _, l := range s.Location {
		if l.Mapping == nil || l.Mapping.File != "[interpreter:CPython]" {
			continue
		}
		name := l.Line[0].Function.Name
		functions = append(functions, name[strings.LastIndexByte(name, '.')+1:])
		lines = append(lines, l.Line[0].Line)
	}
	return functions, lines
}

// TestPython records a program that measures its own CPU time: its functions have the shares that it
// measured. Nine of ten stacks are whole, from the function that works to the first one of the thread.
func TestPython(t *testing.T) {
	whole := map[string][]string{ // how a stack of a place begins, at spin, and the lines of it
		"heavy":     {"spin", "heavy"},
		"light":     {"spin", "light"},
		"ordered":   {"spin", "key", "ordered"},
		"consumed":  {"spin", "steps", "consumed"},
		"descended": append(append([]string{"spin"}, slices.Repeat([]string{"descend"}, 41)...), "descended"),
	}
	for _, i := range pythons(t) {
		t.Run(i.String(), func(t *testing.T) {
			p, spent := recordPython(t, i)
			places, all, others, threads, cut, lines := map[string]float64{}, 0.0, 0.0, 0.0, 0.0, 0.0
			for _, s := range p.Sample {
				functions, at := inPython(s)
				n := float64(s.Value[0])
				place := slices.IndexFunc(functions, func(f string) bool { return whole[f] != nil })
				switch {
				case slices.Contains(functions, "background"):
					threads += n
					if last := functions[len(functions)-1]; last != "_bootstrap" {
						t.Errorf("a thread begins with %s", last)
					}
				case place < 0:
					others += n
				default:
					all += n
					places[functions[place]] += n
					want := slices.Concat(whole[functions[place]], []string{"timed", "work", "run", "<module>"})
					if functions[0] != "spin" { // one is about to call the next
						want = want[max(len(want)-len(functions), 0):]
					}
					if !slices.Equal(functions, want) {
						t.Logf("got %v, want %v", functions, want)
						cut += n
					}
					for j, f := range functions {
						if j > 0 && slices.Contains(python.Marked, f) && functions[0] == "spin" && at[j] != python.Line(f) {
							lines += n
						}
					}
				}
			}
			t.Logf("%s: %v samples, of threads %v, of others %v, cut %v, wrong lines %v", i.Path, all, threads, others,
				cut, lines)
			const enough = 500
			if all < enough || threads == 0 {
				t.Fatalf("%v samples, and %v of the other thread", all, threads)
			}
			if cut > 0.02*all || others > 0.1*all || lines > 0.02*all {
				t.Errorf("of %v samples %v are not whole, %v of no place, %v with wrong lines", all, cut, others, lines)
			}
			sum := 0.0
			for _, seconds := range spent {
				sum += seconds
			}
			for place, seconds := range spent {
				got, want := places[place]/all, seconds/sum
				tolerance := 0.01 + 4*math.Sqrt(want*(1-want)/all)
				t.Logf("%-10s %.3f, by itself %.3f", place, got, want)
				if math.Abs(got-want) > tolerance {
					t.Errorf("%s has %.3f of the samples, want %.3f within %.3f", place, got, want, tolerance)
				}
			}
		})
	}
}

// TestPythonNative: functions of C that Python calls are on top of the frames of Python.
func TestPythonNative(t *testing.T) {
	for _, i := range outermost(t) {
		t.Run(i.String(), func(t *testing.T) {
			p, _ := recordPython(t, i)
			native, all := 0.0, 0.0
			for _, s := range p.Sample {
				frames := stacks.FramesOf(s)
				if at := slices.IndexFunc(frames, func(f stacks.Frame) bool { return f.Function == "shares.spin" }); at >= 0 {
					all += float64(s.Value[0])
					if at > 0 && strings.Contains(frames[0].Mapping, "python") {
						native += float64(s.Value[0])
					}
				}
			}
			if native < 0.1*all {
				t.Errorf("%v of %v samples in spin are in C", native, all)
			}
		})
	}
}

// Functions of C that Python calls, and that call Python, are between the two, also where the
// interpreter has no frame pointers: once there are unwind tables.
func TestPythonBetween(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only x86-64 has unwind tables")
	}
	for _, i := range outermost(t) {
		t.Run(i.String(), func(t *testing.T) {
			guest, err := i.Start(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			all := laterStacks(t, guest.PID(), 1500*time.Millisecond)
			if _, err := guest.Close(); err != nil {
				t.Fatal(err)
			}
			// 3.9 and 3.10 show methods without their class
			at := func(s stacks.Stack, name string) int {
				return slices.IndexFunc(s.Frames, func(f stacks.Frame) bool { return strings.HasSuffix(f.Function, name) })
			}
			both := stacks.Count(all, func(s stacks.Stack) bool { return at(s, ".key") >= 0 })
			between := stacks.Count(all, func(s stacks.Stack) bool {
				key, ordered := at(s, ".key"), at(s, ".ordered")
				return key >= 0 && ordered > key+1 && strings.Contains(s.Frames[key+1].Mapping, "python")
			})
			t.Logf("%d of %d stacks have C between key and ordered", between, both)
			if both < 20 || between < both*98/100 {
				t.Errorf("%d of %d stacks have C between key and ordered", between, both)
			}
		})
	}
}

// TestPythonExec: a process that executes another interpreter is profiled as that, and one that
// forks has a child that is.
func TestPythonExec(t *testing.T) {
	all := outermost(t)
	for n, i := range all {
		for _, args := range [][]string{{"exec", all[(n+1)%len(all)].Path}, {"fork"}} {
			t.Run(i.String()+"/"+args[0], func(t *testing.T) {
				guest, err := i.Start(context.WithoutCancel(t.Context()), args...)
				if err != nil {
					t.Fatal(err)
				}
				recording, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency},
					(*profiler.AgentRun).WaitSampling,
					func(*profiler.AgentRun) error {
						used := cpuTime(t, guest.PID())
						eventually(t, "it works", func() bool { return cpuTime(t, guest.PID())-used >= time.Second/2 })
						if err := guest.Change(); err != nil {
							return err
						}
						worker := 0
						eventually(t, "it has changed", func() bool {
							worker = guest.Worker()
							return worker != 0
						})
						used = cpuTime(t, worker)
						eventually(t, "it works", func() bool { return cpuTime(t, worker)-used >= time.Second })
						return nil
					})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := guest.Close(); err != nil {
					t.Fatal(err)
				}
				known, before, of := 0.0, 0.0, 0.0
				for _, s := range recording.Profile.Sample {
					functions, _ := inPython(s)
					of += float64(s.Value[0])
					switch {
					case slices.Contains(functions, "first"):
						before += float64(s.Value[0])
					case slices.Contains(functions, "work"), slices.Contains(functions, "background"):
						known += float64(s.Value[0])
					}
				}
				t.Logf("of %v samples %v are before it, %v behind it", of, before, known)
				// A process that executes a program is known at once. One that forks is when its first samples
				// are read, a second later.
				least := 0.8
				if args[0] == "fork" {
					least = 0.3
				}
				if before < 100 || known < 100 || before+known < least*of {
					t.Errorf("of %v samples %v are before it, %v behind it", of, before, known)
				}
			})
		}
	}
}

// TestPythonSubinterpreter: functions that run in a subinterpreter are below those of the main
// interpreter that called them.
func TestPythonSubinterpreter(t *testing.T) {
	for _, i := range outermost(t) {
		t.Run(i.String(), func(t *testing.T) {
			if !i.Subinterpreters() {
				t.Skip("this build has no module for subinterpreters")
			}
			p, spent := recordPython(t, i, "sub")
			inside, all, apart := 0.0, 0.0, 0.0
			for _, s := range p.Sample {
				functions, _ := inPython(s)
				all += float64(s.Value[0])
				if slices.Contains(functions, "inside") {
					inside += float64(s.Value[0])
					if !slices.Contains(functions, "outside") {
						apart += float64(s.Value[0])
					}
				}
			}
			t.Logf("%v of %v samples are inside, %v without their caller; by itself %v", inside, all, apart, spent)
			if inside < 100 || apart > 0.02*inside {
				t.Errorf("of %v samples in the subinterpreter %v have no caller", inside, apart)
			}
		})
	}
}

// Each thread of Python that works, or waits for a moment, has the whole time of a recording of
// wall-clock time below its own function.
func TestPythonWall(t *testing.T) {
	for _, i := range outermost(t) {
		t.Run(i.String(), func(t *testing.T) {
			guest, err := i.Start(context.WithoutCancel(t.Context()))
			if err != nil {
				t.Fatal(err)
			}
			recording, err := built.While(t.Context(), profiler.Options{PID: guest.PID(), Frequency: frequency,
				Extra: []string{"-e", "wall", "--budget=50%"}},
				(*profiler.AgentRun).WaitSampling, func(*profiler.AgentRun) error {
					before := cpuTime(t, guest.PID())
					eventually(t, "the process works", func() bool {
						return cpuTime(t, guest.PID())-before >= 1500*time.Millisecond
					})
					return nil
				})
			if _, closed := guest.Close(); err != nil || closed != nil {
				t.Fatal(err, closed)
			}
			length, in := float64(recording.Profile.DurationNanos), map[string]float64{}
			// the last one waits for input all the time
			functions := []string{"shares.work", "shares.background", "shares.wait"}
			for _, row := range rowsOf(t, recording.Profile, "wall") {
				for _, function := range functions {
					if row.Has(function) {
						in[function] += row.Values[0]
					}
				}
			}
			t.Logf("%v in %v", in, time.Duration(length))
			for _, function := range functions { // the agent attaches while the window is open already
				if share := in[function] / length; share < 0.9 || share > 1.02 {
					t.Errorf("a thread was in %s for %.1f %% of the time", function, 100*share)
				}
			}
		})
	}
}
