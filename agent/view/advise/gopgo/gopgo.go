// Package gopgo reduces a profile of a Go program to what go build -pgo reads: the compiler inlines
// hot calls, and calls the most frequent target of a hot interface call directly.
//
//	plan, err := gopgo.Advise(recorded, gopgo.Options{})
//	plan.Profile.Write(file) // default.pgo
//
// The compiler looks at pairs of functions that are next to each other in a stack: it finds a call
// by the name of the caller, the distance of its line from the one on which the caller begins, and
// the name of the callee. So the stacks are made those that runtime/pprof writes: no frames of the
// kernel and of C, no wrappers that the compiler generates, and no runtime.goexit.
package gopgo

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	pprof "github.com/google/pprof/profile"

	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// Options choose the program.
type Options struct {
	PID int64 // only the process with that pid; 0 for all
}

// A Plan is a profile for the compiler, and what is worth to know of it.
type Plan struct {
	Profile *pprof.Profile
	Program string // the file
	Samples int64  // samples in the profile
	Without int64  // samples of the program that have no function of Go in them
	Calls   int    // different pairs of caller, place and callee
}

// FewSamples is below how many samples another recording is likely to name other calls as hot.
const FewSamples = 2000

// A program is the file that Go functions are in.
type program struct{ file, buildID string }

// Advise returns the profile of the one Go program in p.
func Advise(p *pprof.Profile, o Options) (*Plan, error) {
	counts, time := valueIndex(p, stored.TypeSamples, stored.UnitCount), valueIndex(p, stored.TypeCPU, stored.UnitTime)
	if counts < 0 || time < 0 {
		return nil, errors.New("the profile has no samples of CPU time: record it with -e cpu, the default")
	}
	chosen, err := choose(p, o, counts)
	if err != nil {
		return nil, err
	}
	return reduce(p, o, chosen, counts, time)
}

func valueIndex(p *pprof.Profile, name, unit string) int {
	return slices.IndexFunc(p.SampleType, func(v *pprof.ValueType) bool { return v.Type == name && v.Unit == unit })
}

// matches reports whether a sample is of the process that was asked for.
func (o Options) matches(s *pprof.Sample) bool {
	return o.PID == 0 || slices.Contains(s.NumLabel[stored.LabelPID], o.PID)
}

// isGo reports whether a line is of a function of Go, as the compiler wants it. Only the table of a
// Go program has lines on which functions begin.
func isGo(line pprof.Line) bool {
	return line.Function != nil && line.Function.StartLine > 0 && line.Line > 0
}

// choose returns the only program in p.
func choose(p *pprof.Profile, o Options, counts int) (program, error) {
	samples, pids := map[program]int64{}, map[program][]int64{}
	any, named := false, false
	for _, s := range p.Sample {
		if !o.matches(s) {
			continue
		}
		any = true
		if at := programOf(s); at != nil {
			key := program{at.File, at.BuildID}
			samples[key] += s.Value[counts]
			for _, pid := range s.NumLabel[stored.LabelPID] {
				if !slices.Contains(pids[key], pid) {
					pids[key] = append(pids[key], pid)
				}
			}
		}
		named = named || hasGoNames(s)
	}
	var programs []program
	for key := range samples {
		programs = append(programs, key)
	}
	slices.SortFunc(programs, func(a, b program) int {
		return cmp.Or(cmp.Compare(samples[b], samples[a]), strings.Compare(a.file, b.file),
			strings.Compare(a.buildID, b.buildID))
	})
	switch {
	case !any && o.PID != 0:
		return program{}, fmt.Errorf("the profile has no samples of process %d", o.PID)
	case !any:
		return program{}, errors.New("the profile has no samples")
	case len(programs) == 1:
		return programs[0], nil
	case len(programs) > 1:
		return program{}, severalError(programs, pids)
	case named:
		return program{}, errors.New("the Go functions in the profile have no line on which they begin: build the " +
			"program with Go 1.20 or newer, and record it with this version of vmprof-agent")
	}
	return program{}, errors.New("the profile has no functions of a Go program")
}

// severalError names the programs with most samples first.
func severalError(programs []program, pids map[program][]int64) error {
	const most = 5
	var list []string
	for _, p := range programs[:min(len(programs), most)] {
		text := stored.Printable(p.file)
		if of := pids[p]; len(of) > 0 {
			text += fmt.Sprintf(" (pid %d)", of[0])
		}
		list = append(list, text)
	}
	if more := len(programs) - most; more > 0 {
		list = append(list, fmt.Sprintf("%d more", more))
	}
	return fmt.Errorf("the profile has %d Go programs: %s; choose one with -p PID", len(programs),
		strings.Join(list, ", "))
}

// programOf returns the file of the outermost function of Go in a sample, nil if there is none.
func programOf(s *pprof.Sample) *pprof.Mapping {
	for _, location := range slices.Backward(s.Location) {
		if location.Mapping != nil && slices.ContainsFunc(location.Line, isGo) {
			return location.Mapping
		}
	}
	return nil
}

// hasGoNames reports whether a stack looks like one of a Go program without lines.
func hasGoNames(s *pprof.Sample) bool {
	return slices.ContainsFunc(s.Location, func(l *pprof.Location) bool {
		return slices.ContainsFunc(l.Line, func(line pprof.Line) bool {
			if line.Function == nil {
				return false
			}
			name := line.Function.SystemName
			return name == "runtime.main" || strings.HasPrefix(name, "runtime.goexit") ||
				strings.HasPrefix(name, "runtime.mcall")
		})
	})
}

// reduce makes the profile of one program.
func reduce(p *pprof.Profile, o Options, of program, counts, time int) (*Plan, error) {
	plan := &Plan{Program: of.file, Profile: &pprof.Profile{
		SampleType: []*pprof.ValueType{{Type: stored.TypeSamples, Unit: stored.UnitCount},
			{Type: stored.TypeCPU, Unit: stored.UnitTime}},
		PeriodType: &pprof.ValueType{Type: stored.TypeCPU, Unit: stored.UnitTime}, Period: p.Period,
		TimeNanos: p.TimeNanos, DurationNanos: p.DurationNanos,
	}}
	pids := map[int64]bool{}
	for _, s := range p.Sample {
		if at := programOf(s); at != nil && (program{at.File, at.BuildID}) == of && o.matches(s) {
			for _, pid := range s.NumLabel[stored.LabelPID] {
				pids[pid] = true
			}
		}
	}
	b := builder{profile: plan.Profile, calls: map[call]bool{}, functions: map[functionKey]*pprof.Function{},
		locations: map[string]*pprof.Location{}}
	for _, s := range p.Sample {
		if !o.matches(s) || s.Value[counts] == 0 {
			continue
		}
		stack := b.stack(s, of)
		if len(stack) == 0 {
			if slices.ContainsFunc(s.NumLabel[stored.LabelPID], func(pid int64) bool { return pids[pid] }) {
				plan.Without += s.Value[counts]
			}
			continue
		}
		plan.Profile.Sample = append(plan.Profile.Sample, &pprof.Sample{Location: stack,
			Value: []int64{s.Value[counts], s.Value[time]}})
		plan.Samples += s.Value[counts]
	}
	plan.Calls = len(b.calls)
	if plan.Calls == 0 {
		return nil, errors.New("no stack in the profile has a call between functions of Go")
	}
	if err := plan.Profile.CheckValid(); err != nil {
		return nil, fmt.Errorf("check profile: %w", err)
	}
	return plan, nil
}

// Text says what the profile is, for people; name is that of its file.
func (p *Plan) Text(name string) string {
	text := fmt.Sprintf("%s: %d samples of %s, %d call sites with their callees\n", name, p.Samples,
		stored.Printable(path.Base(p.Program)), p.Calls)
	if all := p.Samples + p.Without; p.Without > 0 {
		text += fmt.Sprintf("%.1f%% of the program's samples are not in it: no function of Go is on their stack\n",
			100*float64(p.Without)/float64(all))
	}
	if p.Samples < FewSamples {
		text += fmt.Sprintf("warning: fewer than %d samples; record longer (-d), or at a higher rate (-F)\n",
			FewSamples)
	}
	return text + fmt.Sprintf("next: mv %s DIR/default.pgo && go build DIR, where DIR has package main; or go build "+
		"-pgo=%s\n", name, name)
}
