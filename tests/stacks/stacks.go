// Package stacks reads a pprof profile as what it is a list of: stacks, and how often each was
// seen.
//
//	for _, s := range stacks.FromProfile(profile) {
//		if s.Self("guest.Plain.heavy") { n += s.Count }
//	}
package stacks

import (
	"slices"
	"strings"

	"github.com/google/pprof/profile"
)

// A Stack is a sampled stack.
type Stack struct {
	Frames []Frame // innermost first, inlined ones too
	Count  int64   // samples
	Thread string  // the thread's name, cut to 15 bytes by the kernel
}

// A Frame is one method or function on a stack.
type Frame struct {
	Function string
	Mapping  string // the file or pseudo-file that it belongs to, "" for a marker
	Inlined  bool   // in the frame that follows
}

// FromProfile returns the stacks of p, which must have sample values of the type "samples".
func FromProfile(p *profile.Profile) []Stack {
	value := slices.IndexFunc(p.SampleType, func(t *profile.ValueType) bool { return t.Type == "samples" })
	if value < 0 {
		return nil
	}
	stacks := make([]Stack, 0, len(p.Sample))
	for _, sample := range p.Sample {
		stack := Stack{Frames: FramesOf(sample), Count: sample.Value[value]}
		if names := sample.Label["thread"]; len(names) > 0 {
			stack.Thread = names[0]
		}
		stacks = append(stacks, stack)
	}
	return stacks
}

// FramesOf returns the frames of a sample, innermost first, inlined ones too.
func FramesOf(sample *profile.Sample) []Frame {
	var frames []Frame
	for _, location := range sample.Location {
		mapping := ""
		if location.Mapping != nil {
			mapping = location.Mapping.File
		}
		for i, line := range location.Line {
			frames = append(frames, Frame{Function: line.Function.Name, Mapping: mapping,
				Inlined: i < len(location.Line)-1})
		}
	}
	return frames
}

// Java says that the frame is a Java method, compiled or interpreted.
func (f Frame) Java() bool {
	return strings.HasPrefix(f.Mapping, "[jit") || strings.HasPrefix(f.Mapping, "[interpreter")
}

// Marker says that the frame is none, but tells what is wrong with the stack: [truncated: …],
// [stale].
func (f Frame) Marker() bool {
	return f.Mapping == "" && strings.HasPrefix(f.Function, "[")
}

// InlinedIn reports whether a name is that of a frame [inlined in M], which is no method.
func InlinedIn(function string) bool { return strings.HasPrefix(function, "[inlined in ") }

// Self says that the method is the innermost Java method that is known. What it calls in the JVM,
// in libraries and in the kernel is its own time, and what may have been inlined in it.
func (s Stack) Self(method string) bool {
	for _, frame := range s.Frames {
		if frame.Java() && !InlinedIn(frame.Function) {
			return frame.Function == method
		}
	}
	return false
}

// Has says that the method is on the stack.
func (s Stack) Has(method string) bool { return s.Times(method) > 0 }

// Times returns how many times the method is on the stack.
func (s Stack) Times(method string) int {
	times := 0
	for _, frame := range s.Frames {
		if frame.Function == method {
			times++
		}
	}
	return times
}

// Truncated returns the reason why the stack has no outermost frame, "" if it has one.
func (s Stack) Truncated() string {
	if len(s.Frames) == 0 {
		return "empty"
	}
	outermost := s.Frames[len(s.Frames)-1].Function
	for _, before := range []string{"[truncated: ", "[… cut: "} {
		if reason, truncated := strings.CutPrefix(outermost, before); truncated {
			return strings.TrimSuffix(reason, "]")
		}
	}
	return ""
}

// String is the stack in one line, outermost first, interpreted methods marked, for a reader of a
// failed test.
func (s Stack) String() string {
	names := make([]string, 0, len(s.Frames))
	for _, frame := range slices.Backward(s.Frames) {
		name := frame.Function
		if strings.HasPrefix(frame.Mapping, "[interpreter") {
			name += " (interpreted)"
		}
		names = append(names, name)
	}
	return s.Thread + ": " + strings.Join(names, ";")
}

// Count adds up the samples of the stacks that are wanted.
func Count(stacks []Stack, wanted func(Stack) bool) int64 {
	var count int64
	for _, stack := range stacks {
		if wanted(stack) {
			count += stack.Count
		}
	}
	return count
}

// OnThread returns the stacks of the threads whose names begin with prefix.
func OnThread(stacks []Stack, prefix string) []Stack {
	var own []Stack
	for _, stack := range stacks {
		if strings.HasPrefix(stack.Thread, prefix) {
			own = append(own, stack)
		}
	}
	return own
}
