package main

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/vmprof-agent/vmprof-agent/tests/kernels/wire"
)

// A report is a guest's report on itself and its steps.
type report struct {
	Release string // release of the kernel; empty if the guest never came up
	Boot    string // seconds until init ran, on the guest's clock
	Steps   []step
	Done    bool // the guest reached its end
}

// A step is the outcome of loading one object or running one test binary. Test names include those
// of subtests.
type step struct {
	Name                    string
	Passed, Failed, Skipped []string
	Exit                    string // "0", or how it failed; empty if it never ended
	Output                  string
}

// testResult is a result line of `go test -v`; those of subtests are indented.
var testResult = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)

// parseResults parses the output of the results' serial port.
func parseResults(text string) report {
	var r report
	var current *step
	for line := range strings.Lines(text) {
		switch mark := wire.Parse(strings.TrimSuffix(line, "\n")); mark.Kind {
		case wire.Up:
			r.Release, r.Boot = mark.Subject, mark.Detail
		case wire.Run:
			r.Steps = append(r.Steps, step{Name: mark.Subject})
			current = &r.Steps[len(r.Steps)-1]
		case wire.Exit:
			if current != nil {
				current.Exit = mark.Detail
			}
			current = nil
		case wire.Done:
			r.Done = true
		case wire.None:
			if current != nil {
				current.add(line)
			}
		}
	}
	return r
}

func (s *step) add(line string) {
	s.Output += line
	m := testResult.FindStringSubmatch(line)
	if m == nil {
		return
	}
	switch m[1] {
	case "PASS":
		s.Passed = append(s.Passed, m[2])
	case "FAIL":
		s.Failed = append(s.Failed, m[2])
	case "SKIP":
		s.Skipped = append(s.Skipped, m[2])
	}
}

// uneventful are the lines of `go test -v` about tests that began or passed.
var uneventful = regexp.MustCompile(`(?m)^(=== (RUN|PAUSE|CONT|NAME) |\s*--- PASS: ).*\n`)

// Eventful is the step's output without lines about success.
func (s *step) Eventful() string { return uneventful.ReplaceAllString(s.Output, "") }

// Check compares a report with what the packages have for a kernel. It returns the number of loaded
// objects and a list of all faults. No faults means that every object was accepted, every test
// binary ran to its end and none of its tests failed.
func (r *report) Check(packages []testPackage) (objects int, problems []string) {
	if r.Release == "" {
		problems = append(problems, "the guest never came up")
	} else if !r.Done {
		problems = append(problems, "the guest did not reach its end")
	}
	for _, p := range packages {
		for _, object := range p.Objects {
			problem := r.problemOf(p.ObjectStep(object))
			if problem == "" {
				objects++
			} else {
				problems = append(problems, problem)
			}
		}
		if !p.HasTest {
			continue
		}
		if problem := r.problemOf(p.Step()); problem != "" {
			problems = append(problems, problem)
		} else if s := r.find(p.Step()); len(s.Passed) == 0 {
			problems = append(problems, s.Name+" passed no test")
		}
	}
	return objects, problems
}

// problemOf describes what is wrong with a step, if anything.
func (r *report) problemOf(name string) string {
	s := r.find(name)
	switch {
	case s == nil:
		return name + " was not run"
	case s.Exit == "":
		return name + " did not end"
	case s.Failed != nil:
		return fmt.Sprintf("%s: %s; failed: %s", name, s.Exit, strings.Join(s.Failed, ", "))
	case s.Exit != "0":
		return name + ": " + s.Exit
	}
	return ""
}

func (r *report) find(name string) *step {
	for i := range r.Steps {
		if r.Steps[i].Name == name {
			return &r.Steps[i]
		}
	}
	return nil
}
