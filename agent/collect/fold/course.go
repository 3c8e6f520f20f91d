package fold

import (
	"math"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
)

const (
	// maxCourse bounds a course: those of longer windows end after a minute.
	maxCourse = int(time.Minute / profile.CourseStep)
	// maxCourses is how many processes of a window have a course of their own: those that are
	// sampled first.
	maxCourses = 64
)

// courses are when the samples of a window were taken.
type courses struct {
	all []uint16
	of  map[*Process]*[]uint16
}

// add counts a sample that was taken so long after the beginning of the window.
func (c *courses) add(p *Process, since time.Duration) {
	step := int(max(since, 0) / profile.CourseStep)
	if step >= maxCourse {
		return
	}
	count(&c.all, step)
	own := c.of[p]
	if own == nil {
		if len(c.of) >= maxCourses {
			return
		}
		if c.of == nil {
			c.of = make(map[*Process]*[]uint16)
		}
		own = new([]uint16)
		c.of[p] = own
	}
	count(own, step)
}

func count(course *[]uint16, step int) {
	for len(*course) <= step {
		*course = append(*course, 0)
	}
	if n := &(*course)[step]; *n < math.MaxUint16 {
		*n++
	}
}

// Course is when samples of the window were taken, as profile.Profile.Course has it. It may be read
// once the window is closed.
func (w *Window) Course() []uint16 { return w.courses.all }

// CourseOf is Course of one process; nil if it has none of its own.
func (w *Window) CourseOf(p *Process) []uint16 {
	if own := w.courses.of[p]; own != nil {
		return *own
	}
	return nil
}
