package fold

import (
	"math"
	"testing"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

// Samples are counted in their 20 ms, of all processes and of each of the first ones; what is
// stored is bounded.
func TestCourses(t *testing.T) {
	w := Window{}
	first := &Process{}
	for _, at := range []time.Duration{-time.Millisecond, 0, 19 * time.Millisecond, 20 * time.Millisecond, time.Second,
		time.Minute, time.Hour} {
		w.courses.add(first, at)
	}
	for range 2 * maxCourses {
		w.courses.add(&Process{}, 40*time.Millisecond)
	}
	all, own := w.Course(), w.CourseOf(first)
	if len(own) != 51 || own[0] != 3 || own[1] != 1 || own[2] != 0 || own[50] != 1 || all[2] != 2*maxCourses ||
		all[0] != 3 {
		t.Errorf("all %v, own %v", all, own)
	}
	if len(w.courses.of) != maxCourses || w.CourseOf(&Process{}) != nil {
		t.Errorf("%d processes have courses", len(w.courses.of))
	}
	for range math.MaxUint16 + 10 {
		w.courses.add(first, time.Minute-time.Nanosecond)
	}
	if own := w.CourseOf(first); len(own) != int(time.Minute/profile.CourseStep) || own[len(own)-1] != math.MaxUint16 {
		t.Errorf("%d steps, the last one has %d", len(own), own[len(own)-1])
	}
}
