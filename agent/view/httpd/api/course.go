package api

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/vmprof-agent/vmprof-agent/agent/model/profile"
	"github.com/vmprof-agent/vmprof-agent/agent/model/stored"
)

// maxCourseTime is the longest time that /api/v1/course answers for.
const maxCourseTime = time.Minute

// A course is when the samples of a window were taken. Its counts are the profile's.
type course struct {
	start, end time.Time
	all        []uint16
	of         []processCourse
}

type processCourse struct {
	service string
	pid     int64
	counts  []uint16
}

func courseOf(p *profile.Profile) course {
	c := course{start: p.Start, end: p.Start.Add(p.Duration), all: p.Course}
	for _, proc := range p.Processes {
		if proc.Course != nil {
			c.of = append(c.of, processCourse{stored.Printable(proc.Service), int64(proc.PID), proc.Course})
		}
	}
	return c
}

// Course is the answer of /api/v1/course.
type Course struct {
	Format int    `json:"format"`
	Start  int64  `json:"start"`  // ms since 1970
	Step   int64  `json:"step"`   // ms
	Counts []int  `json:"counts"` // -1 where it is not known
	Note   string `json:"note,omitempty"`
}

// course is the answer of /api/v1/course: when samples were taken, to 20 ms.
func (a *API) course(r *http.Request, s selection) (any, error) {
	if s.from.IsZero() || s.to.IsZero() || !s.from.Before(s.to) || s.to.Sub(s.from) > maxCourseTime {
		return nil, badRequest{fmt.Errorf("from and to must be at most %v apart", maxCourseTime)}
	}
	if _, ofEvents := s.kind.Content.Events(); ofEvents {
		return nil, badRequest{errors.New("only samples of CPU time have times to 20 ms")}
	}
	out := Course{Format: apiFormat, Start: s.from.UnixMilli(), Step: profile.CourseStep.Milliseconds(),
		Counts: []int{}}
	steps := int((s.to.Sub(s.from) + profile.CourseStep - 1) / profile.CourseStep)
	known := false
	counts := make([]int, steps)
	for i := range counts {
		counts[i] = -1
	}
	a.kept.mu.Lock()
	defer a.kept.mu.Unlock()
	for i := range a.kept.courses {
		c := &a.kept.courses[i]
		if c.all == nil || !c.start.Before(s.to) || !c.end.After(s.from) {
			continue
		}
		known = true
		at := func(t time.Time) int { return int(t.Sub(s.from) / profile.CourseStep) }
		for step := max(at(c.start), 0); step < min(at(c.end), steps); step++ {
			counts[step] = max(counts[step], 0)
		}
		add := func(list []uint16) {
			for n, v := range list {
				if t := c.start.Add(time.Duration(n) * profile.CourseStep); v > 0 && !t.Before(s.from) &&
					t.Before(s.to) {
					counts[at(t)] = max(counts[at(t)], 0) + int(v)
				}
			}
		}
		if s.service == "" && s.pid == 0 {
			add(c.all)
		}
		for _, p := range c.of {
			if s.service != "" && p.service == s.service && (s.pid == 0 || s.pid == p.pid) || s.service == "" &&
				s.pid != 0 && s.pid == p.pid {
				add(p.counts)
			}
		}
	}
	if !known {
		out.Note = "Times of single samples are kept for the last five minutes only, and not in the history"
		return out, nil
	}
	out.Counts = counts
	return out, nil
}
